//! Products on the GPU against the CPU backend: BLOCK and HARDWARE byte for byte, FAST within its bound, and FAST byte for byte where
//! every partial sum is exact. Every candidate that takes a product is forced in turn.

use std::ptr::null;

use nvfp4::cpu::Cpu;
use nvfp4::cuda::{Cuda, NativeState};
use nvfp4::numerics::{self, gemm_fast, gemm_hardware, *};
use nvfp4::plan::gemm::{BatchStrides, Scalar};
use nvfp4::plan::quantize::{described, Sizes};
use nvfp4::plan::{self, options, Buffers, GemmPlan, GemmRequest};

use super::config::Random;
use super::device::{Memory, Stream};
use super::side::{Arena, Region};

/// How many candidates src/cuda/gemm has.
pub const PROVIDERS: u32 = 9;

/// What the operands hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data {
    /// Scales 1 and 2: every partial sum is exact.
    Exact,
    Any,
    /// A few NaN scales; MXFP4 scales over their whole range.
    Wild,
}

#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub options: Options,
    pub code_pad: usize,
    pub scale_pad: usize,
    pub shift: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Side,
    pub b: Side,
    pub accumulate: Accumulate,
    pub data: Data,
    pub batch: usize,
    /// Alpha, beta, bias, activation, factors; else D is the accumulator and the outer scale.
    pub epilogue: bool,
    pub activation: Activation,
    pub dtype: Dtype,
    pub c_dtype: Dtype,
    pub d_pad: usize,
    pub d_options: Option<Options>,
    pub poison: u8,
    pub key: u64,
}

/// One operand's bytes, packed, scales linear; `batch` of them.
struct Operand {
    shape: plan::Quantized,
    codes: Vec<u8>,
    scales: Vec<u8>,
    amax: Vec<f32>,
    at: [Region; 3],
    /// Bytes of codes, bytes of scales, values of amax from one product to the next.
    step: [usize; 3],
    strides: [usize; 2],
}

impl Operand {
    fn new(arena: &mut Arena, r: &mut Random, p: &Product, side: &Side, rows: usize) -> Operand {
        let o = options::check("operand", &side.options).expect("legal options");
        let shape = described(&o, rows, p.k, false);
        let (width, blocks) = (shape.code_row_bytes(), shape.scale_cols());
        let linear = shape.scale_layout == ScaleLayout::Linear;
        let strides = [
            width + side.code_pad,
            blocks + if linear { side.scale_pad } else { 0 },
        ];
        let sizes = Sizes::of(&shape);
        let even = |n: usize| n.next_multiple_of(16);
        let step = [
            even(rows * strides[0]),
            if linear {
                even(rows * strides[1])
            } else {
                sizes.scales_bytes
            },
            sizes.amax_count,
        ];
        let at = [
            arena.take(p.batch * step[0], side.shift, p.poison),
            arena.take(
                p.batch * step[1],
                if linear { side.shift } else { 0 },
                p.poison,
            ),
            arena.take(4 * p.batch * step[2], 0, p.poison),
        ];
        let mut all = Operand {
            shape,
            codes: vec![],
            scales: vec![],
            amax: vec![],
            at,
            step,
            strides,
        };
        for i in 0..p.batch {
            let codes: Vec<u8> = match o.format {
                Format::Bf16 => (0..rows * p.k)
                    .flat_map(|_| {
                        let v = match p.data {
                            Data::Exact => (r.below(9) as f32 - 4.0) / 2.0,
                            _ => r.normal() * 2f32.powi(r.below(8) as i32 - 4),
                        };
                        half::bf16::from_f32(v).to_bits().to_le_bytes()
                    })
                    .collect(),
                _ => (0..rows * width)
                    .map(|j| {
                        let byte = r.next() as u8;
                        if p.k % 2 == 1 && j % width == width - 1 {
                            byte & 15
                        } else {
                            byte
                        }
                    })
                    .collect(),
            };
            let scales: Vec<u8> = (0..rows * blocks)
                .map(|_| match (o.format, p.data) {
                    (Format::Mxfp4, Data::Exact) => 127 + r.below(2) as u8,
                    (_, Data::Exact) => 0x38 + 8 * r.below(2) as u8,
                    (Format::Mxfp4, Data::Any) => 112 + r.below(30) as u8,
                    (Format::Mxfp4, Data::Wild) => r.next() as u8,
                    (_, Data::Any) => r.below(127) as u8,
                    (_, Data::Wild) => {
                        if r.one_in(300) {
                            127
                        } else {
                            r.below(127) as u8
                        }
                    }
                })
                .collect();
            let laid = match shape.scale_layout {
                ScaleLayout::Linear => scales.clone(),
                ScaleLayout::Swizzled => layout::swizzle(&scales, rows, blocks),
            };
            let amax: Vec<f32> = (0..sizes.amax_count)
                .map(|_| 0.1 + r.below(1000) as f32 / 7.0)
                .collect();
            for row in 0..rows {
                let to = at[0].at + i * step[0] + row * strides[0];
                arena.host[to..to + width].copy_from_slice(&codes[row * width..][..width]);
                if linear {
                    let to = at[1].at + i * step[1] + row * strides[1];
                    arena.host[to..to + blocks].copy_from_slice(&scales[row * blocks..][..blocks]);
                }
            }
            if !linear {
                arena.host[at[1].at + i * step[1]..][..laid.len()].copy_from_slice(&laid);
            }
            for (j, v) in amax.iter().enumerate() {
                arena.host[at[2].at + 4 * (i * step[2] + j)..][..4]
                    .copy_from_slice(&v.to_le_bytes());
            }
            all.codes.extend(codes);
            all.scales.extend(scales);
            all.amax.extend(amax);
        }
        all
    }

