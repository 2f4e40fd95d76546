//! Deterministic test data.

use nvfp4::numerics::philox::philox4x32_10;

/// Uniform 32-bit words, the same everywhere.
pub fn words(seed: u32, n: usize) -> Vec<u32> {
    (0..n.div_ceil(4))
        .flat_map(|i| philox4x32_10([seed, 0x5eed], [i as u32, 0, 0, 0]))
        .take(n)
        .collect()
}

/// N(0, 1) by Box and Muller.
pub fn normal(seed: u32, n: usize) -> Vec<f32> {
    let words = words(seed, 2 * n);
    let uniform = |w: u32| (w as f64 + 0.5) / 4294967296.0;
    words
        .chunks(2)
        .map(|w| {
            ((-2.0 * uniform(w[0]).ln()).sqrt() * (std::f64::consts::TAU * uniform(w[1])).cos())
                as f32
        })
        .collect()
}

/// Values over many octaves with zeros and signs, the kind that finds wrong scales.
pub fn wild(seed: u32, n: usize) -> Vec<f32> {
    words(seed, 2 * n)
        .chunks(2)
        .map(|w| {
            if w[0] % 11 == 0 {
                return if w[0] % 2 == 0 { 0.0 } else { -0.0 };
            }
            let exponent = (w[0] >> 8) % 40;
            let magnitude =
                (1.0 + (w[1] >> 9) as f32 / 8388608.0) * 2f32.powi(exponent as i32 - 20);
            if w[1] & 1 == 1 {
                -magnitude
            } else {
                magnitude
            }
        })
        .collect()
}
