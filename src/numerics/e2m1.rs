//! E2M1, the 4-bit element (docs/format.md, section 1): sign, two exponent bits, one mantissa bit. No NaN, no Inf.

/// Value of each code; bit 3 is the sign, code 8 is -0.
pub const VALUES: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// The largest magnitude.
pub const MAX: f32 = 6.0;

/// Value of a code; only the low four bits count.
pub const fn decode(code: u8) -> f32 {
    VALUES[(code & 15) as usize]
}

/// Twice the value of a code, an integer in -12..=12 (-0 gives 0): dot products of codes are exact in integers.
pub const fn decode_halves(code: u8) -> i32 {
    const HALVES: [i32; 8] = [0, 1, 2, 3, 4, 6, 8, 12];
    let magnitude = HALVES[(code & 7) as usize];
    if code & 8 != 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// Nearest code, ties to the even one, saturating at 6. The sign is kept even when the magnitude rounds to zero. A
/// NaN, which no caller lets through, becomes +6 as the hardware conversion does.
pub fn encode(v: f32) -> u8 {
    if v.is_nan() {
        return 7;
    }
    let a = v.abs();
    let magnitude = if a <= 0.25 {
        0
    } else if a < 0.75 {
        1
    } else if a <= 1.25 {
        2
    } else if a < 1.75 {
        3
    } else if a <= 2.5 {
        4
    } else if a < 3.5 {
        5
    } else if a <= 5.0 {
        6
    } else {
        7
    };
    magnitude | sign_bit(v)
}

/// 8 for a negative value (-0 included), else 0.
pub fn sign_bit(v: f32) -> u8 {
    if v.is_sign_negative() {
        8
    } else {
        0
    }
}

/// Code of the largest grid value that is not above `a`; `a` in 0..=6.
pub fn floor_code(a: f32) -> u8 {
    let mut code = 7;
    while VALUES[code as usize] > a {
        code -= 1;
    }
    code
}

/// Code `i` of a packed row: element 2i in the low nibble.
pub fn get(row: &[u8], i: usize) -> u8 {
    (row[i / 2] >> (4 * (i % 2))) & 15
}

/// Writes code `i` of a packed row and leaves the other nibble of its byte alone.
pub fn set(row: &mut [u8], i: usize, code: u8) {
    let shift = 4 * (i % 2);
    row[i / 2] = (row[i / 2] & !(15 << shift)) | ((code & 15) << shift);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_a_round_trip() {
        for code in 0..16u8 {
            assert_eq!(encode(decode(code)), code, "code {code}");
            assert_eq!(
                decode(code).to_bits() >> 31,
                (code >> 3) as u32,
                "sign of code {code}"
            );
            assert_eq!(decode_halves(code) as f32, 2.0 * decode(code));
        }
    }

    #[test]
    fn ties_go_to_the_even_code_and_one_ulp_decides() {
        for (tie, code) in [
            (0.25, 0),
            (0.75, 2),
            (1.25, 2),
            (1.75, 4),
            (2.5, 4),
            (3.5, 6),
            (5.0f32, 6),
        ] {
            assert_eq!(encode(tie), code, "{tie}");
            assert_eq!(encode(-tie), code | 8, "-{tie}");
            let below = encode(tie.next_down());
            let above = encode(tie.next_up());
            assert_eq!(above, below + 1, "around {tie}");
            assert!(code == below || code == above);
        }
    }

    #[test]
    fn signs_and_saturation() {
        assert_eq!(
            [encode(0.0), encode(-0.0), encode(1e-40), encode(-1e-40)],
            [0, 8, 0, 8]
        );
        assert_eq!(
            [
                encode(f32::MAX),
                encode(f32::INFINITY),
                encode(f32::NEG_INFINITY)
            ],
            [7, 7, 15]
        );
        assert_eq!([encode(f32::NAN), encode(-f32::NAN)], [7, 7]);
    }

    #[test]
    fn nearest_means_nearest_on_a_fine_grid() {
        for i in 0..=7000 {
            let v = i as f32 / 1024.0;
            let got = decode(encode(v));
            let best = VALUES[..8]
                .iter()
                .map(|g| (g - v).abs())
                .fold(f32::MAX, f32::min);
            assert_eq!((got - v).abs(), best, "{v}");
        }
    }

    #[test]
    fn packing_puts_the_even_element_low() {
        let mut row = [0xFFu8; 2];
        set(&mut row, 0, 1);
        set(&mut row, 1, 2);
        set(&mut row, 2, 3);
        assert_eq!(row, [0x21, 0xF3]);
        assert_eq!(
            [get(&row, 0), get(&row, 1), get(&row, 2), get(&row, 3)],
            [1, 2, 3, 15]
        );
    }

    #[test]
    fn floor_code_is_the_lower_neighbour() {
        assert_eq!(
            [0.0, 0.49, 0.5, 1.99, 2.0, 3.99, 5.99, 6.0].map(floor_code),
            [0, 0, 1, 3, 4, 5, 6, 7]
        );
    }
}