    fn bound(&self, arena: &mut Arena, cuda: bool) -> plan::Quantized {
        let linear = self.shape.scale_layout == ScaleLayout::Linear;
        let buffers = Buffers {
            codes: arena.pointer(cuda, self.at[0]),
            codes_bytes: self.at[0].bytes,
            scales: arena.pointer(cuda, self.at[1]),
            scales_bytes: self.at[1].bytes,
            amax: arena.pointer(cuda, self.at[2]),
            amax_count: self.at[2].bytes / 4,
            code_stride: self.strides[0] as i64,
            scale_stride: if linear { self.strides[1] as i64 } else { 0 },
        };
        self.shape.bind("operand", &buffers).expect("it fits")
    }

    /// The first product's, as the contract's own code has it.
    fn contract(&self, side: &Side) -> numerics::matrix::Quantized {
        let q = &self.shape;
        numerics::matrix::Quantized {
            rows: q.rows,
            cols: q.cols,
            source_cols: q.cols,
            codes: self.codes[..q.rows * q.code_row_bytes()].to_vec(),
            scales: self.scales[..q.rows * q.scale_cols()].to_vec(),
            amax: self.amax[..q.domains()].to_vec(),
            options: Options {
                scale_layout: ScaleLayout::Linear,
                ..side.options
            },
            signs: [0; 4],
            transposed: false,
        }
    }
}

/// Does the device multiply FP4 itself, so that mode HARDWARE has to work?
pub fn has_fp4_units(cuda: &Cuda) -> bool {
    cuda.native_kernels().iter().any(|(name, state)| {
        matches!(*name, "mma-scaled" | "tcgen05") && *state == NativeState::Agrees
    })
}

/// What a run compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub block: usize,
    pub fast: usize,
    pub hardware: usize,
    /// HARDWARE where there are no FP4 units.
    pub refused: usize,
    /// Of each candidate, when forced.
    pub forced: [usize; PROVIDERS as usize],
}

impl Tally {
    pub fn total(&self) -> usize {
        self.block + self.fast + self.hardware
    }
}

/// Both backends and what products are computed in.
pub struct Bench<'a> {
    pub cpu: Cpu,
    pub cuda: &'a Cuda,
    pub stream: Stream,
    pub arena: Arena,
    pub workspace: Memory,
}

impl Bench<'_> {
    /// With so many bytes for operands and outputs, and of workspace.
    pub fn new(cuda: &Cuda, arena: usize, workspace: usize) -> Bench<'_> {
        let workspace = Memory::new(workspace);
        workspace.fill(0xFF);
        Bench {
            cpu: Cpu::new(1),
            cuda,
            stream: Stream::new(),
            arena: Arena::new(arena),
            workspace,
        }
    }
}

