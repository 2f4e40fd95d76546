//! Groups of tokens on the GPU against the CPU: every byte of the copies; offsets that are no offsets; products
//! (grouped_products.rs); a graph replayed with other offsets.

use nvfp4::cpu::Cpu;
use nvfp4::cuda::Cuda;
use nvfp4::numerics::*;
use nvfp4::plan::grouped_gemm::{self, Ragged};
use nvfp4::plan::quantize::described;
use nvfp4::plan::{
    self, groups, options, Device, GroupedGemmRequest, GroupedQuantizePlan, GroupedQuantizeRequest,
    QuantizeRequest, Quantized, Seed,
};

use super::config::{push_element, random_options, value, Copy, Data, Random, DATA};
use super::device::Stream;
use super::grouped_products::product_once;
use super::side::{Arena, Both, Place, Region};

const ARENA: usize = 24 << 20;

pub fn write<T: std::marker::Copy>(
    arena: &mut Arena,
    at: Region,
    values: &[T],
    bytes: impl Fn(T) -> Vec<u8>,
) {
    let all: Vec<u8> = values.iter().flat_map(|v| bytes(*v)).collect();
    assert_eq!(all.len(), at.bytes);
    arena.host[at.at..][..all.len()].copy_from_slice(&all);
}

pub fn offsets(r: &mut Random, count: usize, most: usize) -> Vec<i64> {
    let mut at = if r.one_in(3) { r.below(20) } else { 0 };
    let mut all = vec![at as i64];
    for _ in 0..count {
        at += match r.below(6) {
            0 | 1 => 0,
            2 => 1,
            3 => r.pick(&[16, 64, 128]),
            _ => r.below(most),
        };
        all.push(at as i64);
    }
    all
}

/// What the GPU makes of any offsets (docs/abi.md, "Groups").
fn sanitized(offsets: &[i64], total: usize) -> Vec<i64> {
    let mut largest = 0;
    offsets
        .iter()
        .map(|o| {
            largest = largest.max(*o);
            largest.min(total as i64)
        })
        .collect()
}

/// A grouped quantize laid out in an arena.
pub struct Call {
    pub rows: usize,
    pub cols: usize,
    pub dtype: Dtype,
    pub x: Region,
    pub offsets: Region,
    pub count: usize,
    pub align: u32,
    pub rowwise: Option<(Options, Place)>,
    pub columnwise: Option<(Options, Place)>,
    pub given: Option<Region>,
    pub nonfinite: Nonfinite,
    pub seed: u64,
    pub origin: (usize, usize),
    pub workspace: Region,
}

impl Call {
    pub fn plan(&self, arena: &mut Arena, cuda: bool) -> Result<GroupedQuantizePlan, String> {
        let given = |arena: &mut Arena| {
            self.given.map_or(std::ptr::null(), |r| {
                arena.pointer::<f32>(cuda, r).cast_const()
            })
        };
        let options = |side: &Option<(Options, Place)>| side.map_or_else(Options::default, |s| s.0);
        let request = GroupedQuantizeRequest {
            quantize: QuantizeRequest {
                rowwise: options(&self.rowwise),
                columnwise: options(&self.columnwise),
                nonfinite: self.nonfinite,
                seed: Seed::Host(self.seed, 3),
                origin_row: self.origin.0 as i64,
                origin_col: self.origin.1 as i64,
                rowwise_amax: given(arena),
                columnwise_amax: given(arena),
                workspace: arena.pointer(cuda, self.workspace),
                workspace_bytes: self.workspace.bytes,
                ..QuantizeRequest::default()
            },
            groups: self.count as i64,
            offsets: arena.pointer(cuda, self.offsets),
            column_align: self.align,
            shape_only: false,
        };
        let x = plan::Matrix::new(
            "x",
            arena.pointer(cuda, self.x),
            self.dtype,
            self.rows as i64,
            self.cols as i64,
            0,
        )
        .expect("a legal matrix");
        let device = if cuda { Device::Cuda } else { Device::Cpu };
        let row = self.rowwise.map(|s| s.1.buffers(arena, cuda));
        let col = self.columnwise.map(|s| s.1.buffers(arena, cuda));
        plan::grouped_quantize::plan(&request, device, x, row.as_ref(), col.as_ref())
            .map_err(|e| format!("the plan says {e}"))
    }
}

