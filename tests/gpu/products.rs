//! Which products are tested: a grid that meets every kernel and the edges of its tiles, and random ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use nvfp4::cuda::Cuda;
use nvfp4::numerics::*;
use nvfp4::plan::quantize::described;
use nvfp4::plan::{self, options, Buffers, GemmRequest};

use super::config::Random;
use super::device::{self, Memory};
use super::gemm::{run, Bench, Data, Product, Side, Tally};

const ARENA: usize = 48 << 20;
const WORKSPACE: usize = 40 << 20;

const SHAPES: [(usize, usize, usize); 17] = [
    (1, 1, 1),
    (1, 3, 17),
    (5, 7, 0),
    (16, 64, 128),
    (3, 200, 384),
    (16, 130, 1024),
    (9, 300, 2944),
    (64, 128, 64),
    (65, 129, 96),
    (128, 256, 128),
    (77, 130, 300),
    (129, 257, 33),
    (256, 256, 256),
    (300, 520, 384),
    (130, 64, 1000),
    (0, 5, 16),
    (257, 70, 640),
];

fn side(format: Format, swizzled: bool, plain: bool) -> Side {
    Side {
        options: Options {
            format,
            chain: if plain && format == Format::Nvfp4 {
                Chain::Single
            } else {
                Chain::Te
            },
            scale_layout: if swizzled {
                ScaleLayout::Swizzled
            } else {
                ScaleLayout::Linear
            },
            ..Options::default()
        },
        code_pad: 0,
        scale_pad: 0,
        shift: 0,
    }
}

fn product(m: usize, n: usize, k: usize, a: Side, b: Side, accumulate: Accumulate) -> Product {
    Product {
        m,
        n,
        k,
        a,
        b,
        accumulate,
        data: Data::Any,
        batch: 1,
        epilogue: false,
        activation: Activation::None,
        dtype: Dtype::F32,
        c_dtype: Dtype::F32,
        d_pad: 0,
        d_options: None,
        poison: 0xFF,
        key: 1,
    }
}

const PAIRS: [(Format, Format); 6] = [
    (Format::Nvfp4, Format::Nvfp4),
    (Format::Mxfp4, Format::Mxfp4),
    (Format::Bf16, Format::Nvfp4),
    (Format::Nvfp4, Format::Bf16),
    (Format::Bf16, Format::Mxfp4),
    (Format::Bf16, Format::Bf16),
];

pub fn grid() -> Vec<Product> {
    let mut all = Vec::new();
    for (i, (m, n, k)) in SHAPES.into_iter().enumerate() {
        for (fa, fb) in PAIRS {
            for accumulate in [Accumulate::Fast, Accumulate::Block, Accumulate::Hardware] {
                if accumulate == Accumulate::Hardware && !is_fp4_pair(fa, fb) {
                    continue;
                }
                let swizzled = (all.len() / 2) % 2 == 1;
                // D is the accumulator itself, so that the bound can be told.
                let p = product(
                    m,
                    n,
                    k,
                    side(fa, swizzled, true),
                    side(fb, swizzled, true),
                    accumulate,
                );
                all.push(Product {
                    key: i as u64 + 3,
                    ..p
                });
                // Everything that can follow it.
                let p = product(
                    m,
                    n,
                    k,
                    side(fa, !swizzled, false),
                    side(fb, swizzled, false),
                    accumulate,
                );
                all.push(Product {
                    data: if accumulate == Accumulate::Fast {
                        Data::Exact
                    } else {
                        Data::Wild
                    },
                    epilogue: true,
                    activation: [
                        Activation::None,
                        Activation::Gelu,
                        Activation::Silu,
                        Activation::Relu2,
                    ][i % 4],
                    dtype: [Dtype::F32, Dtype::Bf16, Dtype::F16][i % 3],
                    c_dtype: [Dtype::F32, Dtype::Bf16, Dtype::F16][i / 2 % 3],
                    d_pad: i % 4,
                    batch: 1 + i % 3,
                    poison: 0,
                    key: i as u64 + 77,
                    ..p
                });
            }
        }
    }
    // A quantized D; rows that share an amax.
    for (i, o) in [
        Options::default(),
        Options {
            rounding: Rounding::Stochastic,
            scale_layout: ScaleLayout::Swizzled,
            ..Options::default()
        },
        Options {
            format: Format::Mxfp4,
            ..Options::default()
        },
        Options {
            domain_rows: 16,
            hadamard: 16,
            ..Options::default()
        },
    ]
    .into_iter()
    .enumerate()
    {
        for (m, n, k) in [(48, 80, 128), (130, 260, 256), (0, 32, 32), (7, 33, 48)] {
            let mut p = product(
                m,
                n,
                k,
                side(Format::Nvfp4, i % 2 == 0, false),
                side(Format::Nvfp4, false, false),
                Accumulate::Block,
            );
            p.a.options.domain_rows = [0, 1, 16, 128][i];
            p.b.options.domain_rows = [32, 0, 1, 0][i];
            p.d_options = Some(o);
            p.epilogue = i % 2 == 1;
            all.push(p);
        }
    }
    all
}

