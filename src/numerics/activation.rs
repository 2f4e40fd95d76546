//! Activations of a GEMM's epilogue as stated sequences of f32 operations (docs/format.md, section 10): the same bits
//! everywhere. No step may be contracted into an FMA.
//!
//! Measured against f64 over a dense sweep of f32 (tests below): `exp_negative` within 0.9 ulp; SiLU within 3 ulp for
//! x >= -2. Below that, and for GELU, the relative error grows with |t| (one ulp of t is |t| * 2^-24 of exp(t)); the
//! absolute error stays below 2e-7 * (1 + |x| / 2).

use super::Activation;

/// Below this t the sigmoid counts as 0, above its negative as 1.
const EXP_LIMIT: f32 = 87.0;
const LOG2_E: f32 = f32::from_bits(0x3FB8_AA3B); // 1.44269502
/// ln 2 in two parts; k * LN2_HIGH is exact for |k| < 2^9.
const LN2_HIGH: f32 = f32::from_bits(0x3F31_7200); // 0.693145751953125
const LN2_LOW: f32 = f32::from_bits(0x35BF_BE8E); // 1.42860677e-6
/// (exp(r) - 1 - r) / r^2 on |r| <= ln(2)/2, lowest power first; minimax of our own, relative error 3.1e-9.
const EXP_POLYNOMIAL: [f32; 5] = [
    f32::from_bits(0x3EFF_FFFE), // 0.4999999404
    f32::from_bits(0x3E2A_AA49), // 0.1666652113
    f32::from_bits(0x3D2A_AC79), // 0.0416683890
    f32::from_bits(0x3C09_1D10), // 0.0083687454
    f32::from_bits(0x3AB5_11E6), // 0.0013814538
];
/// fl(2 * sqrt(2 / pi)).
const GELU_LINEAR: f32 = f32::from_bits(0x3FCC_422A); // 1.59576917
/// fl(2 * sqrt(2 / pi) * 0.044715).
const GELU_CUBIC: f32 = f32::from_bits(0x3D92_2279); // 0.0713548139

/// The named function.
pub fn apply(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::None => x,
        Activation::Gelu => gelu(x),
        Activation::Silu => silu(x),
        Activation::Relu2 => relu2(x),
    }
}

/// GELU in its tanh form, x * sigmoid(2u) with u = sqrt(2/pi) * (x + 0.044715 x^3).
pub fn gelu(x: f32) -> f32 {
    times_sigmoid(x, x * (GELU_LINEAR + GELU_CUBIC * (x * x)))
}

/// SiLU (swish): x * sigmoid(x).
pub fn silu(x: f32) -> f32 {
    times_sigmoid(x, x)
}

/// max(x, 0) squared; NaN stays.
pub fn relu2(x: f32) -> f32 {
    if x <= 0.0 {
        0.0
    } else {
        x * x
    }
}

/// x * sigmoid(t) for a t with the sign of x: x * (1 / (1 + z)) or x * (z / (1 + z)), z = exp(-|t|). Where t < -87 the
/// result is -0, which also serves x = -Inf.
fn times_sigmoid(x: f32, t: f32) -> f32 {
    if t < -EXP_LIMIT {
        return -0.0;
    }
    let z = if t > EXP_LIMIT {
        0.0
    } else {
        exp_negative(-t.abs())
    };
    let numerator = if t < 0.0 { z } else { 1.0 };
    x * (numerator / (1.0 + z))
}

/// exp(w) for -87 <= w <= 0: w = k ln 2 + r, then 2^k * (1 + (r + r^2 p(r))).
pub fn exp_negative(w: f32) -> f32 {
    let k = (w * LOG2_E).round_ties_even();
    let r = (w - k * LN2_HIGH) - k * LN2_LOW;
    let [c0, c1, c2, c3, c4] = EXP_POLYNOMIAL;
    let p = (((c4 * r + c3) * r + c2) * r + c1) * r + c0;
    let fraction = 1.0 + (r + (r * r) * p);
    let power = f32::from_bits(((k as i32 + 127) as u32) << 23);
    fraction * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ulps(got: f32, exact: f64) -> f64 {
        let ulp = 2f64.powi(exact.abs().log2().floor() as i32 - 23);
        (got as f64 - exact).abs() / ulp
    }

    fn gelu64(x: f64) -> f64 {
        0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
    }

    /// Every f32 with both signs whose bits are a multiple of a prime.
    fn sweep() -> impl Iterator<Item = f32> {
        (0..=u32::MAX)
            .step_by(4099)
            .map(f32::from_bits)
            .filter(|x| x.is_finite())
    }

    #[test]
    fn exp_is_close() {
        let worst = sweep()
            .filter(|w| (-87.0..=0.0).contains(w))
            .map(|w| ulps(exp_negative(w), (w as f64).exp()))
            .fold(0.0, f64::max);
        println!("exp: {worst:.3} ulp");
        assert!(worst < 0.9, "{worst}");
    }

    #[test]
    fn silu_and_gelu_are_close() {
        let (mut silu_ulp, mut silu_abs, mut gelu_abs) = (0f64, 0f64, 0f64);
        for x in sweep() {
            let wide = x as f64;
            let exact = wide / (1.0 + (-wide).exp());
            if (-2.0..1e30).contains(&x) && x.abs() > 1e-30 {
                silu_ulp = silu_ulp.max(ulps(silu(x), exact));
            }
            if x.abs() < 8.0 {
                silu_abs = silu_abs.max((silu(x) as f64 - exact).abs() / (1.0 + wide.abs() / 2.0));
                gelu_abs =
                    gelu_abs.max((gelu(x) as f64 - gelu64(wide)).abs() / (1.0 + wide.abs() / 2.0));
            }
        }
        println!("silu: {silu_ulp:.3} ulp, {silu_abs:.3e}; gelu: {gelu_abs:.3e}");
        assert!(silu_ulp < 3.0, "{silu_ulp}");
        assert!(silu_abs < 2e-7 && gelu_abs < 2e-7, "{silu_abs} {gelu_abs}");
    }

    #[test]
    fn ends_are_exact() {
        for f in [gelu, silu] {
            assert_eq!(f(0.0).to_bits(), 0);
            assert_eq!(f(-0.0).to_bits(), (-0.0f32).to_bits());
            assert_eq!(f(f32::INFINITY), f32::INFINITY);
            assert_eq!(f(f32::NEG_INFINITY).to_bits(), (-0.0f32).to_bits());
            assert_eq!(f(f32::MIN).to_bits(), (-0.0f32).to_bits());
            assert_eq!(f(1e20), 1e20);
            assert!(f(f32::NAN).is_nan());
        }
        assert_eq!(
            [relu2(-3.0), relu2(3.0), relu2(f32::INFINITY)],
            [0.0, 9.0, f32::INFINITY]
        );
        assert!(relu2(f32::NAN).is_nan());
    }

    #[test]
    fn constants_are_the_rounded_numbers() {
        let a = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
        assert_eq!(GELU_LINEAR, a as f32);
        assert_eq!(GELU_CUBIC, (a * 0.044715) as f32);
        assert_eq!(LOG2_E, std::f64::consts::LOG2_E as f32);
        assert_eq!(LN2_LOW, (std::f64::consts::LN_2 - LN2_HIGH as f64) as f32);
        assert_eq!(LN2_HIGH.to_bits() & 0x1FF, 0, "nine spare bits");
    }
}
