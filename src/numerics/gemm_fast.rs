//! FAST names a bound, not bits (docs/format.md, section 10): the exact accumulator, the bound, and a comparison that
//! says where a result breaks it. The tests of every backend use these.

use super::gemm::{check_operands, inner_value};
use super::matrix::Quantized;
use crate::Result;

/// An accumulator as the exact sum, and the sum of magnitudes that bounds are measured in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    /// sum_k a_k b_k without outer scale; NaN or Inf where an element is.
    pub sum: f64,
    /// sum_k |a_k b_k|.
    pub magnitude: f64,
}

/// Exact accumulators of all elements of A B^T, row-major [M, N].
pub fn exact(a: &Quantized, b: &Quantized) -> Result<Vec<Exact>> {
    check_operands(a, b)?;
    let values = |q: &Quantized| -> Vec<f64> {
        (0..q.rows * q.cols)
            .map(|i| inner_value(q, i / q.cols, i % q.cols) as f64)
            .collect()
    };
    let (va, vb, k) = (values(a), values(b), a.cols);
    let mut out = Vec::with_capacity(a.rows * b.rows);
    for i in 0..a.rows {
        for j in 0..b.rows {
            out.push(dot(&va[i * k..][..k], &vb[j * k..][..k]));
        }
    }
    Ok(out)
}

/// Dot product of f32 values held in f64. Each product is exact; the sum carries its rounding errors along (TwoSum),
/// so that the result is the exact sum rounded to about 2^-53 whatever cancels.
pub fn dot(x: &[f64], y: &[f64]) -> Exact {
    let (mut sum, mut low, mut magnitude) = (0f64, 0f64, 0f64);
    for (x, y) in x.iter().zip(y) {
        let p = x * y;
        magnitude += p.abs();
        let next = sum + p;
        let part = next - sum;
        let error = (sum - (next - part)) + (p - part);
        sum = next;
        low += if error.is_finite() { error } else { 0.0 };
    }
    Exact {
        sum: sum + low,
        magnitude,
    }
}

/// What FAST promises: |acc - exact| <= ceil(K/16) * 2^-22 * sum_k |a_k b_k|.
pub fn bound(k: usize, magnitude: f64) -> f64 {
    k.div_ceil(16) as f64 * 2f64.powi(-22) * magnitude
}

/// What our own FAST kernels are held to in tests: max(2^-18, K * 2^-28) * sum_k |a_k b_k|.
pub fn test_bound(k: usize, magnitude: f64) -> f64 {
    2f64.powi(-18).max(k as f64 * 2f64.powi(-28)) * magnitude
}

/// The smaller of the two: what a FAST accumulator must keep in a test.
pub fn allowed(k: usize, magnitude: f64) -> f64 {
    bound(k, magnitude).min(test_bound(k, magnitude))
}

/// First accumulator that is further from the exact one than allowed(index, exact), as (index, got, exact). NaN must meet
/// NaN.
pub fn first_violation(
    got: &[f32],
    exact: &[Exact],
    allowed: impl Fn(usize, &Exact) -> f64,
) -> Option<(usize, f32, Exact)> {
    assert_eq!(got.len(), exact.len());
    got.iter().zip(exact).enumerate().find_map(|(i, (g, e))| {
        let holds = if e.sum.is_finite() {
            (*g as f64 - e.sum).abs() <= allowed(i, e)
        } else {
            g.is_nan() || (e.sum.is_infinite() && *g as f64 == e.sum)
        };
        (!holds).then_some((i, *g, *e))
    })
}

/// ||got - exact|| / ||exact||, the figure that a FAST result shares with the bf16 product of the same operands. NaN if
/// any value is not finite, so that a comparison with it fails.
pub fn relative_l2(got: &[f32], exact: &[Exact]) -> f64 {
    assert_eq!(got.len(), exact.len());
    let error: f64 = got
        .iter()
        .zip(exact)
        .map(|(g, e)| (*g as f64 - e.sum).powi(2))
        .sum();
    let norm: f64 = exact.iter().map(|e| e.sum * e.sum).sum();
    (error / norm).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellation_is_exact() {
        let x = [1e20, 1.0, -1e20, 2f64.powi(-30)];
        assert_eq!(dot(&x, &[1.0; 4]).sum, 1.0 + 2f64.powi(-30));
        assert_eq!(dot(&x, &[1.0; 4]).magnitude, 2e20 + 1.0);
        assert!(dot(&[f64::NAN], &[1.0]).sum.is_nan());
        assert_eq!(dot(&[f64::INFINITY, 1.0], &[1.0, 1.0]).sum, f64::INFINITY);
    }

    #[test]
    fn relative_error_of_a_norm() {
        let e = [
            Exact {
                sum: 3.0,
                magnitude: 3.0,
            },
            Exact {
                sum: 4.0,
                magnitude: 4.0,
            },
        ];
        assert_eq!(relative_l2(&[3.0, 5.0], &e), 0.2);
        assert!(relative_l2(&[f32::NAN, 4.0], &e).is_nan());
    }

    #[test]
    fn violations_are_found() {
        let e = [Exact {
            sum: 1.0,
            magnitude: 1.0,
        }];
        let first_violation = |k, got: &[f32], exact: &[Exact]| {
            first_violation(got, exact, |_, e| allowed(k, e.magnitude))
        };
        assert_eq!(first_violation(16, &[1.0 + 2f32.powi(-22)], &e), None);
        assert!(first_violation(16, &[1.0 + 2f32.powi(-21)], &e).is_some());
        assert!(first_violation(1 << 20, &[1.0 + 2f32.powi(-7)], &e).is_some());
        assert!(first_violation(16, &[f32::NAN], &e).is_some());
        let nan = [Exact {
            sum: f64::NAN,
            magnitude: f64::NAN,
        }];
        assert!(first_violation(16, &[0.0], &nan).is_some());
        assert_eq!(first_violation(16, &[f32::NAN], &nan), None);
    }
}