/// The columnwise copy's shape.
fn shape(
    o: &Options,
    rows: usize,
    cols: usize,
    count: usize,
    align: u32,
    columnwise: bool,
) -> Quantized {
    let o = options::check("copy", o).expect("legal options");
    let (rows, cols) = match columnwise {
        false => (rows, cols),
        true => {
            let align = groups::column_align(align, o.format, o.hadamard, o.scale_layout);
            (
                cols,
                groups::padded_columns(rows, count, align.expect("legal")),
            )
        }
    };
    Quantized {
        groups: count,
        ..described(&o, rows, cols, columnwise)
    }
}

fn group_options(r: &mut Random) -> Options {
    let mut o = random_options(r);
    o.domain_rows = 0;
    if o.block == Block::TwoD {
        o.rounding = Rounding::Nearest;
    }
    o
}

pub struct Shape {
    pub rows: usize,
    pub cols: usize,
    pub offsets: Vec<i64>,
    pub dtype: Dtype,
    pub data: Data,
    pub poison: u8,
}

#[allow(clippy::too_many_arguments)]
pub fn lay(
    arena: &mut Arena,
    r: &mut Random,
    s: &Shape,
    rowwise: Option<Options>,
    columnwise: Option<Options>,
    align: u32,
    given: bool,
    plain: bool,
) -> Call {
    let count = s.offsets.len() - 1;
    let x = arena.take(s.rows * s.cols * s.dtype.size(), 0, s.poison);
    let mut bytes = Vec::with_capacity(x.bytes);
    for _ in 0..s.rows * s.cols {
        push_element(&mut bytes, s.dtype, value(r, s.data));
    }
    arena.host[x.at..][..x.bytes].copy_from_slice(&bytes);
    let at = arena.take(8 * s.offsets.len(), 0, s.poison);
    write(arena, at, &s.offsets, |v| v.to_le_bytes().to_vec());
    let place = |arena: &mut Arena, r: &mut Random, o: Options, columnwise| {
        let odd = |r: &mut Random, n| if plain { 0 } else { r.below(n) };
        let copy = Copy {
            code_pad: 2 * odd(r, 9),
            scale_pad: odd(r, 5),
            shift: 2 * odd(r, 9),
            ..Copy::new(o)
        };
        let q = shape(&o, s.rows, s.cols, count, align, columnwise);
        (o, Place::new(arena, &copy, &q, s.poison))
    };
    let rowwise = rowwise.map(|o| place(arena, r, o, false));
    let columnwise = columnwise.map(|o| place(arena, r, o, true));
    let given = given.then(|| {
        let at = arena.take(4 * count, 0, s.poison);
        let values: Vec<f32> = (0..count).map(|g| g as f32 * 0.5).collect();
        write(arena, at, &values, |v| v.to_le_bytes().to_vec());
        at
    });
    Call {
        rows: s.rows,
        cols: s.cols,
        dtype: s.dtype,
        x,
        offsets: at,
        count,
        align,
        rowwise,
        columnwise,
        given,
        nonfinite: r.pick(&[Nonfinite::Propagate, Nonfinite::Saturate]),
        seed: r.next(),
        origin: (128 * r.below(3), 128 * r.below(3)),
        workspace: Region::default(),
    }
}

/// Memory of the GPU's own; the CPU leaves it as it is.
pub fn workspace(arena: &mut Arena, bytes: usize) -> Region {
    arena.take(bytes, 0, 0xAB)
}

