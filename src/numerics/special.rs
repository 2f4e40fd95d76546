//! Values that are not finite, and the largest magnitude (docs/format.md, section 3).

use super::{Dtype, Nonfinite};

/// What the policy makes of one element of type `dtype`, before a transform and again after it.
pub fn apply(policy: Nonfinite, dtype: Dtype, v: f32) -> f32 {
    match policy {
        Nonfinite::Propagate => v,
        Nonfinite::Saturate if v.is_nan() => 0.0,
        Nonfinite::Saturate if v.is_infinite() => dtype.max().copysign(v),
        Nonfinite::Saturate => v,
    }
}

/// Largest magnitude over the finite elements; 0 if there are none.
pub fn amax(values: impl IntoIterator<Item = f32>) -> f32 {
    values
        .into_iter()
        .filter(|v| v.is_finite())
        .fold(0.0, |m, v| m.max(v.abs()))
}

/// Largest magnitude of a block, or None if it holds a value that is not finite: such a block gets the NaN scale.
pub fn block_amax(block: &[f32]) -> Option<f32> {
    let mut m = 0f32;
    for v in block {
        if !v.is_finite() {
            return None;
        }
        m = m.max(v.abs());
    }
    Some(m)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amax_is_over_finite_elements() {
        assert_eq!(amax([1.0, -3.0, f32::NAN, f32::INFINITY]), 3.0);
        assert_eq!(amax([f32::NAN]), 0.0);
        assert_eq!(amax([-0.0]).to_bits(), 0);
        assert_eq!(block_amax(&[1.0, f32::NEG_INFINITY]), None);
        assert_eq!(block_amax(&[1e-45, -0.0]), Some(1e-45));
    }

    #[test]
    fn saturate_uses_the_input_types_largest_value() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            assert_eq!(
                apply(Nonfinite::Saturate, dtype, f32::INFINITY),
                dtype.max()
            );
            assert_eq!(
                apply(Nonfinite::Saturate, dtype, f32::NEG_INFINITY),
                -dtype.max()
            );
            assert_eq!(apply(Nonfinite::Saturate, dtype, f32::NAN).to_bits(), 0);
            assert_eq!(
                apply(Nonfinite::Saturate, dtype, -1e30),
                -1e30,
                "a finite value stays"
            );
            assert!(apply(Nonfinite::Propagate, dtype, f32::NAN).is_nan());
        }
    }
}
