//! Unbiased gradients by MS-EDEN (docs/format.md, section 9; idea: Quartet II): nearest codes of a freshly rotated
//! block of 128, and scale bytes corrected stochastically so that the block is unbiased over rotations.

use super::e4m3;

/// What the largest magnitude of a block is mapped to: fl(6 / fl(fl(17/16) * fl(0.93))).
pub const VAL_MAX: f32 = 6.0 / (1.0625 * 0.93);
/// C of the outer scale: fl(fl(255.99) * VAL_MAX).
pub const C: f32 = 255.99 * VAL_MAX;
/// Length of the transform that must come first, and of the blocks that share a correction.
pub const TRANSFORM: usize = 128;

/// Correction of a transformed block `y` that decodes to `decoded`: sum y*y / sum y*decoded in f32, in order, one
/// accumulator each; 1 where the denominator is not positive or either sum is not finite.
pub fn correction(y: &[f32], decoded: &[f32]) -> f32 {
    let mut numerator = 0f32;
    let mut denominator = 0f32;
    for (a, b) in y.iter().zip(decoded) {
        numerator += a * a;
        denominator += a * b;
    }
    if denominator > 0.0 && numerator.is_finite() && denominator.is_finite() {
        numerator / denominator
    } else {
        1.0
    }
}

/// Scale byte times the correction, rounded stochastically to E4M3 with `word`, word 0 of the 16-block's counter.
/// Saturates at 448; 0 and NaN stay.
pub fn correct_scale(byte: u8, correction: f32, word: u32) -> u8 {
    if byte == 0 || byte == e4m3::NAN {
        return byte;
    }
    let v = e4m3::decode(byte) * correction;
    if v >= e4m3::MAX {
        return 0x7E;
    }
    let (low, fraction) = e4m3::floor_and_fraction(v);
    low + ((16_777_216.0 * fraction).floor() as u32 > word >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants() {
        assert!((VAL_MAX - 6.0721).abs() < 1e-4);
        assert!((C - 1554.4).abs() < 0.1);
        // The constants are single operations in f32, whatever the compiler folds.
        let (a, b) = (
            std::hint::black_box(1.0625f32),
            std::hint::black_box(0.93f32),
        );
        assert_eq!(VAL_MAX, 6.0 / (a * b));
        assert_eq!(C, std::hint::black_box(255.99f32) * VAL_MAX);
    }

    #[test]
    fn exact_data_needs_no_correction() {
        let y: Vec<f32> = (0..128).map(|i| (i % 7) as f32).collect();
        assert_eq!(correction(&y, &y), 1.0);
        assert_eq!(correction(&y, &vec![0.0; 128]), 1.0);
        assert_eq!(correction(&[f32::NAN; 128], &y), 1.0);
        assert_eq!(correction(&[f32::MAX; 128], &y), 1.0);
    }

    #[test]
    fn scales_move_to_a_neighbour_as_often_as_they_should() {
        for byte in 1..0x7Fu8 {
            assert_eq!(
                correct_scale(byte, 1.0, 0),
                byte,
                "a scale on the grid stays"
            );
        }
        assert_eq!(
            correct_scale(0x38, 1.03125, 0x3FFF_FFFF),
            0x39,
            "a quarter of the way: word < 2^30 goes up"
        );
        assert_eq!(correct_scale(0x38, 1.03125, 0x4000_0000), 0x38);
        assert_eq!(correct_scale(0x38, 0.99, !0), 0x37);
        assert_eq!(correct_scale(0x7E, 1.1, !0), 0x7E);
        assert_eq!(correct_scale(0x01, 0.5, 0), 0x01);
        assert_eq!(correct_scale(0x01, 0.5, !0), 0x00);
        assert_eq!(
            [correct_scale(0, 2.0, 0), correct_scale(0x7F, 2.0, 0)],
            [0, 0x7F]
        );
    }
}