fn quantize_both(both: &Both, arena: &mut Arena, call: &Call) -> Result<(), String> {
    let fail = |e: nvfp4::Error| e.to_string();
    arena.upload();
    both.cpu
        .grouped_quantize(&call.plan(arena, false)?)
        .map_err(fail)?;
    both.cuda
        .grouped_quantize(&call.plan(arena, true)?, both.stream.raw())
        .map_err(fail)?;
    let side = |what: &str, s: &Option<(Options, Place)>| {
        s.map_or(vec![], |(_, p)| {
            vec![
                (format!("{what} codes"), p.codes),
                (format!("{what} scales"), p.scales),
                (format!("{what} amax"), p.amax),
            ]
        })
    };
    let mut names = side("rowwise", &call.rowwise);
    names.extend(side("columnwise", &call.columnwise));
    both.compare(arena, call.workspace, &names)
}

/// One random grouped quantize; `wild`: offsets that are none.
fn quantize_once(both: &Both, arena: &mut Arena, r: &mut Random, wild: bool) -> Result<(), String> {
    let poison = r.pick(&[0xFF, 0]);
    arena.reset(poison);
    let most = if r.one_in(8) { 300 } else { 8 };
    let count = 1 + r.below(most);
    let good = offsets(r, count, if count > 20 { 4 } else { 90 });
    let rows = good[count] as usize + r.pick(&[0, 0, 5, 130]);
    let s = Shape {
        rows,
        cols: r.pick(&[1, 8, 17, 64, 128, 160, 257]),
        offsets: good,
        dtype: r.pick(&[Dtype::Bf16, Dtype::Bf16, Dtype::F16, Dtype::F32]),
        data: r.pick(&DATA),
        poison,
    };
    let which = 1 + r.below(3);
    let mut o = (group_options(r), group_options(r));
    let mut data = s.data;
    if [o.0, o.1]
        .iter()
        .any(|o| o.format == Format::Bf16 && o.hadamard != 0)
        && matches!(data, Data::Bad | Data::Huge)
    {
        data = Data::Normal;
    }
    if which == 3 && r.one_in(2) {
        o.1 = o.0;
    }
    let s = Shape { data, ..s };
    let align = if which & 2 != 0 {
        r.pick(&[0, 0, 128])
    } else {
        0
    };
    let given = r.one_in(6);
    let plain = r.one_in(2);
    let mut call = lay(
        arena,
        r,
        &s,
        (which & 1 != 0).then_some(o.0),
        (which & 2 != 0).then_some(o.1),
        align,
        given,
        plain,
    );
    let bytes = both
        .cuda
        .grouped_quantize_workspace(&call.plan(arena, false)?);
    call.workspace = workspace(arena, bytes);
    let what = format!(
        "{:?} of {rows}, {} columns, {o:?}, copies {which}",
        s.offsets, s.cols
    );
    if wild {
        // The CPU runs with what the GPU is to make of them.
        let bad: Vec<i64> = (0..=count)
            .map(|_| {
                r.pick(&[
                    -7,
                    0,
                    3,
                    rows as i64 / 2,
                    rows as i64 + 9,
                    i64::MIN,
                    i64::MAX,
                ])
            })
            .collect();
        write(arena, call.offsets, &bad, |v| v.to_le_bytes().to_vec());
        arena.upload();
        let wild = arena.host[call.offsets.at..][..call.offsets.bytes].to_vec();
        write(arena, call.offsets, &sanitized(&bad, rows), |v| {
            v.to_le_bytes().to_vec()
        });
        both.cpu
            .grouped_quantize(&call.plan(arena, false)?)
            .map_err(|e| e.to_string())?;
        arena.host[call.offsets.at..][..wild.len()].copy_from_slice(&wild);
        both.cuda
            .grouped_quantize(&call.plan(arena, true)?, both.stream.raw())
            .map_err(|e| e.to_string())?;
        return both
            .compare(arena, call.workspace, &[])
            .map_err(|e| format!("{e}; offsets {bad:?}, {what}"));
    }
    quantize_both(both, arena, &call).map_err(|e| format!("{e}; {what}"))
}