fn f32s(arena: &mut Arena, r: &mut Random, count: usize, poison: u8) -> Region {
    let at = arena.take(4 * count, 0, poison);
    for i in 0..count {
        let v = (r.below(33) as f32 - 16.0) / 8.0;
        arena.host[at.at + 4 * i..][..4].copy_from_slice(&v.to_le_bytes());
    }
    at
}

fn elements(arena: &mut Arena, r: &mut Random, at: Region, dtype: Dtype) {
    let size = dtype.size();
    for i in 0..at.bytes / size {
        let v = r.normal();
        let bytes = match dtype {
            Dtype::F32 => v.to_le_bytes().to_vec(),
            Dtype::Bf16 => half::bf16::from_f32(v).to_bits().to_le_bytes().to_vec(),
            Dtype::F16 => half::f16::from_f32(v).to_bits().to_le_bytes().to_vec(),
        };
        arena.host[at.at + i * size..][..size].copy_from_slice(&bytes);
    }
}

fn is_nan(dtype: Dtype, b: &[u8]) -> bool {
    match dtype {
        Dtype::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]).is_nan(),
        Dtype::Bf16 => half::bf16::from_le_bytes([b[0], b[1]]).is_nan(),
        Dtype::F16 => half::f16::from_le_bytes([b[0], b[1]]).is_nan(),
    }
}

/// Runs the product on the CPU, then on the GPU by the default candidate and by each that takes it.
pub fn run(t: &mut Bench, p: &Product, tally: &mut Tally) -> Result<(), String> {
    let all: Vec<u32> = (0..=PROVIDERS).collect();
    run_by(t, p, tally, &all)
}

