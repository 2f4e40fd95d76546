//! Digests of a public run: torch.randn(256, 512) with seed 0 as bfloat16, quantized by the formula of
//! TransformerEngine. The input is made here (MT19937, Box and Muller as torch pairs them) and proved by its digest.

use nvfp4::numerics::matrix::{Elements, Matrix};
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::rounding::bf16_bits;
use nvfp4::numerics::*;

const ROWS: usize = 256;
const COLS: usize = 512;

/// Elements whose last bit of bf16 differs, because torch computes in f32 with vectorized functions: index and change.
const F32_EFFECTS: [(usize, i32); 21] = [
    (736, -1),
    (2876, -1),
    (11498, -1),
    (17660, -1),
    (18673, -1),
    (19146, -1),
    (37076, -1),
    (39436, -1),
    (49572, 1),
    (61580, 1),
    (66957, -1),
    (75424, -1),
    (89966, -1),
    (90411, -1),
    (90788, 1),
    (98392, -1),
    (101800, -1),
    (105121, 1),
    (107133, -1),
    (115325, 1),
    (121782, 1),
];

fn torch_randn() -> Vec<u16> {
    let uniform: Vec<f64> = mt19937(0, ROWS * COLS)
        .iter()
        .map(|w| (w & 0xFF_FFFF) as f64 / 16777216.0)
        .collect();
    let mut out = Vec::new();
    for group in uniform.chunks(16) {
        let radius = |i: usize| (-2.0 * (1.0 - group[i]).ln()).sqrt();
        let angle = |i: usize| std::f64::consts::TAU * group[i + 8];
        out.extend((0..8).map(|i| bf16_bits((radius(i) * angle(i).cos()) as f32)));
        out.extend((0..8).map(|i| bf16_bits((radius(i) * angle(i).sin()) as f32)));
    }
    for (i, change) in F32_EFFECTS {
        out[i] = (out[i] as i32 + change) as u16;
    }
    out
}

/// The Mersenne twister of Matsumoto and Nishimura, seeded with one word.
fn mt19937(seed: u32, n: usize) -> Vec<u32> {
    let mut state = [0u32; 624];
    state[0] = seed;
    for i in 1..624 {
        let previous = state[i - 1];
        state[i] = (previous ^ previous >> 30)
            .wrapping_mul(1812433253)
            .wrapping_add(i as u32);
    }
    let mut out = Vec::with_capacity(n + 624);
    while out.len() < n {
        for i in 0..624 {
            let y = (state[i] & 0x8000_0000) | (state[(i + 1) % 624] & 0x7FFF_FFFF);
            state[i] = state[(i + 397) % 624] ^ y >> 1 ^ if y & 1 == 1 { 0x9908_B0DF } else { 0 };
        }
        out.extend(state.iter().map(|y| {
            let mut y = y ^ y >> 11;
            y ^= y << 7 & 0x9D2C_5680;
            y ^= y << 15 & 0xEFC6_0000;
            y ^ y >> 18
        }));
    }
    out.truncate(n);
    out
}

/// First eight bytes of SHA-256 (FIPS 180-4), as hex.
fn sha256_start(message: &[u8]) -> String {
    // Fractional parts of the roots of the first primes: integer roots of p * 2^64 and p * 2^96.
    let primes: Vec<u128> = (2u128..)
        .filter(|n| (2..*n).all(|d| n % d != 0))
        .take(64)
        .collect();
    let root = |value: u128, power: u32| {
        let (mut low, mut high) = (0u128, 1 << 42);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if middle.checked_pow(power).is_some_and(|p| p <= value) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low as u32
    };
    let k: Vec<u32> = primes.iter().map(|p| root(p << 96, 3)).collect();
    let mut h: Vec<u32> = primes[..8].iter().map(|p| root(p << 64, 2)).collect();
    let mut data = message.to_vec();
    data.push(0x80);
    while data.len() % 64 != 56 {
        data.push(0);
    }
    data.extend((message.len() as u64 * 8).to_be_bytes());
    for chunk in data.chunks(64) {
        let mut w: Vec<u32> = chunk
            .chunks(4)
            .map(|b| u32::from_be_bytes(b.try_into().unwrap()))
            .collect();
        for i in 16..64 {
            let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ w[i - 15] >> 3;
            let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ w[i - 2] >> 10;
            w.push(
                w[i - 16]
                    .wrapping_add(s0)
                    .wrapping_add(w[i - 7])
                    .wrapping_add(s1),
            );
        }
        let mut v = h.clone();
        for i in 0..64 {
            let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = v[4] & v[5] ^ !v[4] & v[6];
            let t1 = v[7]
                .wrapping_add(s1)
                .wrapping_add(choice)
                .wrapping_add(k[i])
                .wrapping_add(w[i]);
            let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let t2 = s0.wrapping_add(v[0] & v[1] ^ v[0] & v[2] ^ v[1] & v[2]);
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(t1);
            v[0] = t1.wrapping_add(t2);
        }
        h.iter_mut()
            .zip(v)
            .for_each(|(h, v)| *h = h.wrapping_add(v));
    }
    h[..2].iter().map(|w| format!("{w:08x}")).collect()
}

