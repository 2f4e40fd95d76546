//! E8M0, the block scale of MXFP4 (docs/format.md, section 1): a power of two, 2^(byte - 127). There is no zero; 255
//! is NaN.

/// The byte that marks a block with a value that is not finite.
pub const NAN: u8 = 255;

/// Value of a scale byte. Byte 0 is 2^-127, a subnormal f32, never zero.
pub fn decode(byte: u8) -> f32 {
    match byte {
        NAN => f32::NAN,
        0 => f32::from_bits(0x0040_0000),
        _ => f32::from_bits((byte as u32) << 23),
    }
}

/// Byte of 2^exponent; the exponent is clamped to -127..=127.
pub fn encode(exponent: i32) -> u8 {
    (exponent.clamp(-127, 127) + 127) as u8
}

/// 1 / decode(byte), exactly: 2^(127 - byte).
pub fn reciprocal(byte: u8) -> f32 {
    match byte {
        NAN => f32::NAN,
        _ => decode(254 - byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_middle() {
        assert_eq!(decode(0), 2f32.powi(-127));
        assert_eq!(decode(1), 2f32.powi(-126));
        assert_eq!(decode(127), 1.0);
        assert_eq!(decode(254), 2f32.powi(127));
        assert!(decode(255).is_nan());
        assert_eq!(
            [
                encode(-300),
                encode(-127),
                encode(0),
                encode(127),
                encode(128)
            ],
            [0, 0, 127, 254, 254]
        );
    }

    #[test]
    fn reciprocals_are_exact() {
        for byte in 0..255u8 {
            assert_eq!(decode(byte) as f64 * reciprocal(byte) as f64, 1.0, "{byte}");
        }
    }
}
