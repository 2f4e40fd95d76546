//! Products of random groups on the GPU: in BLOCK the CPU's bits, in FAST those of the plain products of each group.

use nvfp4::numerics::*;
use nvfp4::plan::grouped_gemm::{self, Ragged};
use nvfp4::plan::{self, groups, Device, GroupedGemmPlan, GroupedGemmRequest, Quantized};

use super::config::{Data, Random};
use super::grouped::{lay, offsets, workspace, write, Call, Shape};
use super::side::{Arena, Both, Region};

fn operand_options(r: &mut Random, format: Format, hadamard: u32, layout: ScaleLayout) -> Options {
    Options {
        format,
        hadamard,
        scale_layout: layout,
        chain: match format {
            Format::Nvfp4 => r.pick(&[Chain::Te, Chain::Single]),
            _ => Chain::Te,
        },
        scale_rule: match format {
            Format::Mxfp4 => r.pick(&[ScaleRule::Floor, ScaleRule::EncodeCentric]),
            _ => ScaleRule::Floor,
        },
        range_16_17: format != Format::Bf16 && r.one_in(4),
        ..Options::default()
    }
}

/// A grouped product laid out in an arena, and its operands' quantization.
struct Product {
    ragged: Ragged,
    a: Call,
    b: Vec<Call>,
    request: GroupedGemmRequest,
    alpha: Option<Region>,
    beta: Option<Region>,
    bias: Option<Region>,
    row_factors: Option<Region>,
    c: Region,
    d: Region,
    dtype: Dtype,
    m: usize,
    n: usize,
}

impl Product {
    fn operands(&self, arena: &mut Arena, cuda: bool) -> Result<(Quantized, Quantized), String> {
        let columnwise = self.ragged == Ragged::K;
        let made = |call: &Call, arena: &mut Arena| -> Result<Quantized, String> {
            let p = call.plan(arena, cuda)?;
            let copy = if columnwise { p.columnwise } else { p.rowwise };
            Ok(copy.expect("it was asked for").out)
        };
        let a = made(&self.a, arena)?;
        let mut b = made(&self.b[0], arena)?;
        if !columnwise {
            // The stack of weights: one group of rows each, next to each other.
            b.groups = 0;
            b.beyond = [usize::MAX / 2; 3];
            b.rows = self.n;
        }
        Ok((a, b))
    }

    fn plan(
        &self,
        arena: &mut Arena,
        cuda: bool,
        accumulate: Accumulate,
    ) -> Result<GroupedGemmPlan, String> {
        let (a, b) = self.operands(arena, cuda)?;
        let f32s = |r: Option<Region>, arena: &mut Arena| {
            r.map_or(std::ptr::null(), |r| {
                arena.pointer::<f32>(cuda, r).cast_const()
            })
        };
        let request = GroupedGemmRequest {
            accumulate,
            offsets: arena.pointer(cuda, self.a.offsets),
            alpha: f32s(self.alpha, arena),
            beta: f32s(self.beta, arena),
            bias: self.bias.map_or(std::ptr::null(), |r| {
                arena.pointer::<u8>(cuda, r).cast_const()
            }),
            row_factors: f32s(self.row_factors, arena),
            workspace: arena.pointer(cuda, self.a.workspace),
            workspace_bytes: self.a.workspace.bytes,
            ..self.request
        };
        let matrix = |r: Region, dtype, arena: &mut Arena| {
            let data = arena.pointer(cuda, r);
            plan::Matrix::new("d", data, dtype, self.m as i64, self.n as i64, 0)
                .expect("a legal matrix")
        };
        let d = matrix(self.d, self.dtype, arena);
        let c = self.beta.map(|_| matrix(self.c, Dtype::F32, arena));
        let device = if cuda { Device::Cuda } else { Device::Cpu };
        grouped_gemm::plan(&request, device, a, b, c, d).map_err(|e| format!("the plan says {e}"))
    }
}

