//! Decoding of a whole matrix (docs/format.md, section 2).

use super::matrix::Quantized;
use super::rounding::round_to;
use super::{Dtype, Format};

/// The copy's elements in its own orientation and with a transform's padding, each cast once to `dtype` (the results
/// are values of that type). bf16 outputs are clamped to the largest finite bf16; fp16 overflows to Inf.
pub fn dequantize(q: &Quantized, dtype: Dtype) -> Vec<f32> {
    let mut out = Vec::with_capacity(q.rows * q.cols);
    for r in 0..q.rows {
        for c in 0..q.cols {
            out.push(output(q.options.format, q.value(r, c), dtype));
        }
    }
    out
}

/// A decoded value in the output type.
pub fn output(format: Format, v: f32, dtype: Dtype) -> f32 {
    if dtype == Dtype::Bf16 && format != Format::Bf16 {
        round_to(dtype, v.clamp(-dtype.max(), dtype.max()))
    } else {
        round_to(dtype, v)
    }
}

#[cfg(test)]
mod tests {
    use super::super::matrix::Matrix;
    use super::super::quantize::{quantize, Call};
    use super::super::Options;
    use super::*;

    #[test]
    fn output_types_saturate_or_overflow_as_stated() {
        let x = [f32::MAX; 16];
        let q = quantize(&Matrix::f32(&x, 1, 16), &Call::default()).unwrap();
        assert!(dequantize(&q, Dtype::Bf16)
            .iter()
            .all(|v| *v == Dtype::Bf16.max()));
        assert!(dequantize(&q, Dtype::F16)
            .iter()
            .all(|v| *v == f32::INFINITY));
        assert!(dequantize(&q, Dtype::F32).iter().all(|v| v.is_finite()));
    }

    #[test]
    fn pass_through_keeps_bf16_values() {
        let x = [1.0, -0.0, 1.0 + 1.0 / 256.0, f32::INFINITY, f32::MAX];
        let options = Options {
            format: Format::Bf16,
            ..Options::default()
        };
        let q = quantize(
            &Matrix::f32(&x, 1, 5),
            &Call {
                options,
                ..Call::default()
            },
        )
        .unwrap();
        assert_eq!(
            dequantize(&q, Dtype::F32),
            [1.0, -0.0, 1.0, f32::INFINITY, f32::INFINITY]
        );
        assert_eq!(q.codes.len(), 10);
    }
}
