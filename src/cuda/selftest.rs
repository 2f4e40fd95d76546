//! The self test of a CUDA context: every operation on small matrices against the CPU backend, and every kernel that uses
//! instructions of some chips' own, certified or not. Allocates and waits.

use super::certify::{self, State};
use super::driver::{Relaxed, Stream};
use super::gemm::trial::product;
use super::quantize_trial::copies;
use super::trial::{elements, matrix, shape, Place, Side, Span, Twin};
use super::{dequantize, hadamard, scales, transpose, Cuda};
use crate::numerics::known::{data, variants};
use crate::numerics::{layout, Accumulate, Block, Dtype, Format, Nonfinite, Options, ScaleLayout};
use crate::plan::quantize::plan as quantize_plan;
use crate::plan::{self, HadamardRequest, QuantizeRequest, Seed, Source};
use crate::Result;

type Body = fn(&Cuda, &mut Twin) -> Result<Option<String>>;

const CHECKS: [(&str, Body); 6] = [
    ("quantize", quantize_check),
    ("dequantize", dequantize_check),
    ("transpose", transpose_check),
    ("hadamard", hadamard_check),
    ("swizzle", swizzle_check),
    ("gemm", gemm_check),
];

/// One check and what came of it: what there is to say of one that passed, or what is wrong.
pub type Check = (&'static str, std::result::Result<&'static str, String>);

pub fn run(cuda: &Cuda) -> Result<Vec<Check>> {
    let _current = cuda.device.enter()?;
    let _relaxed = Relaxed::new();
    let mut twin = Twin::new(4 << 20)?;
    let mut checks = Vec::new();
    for (name, body) in CHECKS {
        let result = match body(cuda, &mut twin) {
            Ok(None) => Ok("ok"),
            Ok(Some(how)) => Err(format!("differs: {how}")),
            Err(error) => Err(format!("failed: {error}")),
        };
        checks.push((name, result));
    }
    for (kernel, state) in certify::all(cuda, true)?.into_iter().enumerate() {
        let result = match state {
            State::Certified | State::Agrees => Ok("ok"),
            State::Absent => Ok("not on this device or in this build"),
            State::Differs(how) => Err(format!("disabled, it differs: {how}")),
        };
        checks.push((certify::name(kernel), result));
    }
    Ok(checks)
}

/// Both copies, of any shape by the general kernels and of an aligned one by the fast ones where the options allow.
fn quantize_check(cuda: &Cuda, t: &mut Twin) -> Result<Option<String>> {
    for (name, o) in variants() {
        for (dtype, size) in [(Dtype::F32, (37, 150)), (Dtype::Bf16, (48, 160))] {
            // The transform of a NaN is one of any payload.
            let special = o.format != Format::Bf16 || o.hadamard == 0;
            let values = data(size.0, size.1, special);
            if let Some(how) = copies(cuda, t, &values, size, dtype, Some(o), Some(o))? {
                return Ok(Some(format!("{name}, {dtype:?}: {how}")));
            }
        }
    }
    Ok(None)
}

const ROWS: usize = 37;
const COLS: usize = 150;

/// A copy in both images, made by the CPU.
fn copy(t: &mut Twin, o: &Options) -> Result<Place> {
    let x = t.put(
        "x",
        &elements(Dtype::F32, data(ROWS, COLS, false).into_iter()),
    );
    let place = Place::take(t, shape(o, ROWS, COLS, false)?, ["codes", "scales", "amax"]);
    let source = Source::Matrix(matrix(t, Side::Host, x, Dtype::F32, ROWS, COLS)?);
    let request = QuantizeRequest {
        rowwise: *o,
        nonfinite: Nonfinite::Propagate,
        seed: Seed::Host(7, 3),
        ..QuantizeRequest::default()
    };
    let buffers = place.buffers(t, Side::Host);
    let plan = quantize_plan(&request, Side::Host.device(), source, Some(&buffers), None)?;
    t.cpu.quantize(&plan)?;
    Ok(place)
}