/// A plain product in mode HARDWARE, all of it aligned.
pub fn fp4(m: usize, n: usize, k: usize) -> Product {
    let nv = || side(Format::Nvfp4, true, true);
    product(m, n, k, nv(), nv(), Accumulate::Hardware)
}

/// Products whose shapes, alignment and epilogue cuBLASLt takes.
pub fn random_for_lt(r: &mut Random) -> Product {
    let format = r.pick(&[Format::Nvfp4, Format::Nvfp4, Format::Mxfp4]);
    let plain = r.one_in(2);
    let (m, n, k) = (
        1 + r.below(200),
        16 * (1 + r.below(12)),
        128 * (1 + r.below(4)),
    );
    let k = if r.one_in(3) { k - 96 } else { k };
    let (a, b) = (
        side(format, r.one_in(2), plain),
        side(format, r.one_in(2), plain),
    );
    Product {
        data: if plain { Data::Any } else { Data::Exact },
        dtype: if plain {
            Dtype::F32
        } else {
            r.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16])
        },
        key: r.next(),
        ..product(m, n, k, a, b, Accumulate::Fast)
    }
}

/// cuBLASLt's FP4 product: used where there are FP4 units, refused by its heuristic alone where there are none.
pub fn lt(cuda: &Cuda, products: &[Product]) -> Result<(String, usize), String> {
    let has_units = cuda.name().contains("(sm_1");
    match lt_takes(cuda) {
        Err(why) if why.contains("libcublasLt") => return Ok((format!("not run: {why}"), 0)),
        Err(why) if has_units || !why.contains("heuristic has no algorithm") => return Err(why),
        Ok(()) if !has_units => return Err("provider 6 is taken without FP4 units".into()),
        _ => {}
    }
    many(cuda, products)
}

fn lt_takes(cuda: &Cuda) -> Result<(), String> {
    let text = |e: nvfp4::Error| e.to_string();
    let (m, n, k) = (64, 96, 128);
    let memory = Memory::new(1 << 16);
    let operand = |rows| {
        let o =
            options::check("operand", &side(Format::Nvfp4, true, true).options).map_err(text)?;
        let buffers = Buffers {
            codes: memory.at(0),
            codes_bytes: rows * k / 2,
            scales: memory.at(1 << 14),
            scales_bytes: 1024,
            amax: std::ptr::null_mut(),
            amax_count: 0,
            code_stride: 0,
            scale_stride: 0,
        };
        described(&o, rows, k, false)
            .bind("operand", &buffers)
            .map_err(text)
    };
    let request = GemmRequest {
        accumulate: Accumulate::Fast,
        provider: 6,
        ..GemmRequest::default()
    };
    let d = plan::Matrix::new("d", memory.at(1 << 15), Dtype::Bf16, m as i64, n as i64, 0)
        .map_err(text)?;
    let plan = plan::gemm::plan(
        &request,
        plan::Device::Cuda,
        operand(m)?,
        operand(n)?,
        None,
        Some(d),
    )
    .map_err(text)?;
    cuda.supports_gemm(&plan).map_err(text)
}

fn is_fp4_pair(a: Format, b: Format) -> bool {
    a == b && a != Format::Bf16
}

/// A product that FP4 units take.
pub fn random_fp4(r: &mut Random) -> Product {
    loop {
        let p = random(r);
        if is_fp4_pair(p.a.options.format, p.b.options.format) {
            let accumulate = if r.one_in(4) && p.accumulate == Accumulate::Fast {
                Accumulate::Fast
            } else {
                Accumulate::Hardware
            };
            if r.one_in(4) {
                let d_options = Options {
                    chain: r.pick(&[Chain::Te, Chain::Div6, Chain::Single]),
                    scale_layout: r.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]),
                    rounding: if r.one_in(4) {
                        Rounding::Stochastic
                    } else {
                        Rounding::Nearest
                    },
                    range_16_17: r.one_in(4),
                    ..Options::default()
                };
                return Product {
                    accumulate: Accumulate::Hardware,
                    batch: 1,
                    dtype: Dtype::F32,
                    d_options: Some(d_options),
                    ..p
                };
            }
            return Product { accumulate, ..p };
        }
    }
}

