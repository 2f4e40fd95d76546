//! E4M3 (fn), the block scale of NVFP4 (docs/format.md, section 1): bias 7, largest value 448 = 0x7E, 0x7F is NaN, no
//! Inf, subnormal step 2^-9. A scale never has its sign bit set; readers ignore it, as the hardware does.

/// The byte that marks a block with a value that is not finite.
pub const NAN: u8 = 0x7F;
/// The largest value, byte 0x7E.
pub const MAX: f32 = 448.0;

/// Value of a scale byte; the sign bit is ignored.
pub fn decode(byte: u8) -> f32 {
    let exponent = (byte >> 3) & 15;
    let mantissa = (byte & 7) as f32;
    if byte & 0x7F == NAN {
        f32::NAN
    } else if exponent == 0 {
        mantissa * power_of_two(-9)
    } else {
        (8.0 + mantissa) * power_of_two(exponent as i32 - 10)
    }
}

/// Nearest byte of a value that is not negative, ties to even, saturating at 448. NaN gives 0x7F.
pub fn encode(v: f32) -> u8 {
    if v.is_nan() {
        return NAN;
    }
    debug_assert!(v >= 0.0, "a block scale is never negative: {v}");
    if v >= MAX {
        return 0x7E;
    }
    let (byte, fraction) = floor_and_fraction(v);
    byte + (fraction > 0.5 || (fraction == 0.5 && byte % 2 == 1)) as u8
}

/// Largest byte whose value is not above `v`, for 0 <= v < 448, and how far `v` is on the way to the next byte's
/// value, in 0..1. Both are exact.
pub fn floor_and_fraction(v: f32) -> (u8, f32) {
    let exponent = if v < power_of_two(-6) {
        -6
    } else {
        ((v.to_bits() >> 23) & 0xFF) as i32 - 127
    };
    let steps = v / power_of_two(exponent - 3);
    let whole = steps.floor();
    ((((exponent + 6) << 3) + whole as i32) as u8, steps - whole)
}

/// 2^e for the exponents of normal f32 values.
fn power_of_two(e: i32) -> f32 {
    f32::from_bits(((e + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_all_bytes() {
        let known = [
            (0x00, 0.0),
            (0x01, 2f32.powi(-9)),
            (0x07, 7.0 * 2f32.powi(-9)),
            (0x08, 2f32.powi(-6)),
            (0x38, 1.0),
        ];
        for (byte, value) in
            known
                .into_iter()
                .chain([(0x39, 1.125), (0x40, 2.0), (0x66, 56.0), (0x7E, 448.0)])
        {
            assert_eq!(decode(byte), value, "{byte:#x}");
        }
        assert!(decode(0x7F).is_nan() && decode(0xFF).is_nan());
        for byte in 0..0x7Fu8 {
            assert_eq!(encode(decode(byte)), byte);
            assert_eq!(decode(byte | 0x80), decode(byte), "the sign bit is ignored");
        }
    }

    #[test]
    fn midpoints_go_to_the_even_byte_and_one_ulp_decides() {
        for byte in 0..0x7Eu8 {
            let middle = (decode(byte) + decode(byte + 1)) / 2.0;
            assert_eq!(encode(middle), byte + byte % 2, "above {byte:#x}");
            assert_eq!(encode(middle.next_up()), byte + 1);
            assert_eq!(encode(middle.next_down()), byte);
        }
    }

    #[test]
    fn saturates_and_keeps_small_values() {
        for v in [448.0, 449.0, 464.0, 465.0, 1e30, f32::INFINITY] {
            assert_eq!(encode(v), 0x7E, "{v}");
        }
        assert_eq!(encode(2f32.powi(-10)), 0, "a tie with zero");
        assert_eq!(encode(1.5 * 2f32.powi(-10)), 1);
        assert_eq!(encode(f32::from_bits(1)), 0);
        assert_eq!(encode(f32::NAN), NAN);
    }
}