#[test]
fn the_digest_is_sha256() {
    assert_eq!(sha256_start(b""), "e3b0c44298fc1c14");
    assert_eq!(sha256_start(b"abc"), "ba7816bf8f01cfea");
}

#[test]
fn bytes_of_the_transformer_engine_formula() {
    let bits = torch_randn();
    let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
    assert_eq!(
        sha256_start(&bytes),
        "4354b9f47f68bcdd",
        "this is the input of the public run"
    );
    let m = Matrix::new(Elements::Bf16(&bits), ROWS, COLS);
    let q = quantize(&m, &Call::default()).unwrap();
    assert_eq!(sha256_start(&q.codes), "bb3364056d4a656c", "codes");
    assert_eq!(sha256_start(&q.scales), "7465e20ec02869ac", "scale bytes");
    // DIV6 as torchao, ModelOpt, fouroversix and compressed-tensors have it: 58 scale bytes and 188 codes differ.
    let options = Options {
        chain: Chain::Div6,
        ..Options::default()
    };
    let p = quantize(
        &m,
        &Call {
            options,
            ..Call::default()
        },
    )
    .unwrap();
    let scales = q
        .scales
        .iter()
        .zip(&p.scales)
        .filter(|(a, b)| a != b)
        .count();
    let codes = (0..ROWS * COLS)
        .filter(|i| q.code(i / COLS, i % COLS) != p.code(i / COLS, i % COLS))
        .count();
    assert_eq!((scales, codes), (58, 188));
}

/// Digests of what these packages give for the same input, taken from a run on a CPU: torchao 0.18.0 and torch 2.15.0
/// (`nvfp4_quantize`, `to_blocked`, `to_mx`), fouroversix 1.0.5 (its PyTorch reference), compressed-tensors 0.20.1.
#[test]
fn bytes_of_public_implementations() {
    let bits = torch_randn();
    let m = Matrix::new(Elements::Bf16(&bits), ROWS, COLS);
    let d = Options::default();
    let two_d = Options {
        block: Block::TwoD,
        ..d
    };
    let mx = Options {
        format: Format::Mxfp4,
        ..d
    };
    let over = |select, o| Options { select, ..o };
    let (mae, mse, absmax) = (
        Select::FourOverSixMae,
        Select::FourOverSixMse,
        Select::FourOverSixAbsMax,
    );
    let swizzled = ScaleLayout::Swizzled;
    for (what, o, codes, scales) in [
        (
            "torchao, fouroversix, compressed-tensors",
            Options {
                chain: Chain::Div6,
                ..d
            },
            "979ce8724e377443",
            "320d94152b3d6857",
        ),
        (
            "torchao, fouroversix: 128x4",
            Options {
                chain: Chain::Div6,
                scale_layout: swizzled,
                ..d
            },
            "979ce8724e377443",
            "589de104605ca984",
        ),
        (
            "torchao: one level",
            Options {
                chain: Chain::Single,
                ..d
            },
            "d037d6999e45c1b8",
            "478b60011768a7f2",
        ),
        (
            "fouroversix: 16x16",
            Options {
                chain: Chain::Div6,
                ..two_d
            },
            "621cf803a61d8989",
            "f940198c0c7d35b5",
        ),
        (
            "fouroversix: MAE",
            over(mae, d),
            "bc829cf451e318a4",
            "b2a9b450a4845db2",
        ),
        (
            "fouroversix: MSE",
            over(mse, d),
            "6a2e2c992f19a1f4",
            "9e4c06eb4b113e62",
        ),
        (
            "fouroversix: ABSMAX",
            over(absmax, d),
            "9d1fd33b31f77ce9",
            "93514361e8c7657d",
        ),
        (
            "fouroversix: 16x16 MAE",
            over(mae, two_d),
            "01dcb9d5661ab3db",
            "470f25b09c50bc2c",
        ),
        (
            "fouroversix: 16x16 MSE",
            over(mse, two_d),
            "6ef5c4778b236a0e",
            "0a6911075f486d01",
        ),
        (
            "fouroversix: 16x16 ABSMAX",
            over(absmax, two_d),
            "4f6579a77e5e224b",
            "5519d6d2bd481e71",
        ),
        (
            "torchao: MXFP4 floor",
            mx,
            "5524b740f5164a81",
            "5f4e9fcc6d28e89d",
        ),
        (
            "torchao rceil, fouroversix: MXFP4",
            Options {
                scale_rule: ScaleRule::Ceil,
                ..mx
            },
            "d9f3a054e6e5b421",
            "8b89ea4dde8dc825",
        ),
        (
            "torchao: MXFP4 even",
            Options {
                scale_rule: ScaleRule::Even,
                ..mx
            },
            "3cb9f590bef83b50",
            "06ed16bb89d75369",
        ),
    ] {
        let q = quantize(
            &m,
            &Call {
                options: o,
                ..Call::default()
            },
        )
        .unwrap();
        assert_eq!(sha256_start(&q.codes), codes, "codes of {what}");
        assert_eq!(sha256_start(&q.scales), scales, "scale bytes of {what}");
    }
}