/// Quantize and both products captured once, replayed with other tokens and offsets in the same memory.
fn graph(both: &Both, arena: &mut Arena) -> Result<usize, String> {
    let fail = |e: nvfp4::Error| e.to_string();
    let mut r = Random::new(99);
    arena.reset(0xFF);
    let (tokens, cols, count) = (300, 96, 5);
    let o = Options {
        hadamard: 16,
        rounding: Rounding::Stochastic,
        ..Options::default()
    };
    let s = Shape {
        rows: tokens,
        cols,
        offsets: vec![0; count + 1],
        dtype: Dtype::Bf16,
        data: Data::Normal,
        poison: 0xFF,
    };
    let mut call = lay(arena, &mut r, &s, None, Some(o), 0, false, true);
    call.nonfinite = Nonfinite::Propagate;
    let d = arena.take(4 * count * cols * cols, 0, 0xFF);
    let bytes = both
        .cuda
        .grouped_quantize_workspace(&call.plan(arena, false)?);
    call.workspace = workspace(arena, 2 * bytes);
    let product = |arena: &mut Arena, cuda: bool, q: &Quantized| {
        let request = GroupedGemmRequest {
            ragged: Ragged::K,
            accumulate: Accumulate::Block,
            groups: count as i64,
            offsets: arena.pointer(cuda, call.offsets),
            workspace: arena.pointer(cuda, call.workspace),
            workspace_bytes: call.workspace.bytes,
            ..GroupedGemmRequest::default()
        };
        let data = arena.pointer(cuda, d);
        let d =
            plan::Matrix::new("d", data, Dtype::F32, cols as i64, cols as i64, 0).expect("legal");
        let device = if cuda { Device::Cuda } else { Device::Cpu };
        grouped_gemm::plan(&request, device, *q, *q, None, d).map_err(|e| e.to_string())
    };
    let quantize = call.plan(arena, true)?;
    let q = quantize.columnwise.expect("wanted").out;
    let wgrad = product(arena, true, &q)?;
    let captured = both.stream.capture(|| {
        both.cuda
            .grouped_quantize(&quantize, both.stream.raw())
            .expect("capture works");
        both.cuda
            .grouped_gemm(&wgrad, both.stream.raw())
            .expect("capture works");
    });
    let rounds = [
        vec![0, 0, 17, 17, 200, 300],
        vec![5, 6, 7, 150, 150, 151],
        vec![0, 0, 0, 0, 0, 0],
        vec![0, 60, 120, 180, 240, 300],
    ];
    for (round, offsets) in rounds.iter().enumerate() {
        write(arena, call.offsets, offsets, |v: i64| {
            v.to_le_bytes().to_vec()
        });
        let mut bytes = Vec::new();
        for _ in 0..tokens * cols {
            push_element(&mut bytes, s.dtype, value(&mut r, Data::Normal));
        }
        arena.host[call.x.at..][..bytes.len()].copy_from_slice(&bytes);
        arena.upload();
        let host = call.plan(arena, false)?;
        both.cpu.grouped_quantize(&host).map_err(fail)?;
        let q = host.columnwise.expect("wanted").out;
        let p = product(arena, false, &q)?;
        both.cpu.grouped_gemm(&p).map_err(fail)?;
        captured.launch(&both.stream);
        both.compare(arena, call.workspace, &[("D".into(), d)])
            .map_err(|e| format!("replay {round} with {offsets:?}: {e}"))?;
    }
    Ok(rounds.len())
}

pub fn run(cuda: &Cuda, count: usize, seed: u64) -> Result<String, String> {
    let both = Both {
        cpu: Cpu::new(1),
        cuda,
        stream: Stream::new(),
    };
    let mut arena = Arena::new(ARENA);
    let mut r = Random::new(seed);
    let replays = graph(&both, &mut arena)?;
    let (mut block, mut fast, mut wild) = (0, 0, 0);
    for i in 0..count {
        let bad = i % 8 == 7;
        quantize_once(&both, &mut arena, &mut r, bad).map_err(|e| format!("quantize {i}: {e}"))?;
        wild += bad as usize;
        let (b, f) =
            product_once(&both, &mut arena, &mut r).map_err(|e| format!("product {i}: {e}"))?;
        (block, fast) = (block + b, fast + f);
    }
    Ok(format!(
        "{count} grouped quantize calls ({wild} with bad offsets), {block} products in BLOCK and {fast} in FAST, {replays} \
         replays of a graph with other offsets"
    ))
}