fn product(both: &Both, arena: &mut Arena, r: &mut Random) -> Result<Product, String> {
    let poison = r.pick(&[0xFF, 0]);
    arena.reset(poison);
    let ragged = r.pick(&[Ragged::M, Ragged::K]);
    let format = r.pick(&[Format::Nvfp4, Format::Nvfp4, Format::Mxfp4, Format::Bf16]);
    let layout = r.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]);
    let count = 1 + r.below(7);
    let offsets = offsets(r, count, 100);
    let tokens = offsets[count] as usize + r.pick(&[0, 0, 40]);
    let hadamard = r.pick(&[0, 0, 16, 128]);
    let n: usize = r.pick(&[1, 5, 16, 129, 150]);
    let k = r.pick(&[1, 16, 33, 128, 300]);
    let m = r.pick(&[1, 3, 16, 70, 130]);
    let shape = |rows, cols, offsets: Vec<i64>| Shape {
        rows,
        cols,
        offsets,
        dtype: Dtype::Bf16,
        data: Data::Normal,
        poison,
    };
    let (oa, ob) = (
        operand_options(r, format, hadamard, layout),
        operand_options(r, format, hadamard, layout),
    );
    let align = if ragged == Ragged::K {
        r.pick(&[0, 0, 128])
    } else {
        0
    };
    let plain = r.one_in(2);
    let (a, b) = match ragged {
        Ragged::M => {
            let a = lay(
                arena,
                r,
                &shape(tokens, k, offsets.clone()),
                Some(oa),
                None,
                0,
                false,
                plain,
            );
            // Weights of 128 rows' multiple where their scales are swizzled, so that they lie next to each other.
            let own = if layout == ScaleLayout::Swizzled {
                n.next_multiple_of(128)
            } else {
                n
            };
            let where_: Vec<i64> = (0..=count as i64).map(|g| g * own as i64).collect();
            let w = lay(
                arena,
                r,
                &shape(own * count, k, where_),
                Some(ob),
                None,
                0,
                false,
                true,
            );
            (a, w)
        }
        Ragged::K => {
            let a = lay(
                arena,
                r,
                &shape(tokens, m, offsets.clone()),
                None,
                Some(oa),
                align,
                false,
                plain,
            );
            let b = lay(
                arena,
                r,
                &shape(tokens, n, offsets.clone()),
                None,
                Some(ob),
                align,
                false,
                plain,
            );
            (a, b)
        }
    };
    let rows = if ragged == Ragged::M { tokens } else { m };
    let matrices = if ragged == Ragged::M { 1 } else { count };
    let dtype = r.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16]);
    let elements = matrices * rows * n;
    let f32s = |arena: &mut Arena, r: &mut Random, wanted: bool, count: usize| {
        wanted.then(|| {
            let at = arena.take(4 * count, 0, poison);
            let values: Vec<f32> = (0..count).map(|_| r.normal()).collect();
            write(arena, at, &values, |v: f32| v.to_le_bytes().to_vec());
            at
        })
    };
    let (with_alpha, with_beta, with_bias) = (r.one_in(2), r.one_in(3), r.one_in(2));
    let each = r.below(2) as i64;
    let alpha = f32s(arena, r, with_alpha, count);
    let beta = f32s(arena, r, with_beta, 1);
    let bias = f32s(arena, r, with_bias, count * n);
    let with_factors = ragged == Ragged::M && r.one_in(2);
    let row_factors = f32s(arena, r, with_factors, rows);
    let c = f32s(arena, r, true, elements).expect("wanted");
    let d = arena.take(elements * dtype.size(), 0, poison);
    let b_plan = b.plan(arena, false)?;
    let strides = match b_plan.rowwise {
        Some(copy) => {
            let rows = b.rows / count;
            let scales = match copy.out.scale_layout {
                ScaleLayout::Linear => rows * copy.out.scale_stride,
                ScaleLayout::Swizzled => rows * copy.out.scale_cols().next_multiple_of(4),
            };
            let amax = copy.out.has_amax() as usize;
            [rows * copy.out.code_stride, scales, amax].map(|s| s as i64)
        }
        None => [0; 3],
    };
    let request = GroupedGemmRequest {
        ragged,
        activation: r.pick(&[Activation::None, Activation::None, Activation::Relu2]),
        groups: count as i64,
        column_align: align,
        alpha_stride: if alpha.is_some() { each } else { 0 },
        bias_stride: if bias.is_some() { each * n as i64 } else { 0 },
        b_codes_stride: strides[0],
        b_scales_stride: strides[1],
        b_amax_stride: strides[2],
        ..GroupedGemmRequest::default()
    };
    let mut p = Product {
        ragged,
        a,
        b: vec![b],
        request,
        alpha,
        beta,
        bias,
        row_factors,
        c,
        d,
        dtype,
        m: rows,
        n,
    };
    let bytes = both
        .cuda
        .grouped_gemm_workspace(&p.plan(arena, false, Accumulate::Block)?)
        .max(
            both.cuda
                .grouped_quantize_workspace(&p.a.plan(arena, false)?),
        );
    p.a.workspace = workspace(arena, bytes);
    Ok(p)
}

