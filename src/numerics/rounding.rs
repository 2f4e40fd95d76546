//! Rounding of one value: to a code with random bits (docs/format.md, section 7), and to the 16-bit float types.

use super::philox::{philox4x32_10, split};
use super::{e2m1, Dtype};

/// Byte of a random word that serves element 4w + i, byte 0 the lowest: the order of the hardware instruction
/// `cvt.rs.satfinite.e2m1x4`, read from the PTX ISA text.
pub const SR_BYTE_ORDER: [u32; 4] = [0, 2, 1, 3];

/// Key of one copy's random bits. The bits of an element depend on this and on its global row and column only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    pub seed: u64,
    /// Below 2^62.
    pub offset: u64,
    /// The copy is the transposed one: it draws other bits than the rowwise copy.
    pub columnwise: bool,
}

impl Draw {
    /// The four words that serve elements 16*group .. 16*group + 15 of a row (global coordinates).
    pub fn words(&self, row: u64, group: u64) -> [u32; 4] {
        let [offset_low, offset_high] = split(self.offset);
        let [row_low, row_high] = split(row);
        let top = (self.columnwise as u32) << 31;
        philox4x32_10(
            split(self.seed),
            [
                group as u32,
                row_low,
                offset_low,
                (offset_high ^ row_high) | top,
            ],
        )
    }

    /// The eight random bits of element (row, col), global coordinates.
    pub fn byte(&self, row: u64, col: u64) -> u32 {
        byte_of(&self.words(row, col / 16), (col % 16) as usize)
    }
}

/// The eight random bits of element `i` (0..16) of a group whose words are given.
pub fn byte_of(words: &[u32; 4], i: usize) -> u32 {
    (words[i / 4] >> (8 * SR_BYTE_ORDER[i % 4])) & 0xFF
}

/// Stochastic code of `v` with random bits `r` in 0..256: away from zero iff floor(256 * fraction) + r >= 256. The
/// result is always one of the two neighbours, and a value on the grid never moves. Clips at 6; the sign is kept.
pub fn stochastic(v: f32, r: u32) -> u8 {
    if v.is_nan() {
        return 7;
    }
    let a = v.abs().min(e2m1::MAX);
    let low = e2m1::floor_code(a);
    let magnitude = if low == 7 {
        7
    } else {
        let lo = e2m1::decode(low);
        let step = e2m1::decode(low + 1) - lo;
        // Exact: a - lo is (a and lo are within a factor of two, or lo is 0), the step is a power of two.
        let steps = (256.0 * ((a - lo) / step)).floor() as u32;
        low + (steps + r >= 256) as u8
    };
    magnitude | e2m1::sign_bit(v)
}

/// bfloat16 bits of `v`, nearest even; a NaN becomes the quiet NaN 0x7FC0 with its sign.
pub fn bf16_bits(v: f32) -> u16 {
    let bits = v.to_bits();
    if v.is_nan() {
        return (bits >> 16) as u16 & 0x8000 | 0x7FC0;
    }
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// Value of bfloat16 bits.
pub fn bf16_value(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// `v` rounded to bfloat16.
pub fn round_bf16(v: f32) -> f32 {
    bf16_value(bf16_bits(v))
}

/// IEEE binary16 bits of `v`, nearest even, overflowing to Inf.
pub fn f16_bits(v: f32) -> u16 {
    half::f16::from_f32(v).to_bits()
}

/// Value of binary16 bits.
pub fn f16_value(bits: u16) -> f32 {
    half::f16::from_bits(bits).to_f32()
}

/// `v` cast once to `dtype` and back.
pub fn round_to(dtype: Dtype, v: f32) -> f32 {
    match dtype {
        Dtype::F32 => v,
        Dtype::Bf16 => round_bf16(v),
        Dtype::F16 => f16_value(f16_bits(v)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_the_grid_never_moves() {
        for code in 0..16u8 {
            for r in 0..256 {
                assert_eq!(stochastic(e2m1::decode(code), r), code);
            }
        }
    }

    #[test]
    fn counts_over_all_bytes_are_the_fraction() {
        for (v, low, ups) in [
            (0.25, 0, 128),
            (0.1, 0, 51),
            (2.5, 4, 128),
            (4.5, 6, 64),
            (5.99, 6, 254),
            (1e-40, 0, 0),
        ] {
            let up = (0..256).filter(|&r| stochastic(v, r) == low + 1).count();
            let stay = (0..256).filter(|&r| stochastic(v, r) == low).count();
            assert_eq!((up, up + stay), (ups, 256), "{v}");
            assert_eq!(
                (0..256)
                    .filter(|&r| stochastic(-v, r) == (low + 1) | 8)
                    .count(),
                ups,
                "-{v}"
            );
        }
    }

    #[test]
    fn clips_and_keeps_signs() {
        for r in [0, 255] {
            assert_eq!(
                [
                    stochastic(7.0, r),
                    stochastic(f32::NEG_INFINITY, r),
                    stochastic(-0.0, r)
                ],
                [7, 15, 8]
            );
        }
    }

    #[test]
    fn the_two_copies_and_far_rows_draw_other_bits() {
        let row = Draw {
            seed: 7,
            offset: 3,
            columnwise: false,
        };
        let col = Draw {
            columnwise: true,
            ..row
        };
        assert_ne!(row.words(0, 0), col.words(0, 0));
        assert_ne!(row.words(0, 0), row.words(1 << 32, 0));
        assert_eq!(row.words(5, 2), philox4x32_10([7, 0], [2, 5, 3, 0]));
        assert_eq!(col.words(5, 2), philox4x32_10([7, 0], [2, 5, 3, 1 << 31]));
        let words = row.words(5, 2);
        assert_eq!(
            row.byte(5, 32 + 6),
            words[1] >> 8 & 0xFF,
            "element 6 is i = 2 of word 1: byte 1"
        );
    }

    #[test]
    fn bf16_agrees_with_the_half_crate() {
        for i in 0..=0xFFFFu32 {
            for low in [0u32, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF] {
                let v = f32::from_bits(i << 16 | low);
                if !v.is_nan() {
                    assert_eq!(bf16_bits(v), half::bf16::from_f32(v).to_bits(), "{v:e}");
                } else {
                    assert!(round_bf16(v).is_nan());
                }
            }
        }
    }
}
