//! The library's own check: small inputs through every operation of a context, compared with the scalar contract bit
//! for bit.

use crate::context::Context;
use crate::numerics::gemm::{gemm as gemm_reference, Epilogue};
use crate::numerics::known::{data, variants};
use crate::numerics::quantize::{quantize as quantize_reference, Call};
use crate::numerics::{dequantize as dequantize_reference, hadamard, layout, matrix, rounding};
use crate::numerics::{Accumulate, Block, Dtype, Format, Options, ScaleLayout, Signs};
use crate::plan::scales;
use crate::recipe::{Recipe, Role};
use crate::safe::*;
use crate::{Error, Result};

/// One check and what came of it.
pub struct Check {
    pub name: &'static str,
    /// What there is to say of one that passed.
    pub result: std::result::Result<&'static str, String>,
}

type Outcome = std::result::Result<(), Failure>;
type Body = fn(&Context) -> Outcome;

/// A call that failed, or a result that differs.
enum Failure {
    Call(Error),
    Differs(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Call(error)
    }
}

const CHECKS: [(&str, Body); 9] = [
    ("quantize rowwise", quantize_rowwise),
    ("quantize columnwise", quantize_columnwise),
    ("amax", amax_check),
    ("dequantize", dequantize_check),
    ("transpose", transpose_check),
    ("hadamard", hadamard_check),
    ("swizzle", swizzle_check),
    ("gemm", gemm_check),
    ("linear", linear_check),
];

/// Runs all checks. Fails only if the context cannot be checked at all.
pub fn run(ctx: &Context) -> Result<Vec<Check>> {
    #[cfg(feature = "cuda")]
    if let Some(cuda) = ctx.as_cuda() {
        let checks = cuda.selftest()?;
        return Ok(checks
            .into_iter()
            .map(|(name, result)| Check { name, result })
            .collect());
    }
    Ok(CHECKS
        .iter()
        .map(|(name, body)| Check {
            name,
            result: match body(ctx) {
                Ok(()) => Ok("ok"),
                Err(Failure::Call(error)) => Err(format!("failed: {error}")),
                Err(Failure::Differs(what)) => Err(format!("differs: {what}")),
            },
        })
        .collect())
}

const ROWS: usize = 37;
const COLS: usize = 150;

fn same_bytes(what: &str, have: &[u8], want: &[u8]) -> Outcome {
    if have.len() != want.len() {
        return Err(Failure::Differs(format!(
            "{what}: {} bytes, want {}",
            have.len(),
            want.len()
        )));
    }
    match (0..have.len()).find(|i| have[*i] != want[*i]) {
        Some(i) => Err(Failure::Differs(format!(
            "{what}: byte {i} is {:#04x}, want {:#04x}",
            have[i], want[i]
        ))),
        None => Ok(()),
    }
}

/// Equal bits, all NaN alike.
fn same_values(what: &str, have: &[f32], want: &[f32]) -> Outcome {
    let equal = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    match (0..want.len()).find(|i| have.len() != want.len() || !equal(have[*i], want[*i])) {
        Some(i) => Err(Failure::Differs(format!(
            "{what}: value {i} is {:?}, want {:e}",
            have.get(i),
            want[i]
        ))),
        None => Ok(()),
    }
}

fn same_copy(what: &str, have: &QuantizedTensor, want: &matrix::Quantized) -> Outcome {
    same_values(&format!("{what}, amax"), have.amax(), &want.amax)?;
    same_bytes(&format!("{what}, scales"), have.scales(), &want.scales)?;
    same_bytes(&format!("{what}, codes"), have.codes(), &want.codes)
}