fn dequantize_check(cuda: &Cuda, t: &mut Twin) -> Result<Option<String>> {
    for (name, o) in variants().into_iter().filter(|(_, o)| o.hadamard == 0) {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            t.reset();
            let from = copy(t, &o)?;
            let out = t.take("the values", ROWS * COLS * dtype.size());
            let make = |t: &mut Twin, side| {
                let out = matrix(t, side, out, dtype, ROWS, COLS)?;
                plan::dequantize::plan(from.bound(t, side)?, false, out)
            };
            let how = t.run(
                (dtype == Dtype::F32).then_some(out),
                |t| {
                    let plan = make(t, Side::Host)?;
                    t.cpu.dequantize(&plan)
                },
                |t, stream| dequantize::run(cuda, &make(t, Side::Device)?, stream),
            )?;
            if let Some(how) = how {
                return Ok(Some(format!("{name}, to {dtype:?}: {how}")));
            }
        }
    }
    Ok(None)
}

fn transpose_check(cuda: &Cuda, t: &mut Twin) -> Result<Option<String>> {
    let o = Options {
        block: Block::TwoD,
        ..Options::default()
    };
    t.reset();
    let from = copy(t, &o)?;
    let names = ["codes of the transpose", "its scales", "its amax"];
    let to = Place::take(t, shape(&o, COLS, ROWS, false)?, names);
    let make = |t: &mut Twin, side| {
        let out = to.buffers(t, side);
        plan::transpose::plan(from.bound(t, side)?, ScaleLayout::Linear, &out)
    };
    t.run(
        None,
        |t| {
            let plan = make(t, Side::Host)?;
            t.cpu.transpose(&plan)
        },
        |t, stream| transpose::run(cuda, &make(t, Side::Device)?, stream),
    )
}

fn hadamard_check(cuda: &Cuda, t: &mut Twin) -> Result<Option<String>> {
    for (n, inverse) in [(16, false), (32, true), (64, false), (128, true)] {
        t.reset();
        let x = t.put("x", &elements(Dtype::F32, data(3, 256, false).into_iter()));
        let y = t.take("the transform", x.bytes);
        let make = |t: &mut Twin, side| {
            let request = HadamardRequest {
                n,
                inverse,
                ..HadamardRequest::default()
            };
            let mut of = |s: Span| matrix(t, side, s, Dtype::F32, 3, 256);
            plan::hadamard::plan(&request, of(x)?, of(y)?)
        };
        let how = t.run(
            Some(y),
            |t| {
                let plan = make(t, Side::Host)?;
                t.cpu.hadamard(&plan)
            },
            |t, stream| hadamard::run(cuda, &make(t, Side::Device)?, stream),
        )?;
        if let Some(how) = how {
            return Ok(Some(format!("of {n}: {how}")));
        }
    }
    Ok(None)
}

fn swizzle_check(cuda: &Cuda, t: &mut Twin) -> Result<Option<String>> {
    let (rows, cols) = (130usize, 5usize);
    t.reset();
    let bytes: Vec<u8> = (0..rows * cols).map(|i| (i % 251) as u8 + 1).collect();
    let linear = t.put("the linear scales", &bytes);
    let there = t.take(
        "the swizzled scales",
        layout::swizzle(&bytes, rows, cols).len(),
    );
    let back = t.take("the scales again linear", bytes.len());
    let make = |t: &mut Twin, side, linear: Span| {
        plan::scales::plan(
            rows as i64,
            cols as i64,
            t.pointer(side, linear),
            0,
            t.pointer(side, there),
            there.bytes,
        )
    };
    t.run(
        None,
        |t| {
            let plans = (make(t, Side::Host, linear)?, make(t, Side::Host, back)?);
            t.cpu.swizzle(&plans.0)?;
            t.cpu.unswizzle(&plans.1)
        },
        |t, stream: Stream| {
            scales::swizzle(cuda, &make(t, Side::Device, linear)?, stream)?;
            scales::unswizzle(cuda, &make(t, Side::Device, back)?, stream)
        },
    )
}

/// The portable kernels; those of a chip's own follow by themselves.
fn gemm_check(cuda: &Cuda, t: &mut Twin) -> Result<Option<String>> {
    use Format::{Bf16, Mxfp4, Nvfp4};
    for formats in [(Nvfp4, Nvfp4), (Mxfp4, Mxfp4), (Bf16, Nvfp4), (Bf16, Bf16)] {
        for accumulate in [Accumulate::Block, Accumulate::Fast] {
            let how = product(cuda, t, 4, formats, (67, 133, 150), accumulate)?;
            let how = how.unwrap_or_else(|| Some("the portable kernels refuse it".into()));
            if let Some(how) = how {
                let (a, b) = formats;
                return Ok(Some(format!("{a:?} x {b:?}, {accumulate:?}: {how}")));
            }
        }
    }
    Ok(None)
}