pub fn random(r: &mut Random) -> Product {
    let size = |r: &mut Random| match r.below(4) {
        0 => r.below(20),
        1 => 16 * r.below(20),
        _ => 1 + r.below(300),
    };
    let (m, n) = (size(r), size(r));
    let k = if r.one_in(3) {
        128 * r.below(5)
    } else {
        size(r)
    };
    let (fa, fb) = PAIRS[r.below(PAIRS.len())];
    let accumulate = r.pick(&[Accumulate::Fast, Accumulate::Block]);
    let data = match accumulate {
        Accumulate::Block => r.pick(&[Data::Any, Data::Wild, Data::Exact]),
        _ => r.pick(&[Data::Any, Data::Exact]),
    };
    let plain = accumulate == Accumulate::Fast && data != Data::Exact;
    let mut any = |format| {
        let aligned = r.one_in(2);
        let mut s = side(format, r.one_in(2), plain || r.one_in(4));
        if !aligned {
            (s.code_pad, s.scale_pad, s.shift) = (2 * r.below(9), r.below(5), 2 * r.below(9));
        }
        if format == Format::Nvfp4 && !plain {
            s.options.domain_rows = r.pick(&[0, 0, 1, 16, 48]);
            s.options.range_16_17 = r.one_in(5);
            if s.options.chain == Chain::Single {
                s.options.domain_rows = 0;
            }
        }
        if format == Format::Mxfp4 && !plain {
            s.options.scale_rule = r.pick(&[ScaleRule::Floor, ScaleRule::EncodeCentric]);
        }
        s
    };
    let (a, b) = (any(fa), any(fb));
    Product {
        data,
        batch: if r.one_in(3) && !plain {
            1 + r.below(3)
        } else {
            1
        },
        epilogue: !plain && r.one_in(2),
        activation: r.pick(&[
            Activation::None,
            Activation::Gelu,
            Activation::Silu,
            Activation::Relu2,
        ]),
        dtype: if plain {
            Dtype::F32
        } else {
            r.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16])
        },
        c_dtype: r.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16]),
        d_pad: r.below(4),
        poison: r.pick(&[0, 0xFF]),
        key: r.next(),
        ..product(m, n, k, a, b, accumulate)
    }
}

/// All products, spread over threads with a stream each.
pub fn many(cuda: &Cuda, products: &[Product]) -> Result<(String, usize), String> {
    let next = AtomicUsize::new(0);
    let failures: Mutex<Vec<(usize, String)>> = Mutex::default();
    let sum: Mutex<Tally> = Mutex::default();
    let threads = std::thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(8);
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                device::enter().expect("entered before");
                let mut t = Bench::new(cuda, ARENA, WORKSPACE);
                let mut tally = Tally::default();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(p) = products.get(i) else { break };
                    let call = std::panic::AssertUnwindSafe(|| run(&mut t, p, &mut tally));
                    let result =
                        std::panic::catch_unwind(call).unwrap_or_else(|_| Err("a panic".into()));
                    if let Err(text) = result {
                        failures.lock().expect("not poisoned").push((i, text));
                    }
                }
                let mut all = sum.lock().expect("not poisoned");
                all.block += tally.block;
                all.fast += tally.fast;
                all.hardware += tally.hardware;
                all.refused += tally.refused;
                for (a, b) in all.forced.iter_mut().zip(tally.forced) {
                    *a += b;
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("not poisoned");
    failures.sort();
    for (i, text) in failures.iter().take(12) {
        println!("  #{i} {:?}\n    {text}", products[*i]);
    }
    let tally = sum.into_inner().expect("not poisoned");
    match failures.len() {
        0 => Ok((
            format!(
                "{} products, {} BLOCK, {} FAST and {} HARDWARE runs ({} refused), by candidate {:?}",
                products.len(),
                tally.block,
                tally.fast,
                tally.hardware,
                tally.refused,
                tally.forced
            ),
            tally.total(),
        )),
        n => Err(format!("{n} of {} products", products.len())),
    }
}