fn quantize_one(ctx: &Context, columnwise: bool) -> Outcome {
    let values = data(ROWS, COLS, true);
    let x = Tensor::from_f32(ROWS, COLS, values.clone())?;
    for (name, options) in variants() {
        let call = Quantize {
            rowwise: (!columnwise).then_some(options),
            columnwise: columnwise.then_some(options),
            seed: 7,
            offset: 3,
            ..Quantize::default()
        };
        let (rowwise, transposed) = quantize_with(ctx, &x, &call)?;
        let want = quantize_reference(
            &matrix::Matrix::f32(&values, ROWS, COLS),
            &Call {
                options,
                columnwise,
                seed: 7,
                offset: 3,
                ..Call::default()
            },
        )?;
        let have = if columnwise { transposed } else { rowwise };
        same_copy(name, &have.expect("asked for"), &want)?;
    }
    Ok(())
}

fn quantize_rowwise(ctx: &Context) -> Outcome {
    quantize_one(ctx, false)
}

fn quantize_columnwise(ctx: &Context) -> Outcome {
    quantize_one(ctx, true)
}

fn amax_check(ctx: &Context) -> Outcome {
    let values = data(ROWS, COLS, true);
    let x = Tensor::from_f32(ROWS, COLS, values.clone())?;
    for hadamard in [0, 32] {
        let options = Options {
            hadamard,
            domain_rows: 16,
            ..Options::default()
        };
        let call = Call {
            options,
            ..Call::default()
        };
        let want =
            crate::numerics::quantize::amax(&matrix::Matrix::f32(&values, ROWS, COLS), &call)?;
        same_values("row groups", &amax(ctx, &x, &options)?, &want)?;
    }
    Ok(())
}

/// A copy of `values`, here and in the contract.
fn pair(
    ctx: &Context,
    options: &Options,
    rows: usize,
    values: &[f32],
) -> std::result::Result<(QuantizedTensor, matrix::Quantized), Failure> {
    let cols = values.len() / rows;
    let x = Tensor::from_f32(rows, cols, values.to_vec())?;
    let have = quantize(ctx, &x, options)?;
    let call = Call {
        options: *options,
        ..Call::default()
    };
    Ok((
        have,
        quantize_reference(&matrix::Matrix::f32(values, rows, cols), &call)?,
    ))
}

fn dequantize_check(ctx: &Context) -> Outcome {
    for (name, options) in variants().into_iter().filter(|(_, o)| o.hadamard == 0) {
        let (have, want) = pair(ctx, &options, ROWS, &data(ROWS, COLS, true))?;
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let out = dequantize(ctx, &have, dtype)?.to_f32();
            same_values(name, &out, &dequantize_reference::dequantize(&want, dtype))?;
        }
    }
    Ok(())
}

fn transpose_check(ctx: &Context) -> Outcome {
    let options = Options {
        block: Block::TwoD,
        ..Options::default()
    };
    let values = data(ROWS, COLS, false);
    let (have, _) = pair(ctx, &options, ROWS, &values)?;
    let turned = transpose(ctx, &have, ScaleLayout::Linear)?;
    let call = Call {
        options,
        columnwise: true,
        ..Call::default()
    };
    let want = quantize_reference(&matrix::Matrix::f32(&values, ROWS, COLS), &call)?;
    same_copy("16x16", &turned, &want)
}

fn hadamard_check(ctx: &Context) -> Outcome {
    for n in [16u32, 32, 64, 128] {
        let values = data(3, 256, false);
        let x = Tensor::from_f32(3, 256, values.clone())?;
        let words = hadamard::sign_words(Signs::Default, n as usize, 0, 0);
        for inverse in [false, true] {
            let call = Hadamard {
                n,
                inverse,
                ..Hadamard::default()
            };
            let mut want = values.clone();
            for block in want.chunks_exact_mut(n as usize) {
                if inverse {
                    hadamard::inverse(block, &words);
                } else {
                    hadamard::forward(block, &words);
                }
            }
            same_values(
                "along rows",
                &crate::safe::hadamard(ctx, &x, &call)?.to_f32(),
                &want,
            )?;
        }
    }
    Ok(())
}