/// One random grouped product: (compared in BLOCK, compared in FAST).
pub fn product_once(
    both: &Both,
    arena: &mut Arena,
    r: &mut Random,
) -> Result<(usize, usize), String> {
    let fail = |e: nvfp4::Error| e.to_string();
    let p = product(both, arena, r)?;
    // Operands by the CPU, for both.
    both.cpu
        .grouped_quantize(&p.a.plan(arena, false)?)
        .map_err(fail)?;
    both.cpu
        .grouped_quantize(&p.b[0].plan(arena, false)?)
        .map_err(fail)?;
    arena.upload();
    let what = format!(
        "{:?}, {:?} and {:?}, [{}, {}]",
        p.request,
        p.a.rowwise.or(p.a.columnwise).map(|s| s.0),
        p.b[0].rowwise.or(p.b[0].columnwise).map(|s| s.0),
        p.m,
        p.n
    );
    let host = p.plan(arena, false, Accumulate::Block)?;
    both.cpu.grouped_gemm(&host).map_err(fail)?;
    let device = p.plan(arena, true, Accumulate::Block)?;
    both.cuda
        .grouped_gemm(&device, both.stream.raw())
        .map_err(fail)?;
    both.compare(arena, p.a.workspace, &[("D".into(), p.d)])
        .map_err(|e| format!("BLOCK: {e}; {what}"))?;
    // FAST: the plain products of each group, by the same arithmetic, where each is a matrix of its own.
    if host.a.scale_layout == ScaleLayout::Swizzled {
        return Ok((1, 0));
    }
    let ranges = {
        // SAFETY: G + 1 values of host memory, checked by the plan.
        unsafe { host.groups.ranges() }
    };
    let starts = groups::column_starts(&ranges, host.column_align);
    let fast = p.plan(arena, true, Accumulate::Fast)?;
    for (g, range) in ranges.iter().enumerate() {
        let one = nvfp4::plan::GemmPlan {
            provider: 4,
            ..fast.group(g, range.start, range.len(), starts[g])
        };
        both.cuda.gemm(&one, both.stream.raw()).map_err(fail)?;
    }
    both.stream.wait();
    let want = arena.download();
    arena.upload_region(p.d);
    both.cuda
        .grouped_gemm(&fast, both.stream.raw())
        .map_err(fail)?;
    both.stream.wait();
    let got = arena.download();
    let (at, bytes) = (p.d.at, p.d.bytes);
    match (at..at + bytes).find(|i| got[*i] != want[*i]) {
        Some(i) => Err(format!(
            "FAST: byte {} of D is {:#04x}, of the plain products {:#04x}; {what}",
            i - at,
            got[i],
            want[i]
        )),
        None => Ok((1, 1)),
    }
}