/// The same by these candidates, 0 being the default one.
pub fn run_by(
    t: &mut Bench,
    p: &Product,
    tally: &mut Tally,
    providers: &[u32],
) -> Result<(), String> {
    let mut r = Random::new(p.key);
    t.arena.reset(p.poison);
    let a = Operand::new(&mut t.arena, &mut r, p, &p.a, p.m);
    let b = Operand::new(&mut t.arena, &mut r, p, &p.b, p.n);
    let on = |wanted: bool, arena: &mut Arena, r: &mut Random, count| {
        wanted.then(|| f32s(arena, r, count, p.poison))
    };
    let alpha = on(p.epilogue, &mut t.arena, &mut r, 1);
    let beta = on(p.epilogue && r.one_in(2), &mut t.arena, &mut r, 1);
    let row_factors = on(p.epilogue && r.one_in(2), &mut t.arena, &mut r, p.m);
    let col_factors = on(p.epilogue && r.one_in(2), &mut t.arena, &mut r, p.n);
    let bias = (p.epilogue && r.one_in(2)).then(|| {
        let at = t.arena.take(p.n * p.c_dtype.size(), 0, p.poison);
        elements(&mut t.arena, &mut r, at, p.c_dtype);
        at
    });
    let stride = p.n + p.d_pad;
    let span = p.m * stride;
    let c = beta.map(|_| {
        let at = t.arena.take(p.batch * span * p.c_dtype.size(), 0, p.poison);
        elements(&mut t.arena, &mut r, at, p.c_dtype);
        at
    });
    let d = t.arena.take(
        p.batch * span * p.dtype.size(),
        p.d_pad % 3 * p.dtype.size(),
        p.poison,
    );
    let quantized = p.d_options.map(|o| {
        let o = options::check("d", &o).expect("legal options");
        let shape = described(&o, p.m, p.n, false);
        let sizes = Sizes::of(&shape);
        let amax = f32s(&mut t.arena, &mut r, sizes.amax_count, p.poison);
        for i in 0..sizes.amax_count {
            t.arena.host[amax.at + 4 * i..][..4].copy_from_slice(&(50.0 + i as f32).to_le_bytes());
        }
        (
            t.arena.take(sizes.codes_bytes, 0, p.poison),
            t.arena.take(sizes.scales_bytes, 0, p.poison),
            t.arena.take(4 * sizes.amax_count, 0, p.poison),
            amax,
        )
    });
    let before = t.arena.host[..t.arena.used()].to_vec();

    let make = |arena: &mut Arena,
                cuda: bool,
                accumulate,
                provider,
                ws: *mut u8,
                ws_bytes|
     -> nvfp4::Result<GemmPlan> {
        let (qa, qb) = (a.bound(arena, cuda), b.bound(arena, cuda));
        let scalar = |arena: &mut Arena, at: Option<Region>, default| match at {
            Some(at) => Scalar::Pointer(arena.pointer::<f32>(cuda, at).cast_const()),
            None => Scalar::Value(default),
        };
        let pointer = |arena: &mut Arena, at: Option<Region>| {
            at.map_or(null(), |at| arena.pointer::<f32>(cuda, at).cast_const())
        };
        let matrix = |arena: &mut Arena, at: Region, dtype| {
            plan::Matrix::new(
                "d",
                arena.pointer(cuda, at),
                dtype,
                p.m as i64,
                p.n as i64,
                stride as i64,
            )
        };
        let step = |x: &Operand, i: usize| if p.batch > 1 { x.step[i] as i64 } else { 0 };
        let request = GemmRequest {
            accumulate,
            provider,
            activation: if p.epilogue {
                p.activation
            } else {
                Activation::None
            },
            alpha: scalar(arena, alpha, 1.0),
            beta: scalar(arena, beta, 0.0),
            bias: bias.map_or(null(), |at| arena.pointer::<u8>(cuda, at).cast_const()),
            bias_dtype: p.c_dtype,
            row_factors: pointer(arena, row_factors),
            col_factors: pointer(arena, col_factors),
            batch: p.batch as i64,
            strides: BatchStrides {
                a_codes: step(&a, 0),
                a_scales: step(&a, 1),
                a_amax: step(&a, 2),
                b_codes: step(&b, 0),
                b_scales: step(&b, 1),
                b_amax: step(&b, 2),
                c: span as i64,
                d: span as i64,
            },
            d_options: p.d_options.unwrap_or_default(),
            d_quantized: quantized.map(|(codes, scales, amax, _)| Buffers {
                codes: arena.pointer(cuda, codes),
                codes_bytes: codes.bytes,
                scales: arena.pointer(cuda, scales),
                scales_bytes: scales.bytes,
                amax: arena.pointer(cuda, amax),
                amax_count: amax.bytes / 4,
                code_stride: 0,
                scale_stride: 0,
            }),
            d_amax: quantized.map_or(null(), |q| arena.pointer::<f32>(cuda, q.3).cast_const()),
            seed: 5,
            offset: 6,
            workspace: ws,
            workspace_bytes: ws_bytes,
            ..GemmRequest::default()
        };
        let c = c.map(|at| matrix(arena, at, p.c_dtype)).transpose()?;
        let d = match quantized {
            Some(_) => None,
            None => Some(matrix(arena, d, p.dtype)?),
        };
        let device = if cuda {
            plan::Device::Cuda
        } else {
            plan::Device::Cpu
        };
        plan::gemm::plan(&request, device, qa, qb, c, d)
    };

    let host = make(
        &mut t.arena,
        false,
        match p.accumulate {
            Accumulate::Hardware => Accumulate::Hardware,
            _ => Accumulate::Block,
        },
        0,
        std::ptr::null_mut(),
        0,
    )
    .map_err(|e| format!("the plan: {e}"))?;
    if p.accumulate == Accumulate::Hardware && !has_fp4_units(t.cuda) {
        let room = (t.workspace.at(0), t.workspace.bytes);
        let plan = make(&mut t.arena, true, p.accumulate, 0, room.0, room.1)
            .map_err(|e| format!("the GPU's plan: {e}"))?;
        return match t.cuda.gemm(&plan, t.stream.raw()) {
            Err(nvfp4::Error::NotSupported(_)) => {
                tally.refused += 1;
                Ok(())
            }
            Ok(()) if p.m * p.n == 0 => Ok(()),
            other => Err(format!("HARDWARE without FP4 units gives {other:?}")),
        };
    }
    t.cpu.gemm(&host).map_err(|e| format!("the CPU says {e}"))?;
    let want = t.arena.host[..t.arena.used()].to_vec();
    t.arena.host[..before.len()].copy_from_slice(&before);
    let bytes_equal = p.accumulate != Accumulate::Fast || p.data == Data::Exact;
    let exact = match bytes_equal {
        true => None,
        false => Some(
            gemm_fast::exact(&a.contract(&p.a), &b.contract(&p.b)).map_err(|e| e.to_string())?,
        ),
    };
    for &provider in providers {
        let room = (t.workspace.at(0), t.workspace.bytes);
        let plan = make(&mut t.arena, true, p.accumulate, provider, room.0, room.1)
            .map_err(|e| format!("the GPU's plan: {e}"))?;
        if provider != 0 && t.cuda.supports_gemm(&plan).is_err() {
            continue;
        }
        let need = t.cuda.gemm_workspace(&plan, false);
        assert!(need <= t.workspace.bytes, "{need} bytes of workspace");
        // No more than it asked for, so that what lies behind would be seen to change.
        let plan = GemmPlan {
            workspace_bytes: need,
            ..plan
        };
        t.arena.upload();
        let fail = |text: String| format!("provider {provider}: {text}");
        t.cuda
            .gemm(&plan, t.stream.raw())
            .map_err(|e| fail(e.to_string()))?;
        t.stream.wait();
        let mut got = t.arena.download();
        let size = p.dtype.size();
        let d_at =
            |i: usize, row: usize, col: usize| d.at + ((i * p.m + row) * stride + col) * size;
        if let Some(exact) = &exact {
            let acc: Vec<f32> = (0..p.m * p.n)
                .map(|i| {
                    let at = d_at(0, i / p.n, i % p.n);
                    f32::from_le_bytes(got[at..at + 4].try_into().expect("four bytes"))
                })
                .collect();
            // FP4 units also cut what lies far below a block's scales, be its codes 0.
            let native = has_fp4_units(t.cuda)
                && a.shape.format == b.shape.format
                && a.shape.format != Format::Bf16;
            let (ca, cb) = (a.contract(&p.a), b.contract(&p.b));
            let allowed = |i: usize, e: &gemm_fast::Exact| {
                let loss = if native {
                    gemm_hardware::alignment_loss(&ca, &cb, i / p.n, i % p.n)
                } else {
                    0.0
                };
                gemm_fast::allowed(p.k, e.magnitude) + loss
            };
            if let Some((i, g, e)) = gemm_fast::first_violation(&acc, exact, allowed) {
                return Err(fail(format!(
                    "[{}, {}] is {g:e}, exactly {e:?}, allowed {:e}",
                    i / p.n,
                    i % p.n,
                    allowed(i, &e)
                )));
            }
        }
        // What is not compared by bytes: D within the bound, and NaN, whose bits are nobody's contract.
        for i in 0..if quantized.is_some() { 0 } else { p.batch } {
            for row in 0..p.m {
                for col in 0..p.n {
                    let at = d_at(i, row, col);
                    let w = &want[at..at + size];
                    if exact.is_some()
                        || (is_nan(p.dtype, w) && is_nan(p.dtype, &got[at..at + size]))
                    {
                        got[at..at + size].copy_from_slice(w);
                    }
                }
            }
        }
        if got != want {
            let at = (0..got.len())
                .find(|i| got[*i] != want[*i])
                .expect("they differ");
            let wrong = (0..got.len()).filter(|i| got[*i] != want[*i]).count();
            let inside = at >= d.at && at < d.at + d.bytes;
            let place = match inside {
                true => {
                    let e = (at - d.at) / size;
                    format!(
                        "D {} [{}, {}]",
                        e / stride / p.m.max(1),
                        e / stride % p.m.max(1),
                        e % stride
                    )
                }
                false => format!("byte {at} of the arena"),
            };
            let show = |x: &[u8]| match (inside, p.dtype) {
                (true, Dtype::F32) => {
                    let e = d.at + (at - d.at) / 4 * 4;
                    format!(
                        "{:e}",
                        f32::from_le_bytes(x[e..e + 4].try_into().expect("four bytes"))
                    )
                }
                _ => format!("{:#04x}", x[at]),
            };
            return Err(fail(format!(
                "{place} is {}, want {}; {wrong} bytes differ",
                show(&got),
                show(&want)
            )));
        }
        match p.accumulate {
            Accumulate::Block => tally.block += 1,
            Accumulate::Hardware => tally.hardware += 1,
            _ => tally.fast += 1,
        }
        if provider != 0 {
            tally.forced[provider as usize - 1] += 1;
        }
    }
    Ok(())
}