fn swizzle_check(ctx: &Context) -> Outcome {
    let (rows, cols) = (130, 5);
    let mut linear: Vec<u8> = (0..rows * cols).map(|i| (i % 251) as u8 + 1).collect();
    let want = layout::swizzle(&linear, rows, cols);
    let mut have = vec![0xFF; want.len()];
    let (r, c) = (rows as i64, cols as i64);
    let plan = scales::plan(r, c, linear.as_mut_ptr(), 0, have.as_mut_ptr(), have.len())?;
    ctx.swizzle(&plan, std::ptr::null_mut())?;
    same_bytes("swizzled", &have, &want)?;
    let mut back = vec![0; linear.len()];
    let plan = scales::plan(r, c, back.as_mut_ptr(), 0, have.as_mut_ptr(), have.len())?;
    ctx.unswizzle(&plan, std::ptr::null_mut())?;
    same_bytes("linear again", &back, &linear)
}

fn gemm_check(ctx: &Context) -> Outcome {
    for (name, options) in variants() {
        let (m, n, k) = (19, 23, 150);
        let (a, ra) = pair(ctx, &options, m, &data(m, k, false))?;
        let (b, rb) = pair(ctx, &options, n, &data(n, k, false))?;
        let fp4 = options.format != Format::Bf16;
        for mode in [Accumulate::Block, Accumulate::Hardware] {
            if mode == Accumulate::Hardware && !fp4 {
                continue;
            }
            let call = Gemm {
                accumulate: mode,
                alpha: 0.5,
                dtype: Dtype::Bf16,
                ..Gemm::default()
            };
            let epilogue = Epilogue {
                alpha: 0.5,
                ..Epilogue::default()
            };
            let want: Vec<f32> = gemm_reference(mode, &ra, &rb, &epilogue)?
                .into_iter()
                .map(rounding::round_bf16)
                .collect();
            same_values(
                &format!("{name}, {mode:?}"),
                &gemm(ctx, &a, &b, &call)?.to_f32(),
                &want,
            )?;
        }
    }
    Ok(())
}

fn linear_check(ctx: &Context) -> Outcome {
    for name in ["nvfp4", "nvfp4_no_rht", "mxfp4", "bf16"] {
        let layer = Layer {
            recipe: Recipe::named(name)?,
            seed: 5,
            offset: 6,
        };
        let (tokens, inputs, outputs) = (21, 40, 18);
        let (xs, dys) = (data(tokens, inputs, false), data(tokens, outputs, false));
        let x = Tensor::from_f32(tokens, inputs, xs.clone())?;
        let dy = Tensor::from_f32(tokens, outputs, dys.clone())?;
        let operand = |role: Role, values: &[f32]| {
            let options = *layer.recipe.options(role, true);
            let call = Call {
                options,
                columnwise: true,
                seed: 5,
                offset: 6 | (role as u64) << 60,
                ..Call::default()
            };
            quantize_reference(
                &matrix::Matrix::f32(values, tokens, values.len() / tokens),
                &call,
            )
        };
        let (a, b) = (
            operand(Role::Gradient, &dys)?,
            operand(Role::Activation, &xs)?,
        );
        let want = gemm_reference(Accumulate::Block, &a, &b, &Epilogue::default())?;
        same_values(name, &linear_wgrad(ctx, &layer, &dy, &x)?.to_f32(), &want)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_passes() {
        for threads in [1, 3] {
            for check in run(&Context::cpu(threads)).unwrap() {
                assert_eq!(check.result, Ok("ok"), "{}", check.name);
            }
        }
    }

    #[test]
    fn a_difference_is_told() {
        let Err(Failure::Differs(text)) = same_bytes("codes", &[1, 2], &[1, 3]) else {
            panic!("equal");
        };
        assert_eq!(text, "codes: byte 1 is 0x02, want 0x03");
        assert!(same_values("d", &[1.0], &[-1.0]).is_err());
        assert!(same_values("d", &[0.0], &[-0.0]).is_err());
        assert!(same_values("d", &[], &[1.0]).is_err());
        assert!(same_values("d", &[f32::NAN], &[f32::NAN]).is_ok());
    }
}
