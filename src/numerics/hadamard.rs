//! The random Hadamard transform of one block of n = 16, 32, 64 or 128 values (docs/format.md, section 6).

use super::philox::{philox4x32_10, split};
use super::Signs;

/// TransformerEngine's 16 signs: bit i set means element i changes its sign.
pub const DEFAULT_MASK: u16 = 0xD7E8;

/// The signs of a transform of n as bits: bit i % 32 of word i / 32 set means element i changes its sign. Bits from n
/// on are 0, so that equal signs are equal words. Seeded signs are a function of the call's seed and offset.
pub fn sign_words(signs: Signs, n: usize, seed: u64, offset: u64) -> [u32; 4] {
    let repeat = |mask: u16| [mask as u32 * 0x1_0001; 4];
    let words = match signs {
        Signs::Default => repeat(DEFAULT_MASK),
        Signs::Mask16(mask) => repeat(mask),
        Signs::Mask(words) => words,
        Signs::Seeded => std::array::from_fn(|j| seeded_word(j as u32, seed, offset)),
    };
    std::array::from_fn(|j| match n.saturating_sub(32 * j) {
        0 => 0,
        bits if bits < 32 => words[j] & ((1 << bits) - 1),
        _ => words[j],
    })
}

fn seeded_word(j: u32, seed: u64, offset: u64) -> u32 {
    let [low, high] = split(offset);
    philox4x32_10(split(seed), [j, 0, low, high | 1 << 30])[0]
}

/// Is the sign of element i changed?
pub fn is_negative(words: &[u32; 4], i: usize) -> bool {
    words[i / 32] >> (i % 32) & 1 == 1
}

/// fl(1 / sqrt(n)).
pub fn normalizer(n: usize) -> f32 {
    (1.0 / (n as f64).sqrt()) as f32
}

/// y = (x .* sign) H / sqrt(n), in place, without the rounding to bf16 that a quantizer adds. A zero sum gives +0.
pub fn forward(block: &mut [f32], words: &[u32; 4]) {
    for (i, x) in block.iter_mut().enumerate() {
        if is_negative(words, i) {
            *x = -*x;
        }
    }
    butterfly(block);
    let c = normalizer(block.len());
    for x in block.iter_mut() {
        *x = x.mul_add(c, 0.0);
    }
}

/// y = (x H / sqrt(n)) .* sign, in place: undoes `forward`. A zero sum gives +0.
pub fn inverse(block: &mut [f32], words: &[u32; 4]) {
    butterfly(block);
    let c = normalizer(block.len());
    for (i, x) in block.iter_mut().enumerate() {
        *x = x.mul_add(if is_negative(words, i) { -c } else { c }, 0.0);
    }
}

/// x H with Sylvester's H, in f32, strides 1, 2, 4, ... n/2. The order of operations is part of the contract.
fn butterfly(block: &mut [f32]) {
    let n = block.len();
    let mut stride = 1;
    while stride < n {
        for i in 0..n {
            if i & stride == 0 {
                let (a, b) = (block[i], block[i + stride]);
                block[i] = a + b;
                block[i + stride] = a - b;
            }
        }
        stride *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_vectors_give_rows_of_the_matrix() {
        for n in [16usize, 32, 64, 128] {
            for row in [0, 1, 3, n - 1] {
                let mut x = vec![0.0; n];
                x[row] = 1.0;
                forward(&mut x, &[0; 4]);
                for (col, y) in x.iter().enumerate() {
                    let sign = if (row & col).count_ones() % 2 == 1 {
                        -1.0
                    } else {
                        1.0
                    };
                    assert_eq!(*y, sign * normalizer(n), "H[{row}][{col}] of {n}");
                }
            }
        }
    }

    #[test]
    fn default_signs() {
        let words = sign_words(Signs::Default, 16, 0, 0);
        let signs: Vec<i32> = (0..16)
            .map(|i| if is_negative(&words, i) { -1 } else { 1 })
            .collect();
        assert_eq!(
            signs,
            [1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1]
        );
        assert_eq!(words, [0xD7E8, 0, 0, 0]);
        assert_eq!(
            sign_words(Signs::Default, 64, 0, 0),
            [0xD7E8_D7E8, 0xD7E8_D7E8, 0, 0]
        );
        assert_eq!(sign_words(Signs::Mask([!0; 4]), 128, 0, 0), [!0; 4]);
    }

    #[test]
    fn seeded_signs_follow_seed_and_offset_and_extend() {
        let words = sign_words(Signs::Seeded, 128, 7, 3);
        assert_eq!(words[1], philox4x32_10([7, 0], [1, 0, 3, 1 << 30])[0]);
        assert_eq!(sign_words(Signs::Seeded, 16, 7, 3)[0], words[0] & 0xFFFF);
        assert_ne!(words, sign_words(Signs::Seeded, 128, 7, 4));
        assert_ne!(words, sign_words(Signs::Seeded, 128, 8, 3));
    }

    #[test]
    fn inverse_undoes_and_zeros_are_positive() {
        let words = sign_words(Signs::Seeded, 32, 1, 2);
        let x: Vec<f32> = (0..32).map(|i| (i * i % 13) as f32 - 6.0).collect();
        let mut y = x.clone();
        forward(&mut y, &words);
        inverse(&mut y, &words);
        for (a, b) in x.iter().zip(&y) {
            assert!((a - b).abs() < 1e-5);
        }
        let mut zeros = [-0.0f32; 16];
        forward(&mut zeros, &sign_words(Signs::Default, 16, 0, 0));
        assert!(zeros.iter().all(|v| v.to_bits() == 0));
        inverse(&mut zeros, &sign_words(Signs::Default, 16, 0, 0));
        assert!(zeros.iter().all(|v| v.to_bits() == 0));
    }
}
