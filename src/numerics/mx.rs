//! Block scales of MXFP4: four rules that choose the exponent (docs/format.md, section 4).

use super::{e8m0, ScaleRule};

/// A tile takes half the ENCODE_CENTRIC scale iff fl(b / scale) is below this (option `half_scale`).
pub const HALF_SCALE_BELOW: f32 = 0.87;

/// Scale byte of a block whose largest magnitude is `b`, finite and not negative. `half_scale` is the option for
/// ENCODE_CENTRIC tiles.
pub fn block_scale(rule: ScaleRule, half_scale: bool, b: f32) -> u8 {
    if b == 0.0 {
        return 0;
    }
    let (exponent, mantissa) = split(b);
    match rule {
        ScaleRule::Floor => e8m0::encode(exponent - 2),
        ScaleRule::Ceil => e8m0::encode(exponent - 2 + (mantissa > 1.5) as i32),
        // Two significant bits: the mantissa becomes 1, 1.5 or 2, and the tie at 1.75 goes to 2.
        ScaleRule::Even => e8m0::encode(exponent - 2 + (mantissa >= 1.75) as i32),
        ScaleRule::EncodeCentric => {
            let byte = e8m0::encode(exponent + (mantissa > 1.0) as i32);
            byte - (half_scale && byte > 0 && b * e8m0::reciprocal(byte) < HALF_SCALE_BELOW) as u8
        }
    }
}

/// (e, m) with b = m * 2^e and 1 <= m < 2, for any positive finite b, subnormals included.
fn split(b: f32) -> (i32, f64) {
    let wide = b as f64;
    let exponent = (wide.to_bits() >> 52) as i32 - 1023;
    (exponent, wide / 2f64.powi(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ScaleRule::*;

    #[test]
    fn maxima_around_one_binade() {
        let maxima = [4.0, 5.0, 6.0, 6.0000005, 6.5, 7.0, 7.9, 8.0];
        assert_eq!(
            maxima.map(|b| block_scale(Floor, false, b)),
            [127, 127, 127, 127, 127, 127, 127, 128]
        );
        assert_eq!(
            maxima.map(|b| block_scale(Ceil, false, b)),
            [127, 127, 127, 128, 128, 128, 128, 128]
        );
        assert_eq!(
            maxima.map(|b| block_scale(Even, false, b)),
            [127, 127, 127, 127, 127, 128, 128, 128]
        );
        assert_eq!(
            maxima.map(|b| block_scale(EncodeCentric, false, b)),
            [129, 130, 130, 130, 130, 130, 130, 130]
        );
    }

    #[test]
    fn the_scale_comes_from_the_f32_value() {
        assert_eq!(
            [7.9999995, 3.9999998].map(|b| block_scale(Floor, false, b)),
            [127, 126]
        );
    }

    #[test]
    fn exponents_clamp_at_both_ends() {
        for rule in [Floor, Ceil, Even, EncodeCentric] {
            assert_eq!(block_scale(rule, false, 0.0), 0);
            assert_eq!(block_scale(rule, true, f32::from_bits(1)), 0);
            assert!(block_scale(rule, false, f32::MAX) <= 254);
        }
        assert_eq!(block_scale(Floor, false, f32::MAX), 252);
        assert_eq!(block_scale(EncodeCentric, false, f32::MAX), 254);
        assert_eq!(block_scale(Floor, false, f32::MIN_POSITIVE), 0);
    }

    #[test]
    fn half_scale_below_087() {
        let b = 0.87f32;
        assert_eq!(block_scale(EncodeCentric, true, b), 127);
        assert_eq!(block_scale(EncodeCentric, true, b.next_down()), 126);
        assert_eq!(block_scale(EncodeCentric, false, b.next_down()), 127);
        assert_eq!(block_scale(EncodeCentric, true, 1.0), 127);
    }
}
