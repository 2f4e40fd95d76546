//! Every ISA's kernels against the scalar contract, byte for byte.

use super::rule::{Draw, Rule, Transform};
use crate::numerics::rounding::{self, Draw as Key};
use crate::numerics::{e2m1, hadamard, scale, special, Chain, Dtype, Format, Options, ScaleRule};

/// xorshift64*: bits for tests.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn u32(&mut self) -> u32 {
        (self.bits() >> 32) as u32
    }
    /// Roughly normal.
    pub fn normal(&mut self) -> f32 {
        let mut s = 0.0;
        for _ in 0..6 {
            s += self.u32() as i32 as f32 / 2147483648.0;
        }
        s * 0.707
    }
}

/// Elements of a row as raw memory, and as the f32 they stand for.
pub struct Row {
    pub dtype: Dtype,
    pub bytes: Vec<u8>,
    pub values: Vec<f32>,
}

impl Row {
    pub fn new(dtype: Dtype, values: &[f32]) -> Row {
        let mut bytes = Vec::new();
        let mut rounded = Vec::new();
        for &v in values {
            match dtype {
                Dtype::F32 => {
                    bytes.extend(v.to_bits().to_le_bytes());
                    rounded.push(v);
                }
                Dtype::Bf16 => {
                    let b = rounding::bf16_bits(v);
                    bytes.extend(b.to_le_bytes());
                    rounded.push(rounding::bf16_value(b));
                }
                Dtype::F16 => {
                    let b = rounding::f16_bits(v);
                    bytes.extend(b.to_le_bytes());
                    rounded.push(rounding::f16_value(b));
                }
            }
        }
        Row {
            dtype,
            bytes,
            values: rounded,
        }
    }
}

/// The scalar answer for one row: codes and scale bytes.
pub fn expected(
    o: &Options,
    x: &[f32],
    amax: f32,
    key: Option<(&Key, u64, u64)>,
) -> (Vec<u8>, Vec<u8>) {
    let t = scale::tensor_scale(o, amax);
    let block = o.format.block();
    let mut codes = vec![0u8; x.len().div_ceil(2)];
    let mut scales = Vec::new();
    for (b, xs) in x.chunks(block).enumerate() {
        let Some(m) = special::block_amax(xs) else {
            scales.push(if block == 16 { 0x7F } else { 0xFF });
            continue;
        };
        let (byte, e) = scale::block_scale(o, m, &t);
        scales.push(byte);
        for (i, &x) in xs.iter().enumerate() {
            let v = scale::scaled(o, x, e);
            let j = b * block + i;
            let code = match key {
                Some((key, row, col)) => rounding::stochastic(v, key.byte(row, col + j as u64)),
                None => e2m1::encode(v),
            };
            codes[j / 2] |= code << (4 * (j % 2));
        }
    }
    (codes, scales)
}

/// Options that the SIMD quantizers know.
pub fn known_options() -> Vec<Options> {
    let base = Options::default();
    let mx = Options {
        format: Format::Mxfp4,
        ..base
    };
    vec![
        base,
        Options {
            chain: Chain::Div6,
            ..base
        },
        Options {
            chain: Chain::Single,
            ..base
        },
        Options {
            range_16_17: true,
            c: 1536.0,
            ..base
        },
        mx,
        Options {
            scale_rule: ScaleRule::Ceil,
            ..mx
        },
        Options {
            scale_rule: ScaleRule::Even,
            ..mx
        },
    ]
}

/// Rows that go wrong easily: ties, powers of two, subnormals, huge ranges, signed zeros, values that are not finite.
pub fn adversarial(n: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut r = Random(seed);
    let grid = [
        0.25f32, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 0.0,
    ];
    let mut rows = vec![Vec::new(); 9];
    for i in 0..n {
        let sign = if r.u32() & 1 == 0 { 1.0 } else { -1.0 };
        let g = grid[r.u32() as usize % grid.len()];
        rows[0].push(r.normal());
        rows[1].push(if i % 16 == 3 { 6.0 } else { sign * g });
        rows[2].push(sign * g * 2f32.powi(((i / 16) % 40) as i32 - 20));
        rows[3].push(f32::from_bits(r.u32() & 0x807F_FFFF));
        rows[4].push(r.normal() * 2f32.powi((r.u32() % 240) as i32 - 120));
        rows[5].push(if r.u32().is_multiple_of(3) {
            sign * 0.0
        } else {
            sign * g
        });
        rows[6].push(f32::from_bits(r.u32()));
        rows[7].push(if r.u32().is_multiple_of(97) {
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][r.u32() as usize % 3]
        } else {
            r.normal()
        });
        rows[8].push(sign * f32::MAX * (1.0 - (r.u32() % 7) as f32 / 7.0));
    }
    rows
}

/// A row quantizer under test: (row, n, rule, draw, codes, scales).
pub type Quantizer =
    unsafe fn(Dtype, *const u8, usize, &Rule, Option<&Draw>, *mut u8, *mut u8) -> bool;

/// One row through a kernel, at an unaligned address, outputs poisoned and checked for writes beyond their end.
pub fn check_row(q: Quantizer, o: &Options, row: &Row, amax: f32, key: Option<(Key, u64, u64)>) {
    let n = row.values.len();
    let rule = Rule::new(o, &scale::tensor_scale(o, amax)).expect("a known rule");
    let draw = key.map(|(k, r, c)| Draw::new(&k, r, c));
    let (codes, scales) = expected(
        o,
        &row.values,
        amax,
        key.as_ref().map(|(k, r, c)| (k, *r, *c)),
    );
    for poison in [0xFFu8, 0] {
        let mut input = vec![poison; 1];
        input.extend(&row.bytes);
        input.extend([poison; 3]);
        let mut c = vec![poison; codes.len() + 7];
        let mut s = vec![poison; scales.len() + 7];
        // SAFETY: buffers hold what the row needs.
        let bad = unsafe {
            q(
                row.dtype,
                input.as_ptr().add(1),
                n,
                &rule,
                draw.as_ref(),
                c.as_mut_ptr(),
                s.as_mut_ptr(),
            )
        };
        assert_eq!(bad, row.values.iter().any(|v| !v.is_finite()), "{o:?}");
        let context = || format!("{:?} n {n} amax {amax:e} {o:?} {key:?}", row.dtype);
        assert_eq!(&s[..scales.len()], &scales[..], "scales, {}", context());
        assert_eq!(&c[..codes.len()], &codes[..], "codes, {}", context());
        assert!(c[codes.len()..]
            .iter()
            .chain(&s[scales.len()..])
            .all(|&b| b == poison));
    }
}

pub fn check_quantizer(q: Quantizer) {
    let key = Key {
        seed: 0x1234_5678_9ABC_DEF0,
        offset: 0x0123_4567_89AB_CDEF,
        columnwise: false,
    };
    for o in known_options() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            // Every tail, whole groups, and more than one chunk.
            for n in (0..34).chain([255, 256, 257, 511, 512, 1023, 1024, 2048 + 33]) {
                for x in adversarial(n, 77 + n as u64) {
                    let row = Row::new(dtype, &x);
                    let amax = special::amax(row.values.iter().copied());
                    for a in [amax, 1.0, 0.0, amax * 0.01, 1e-42, 3e38] {
                        check_row(q, &o, &row, a, None);
                    }
                    check_row(q, &o, &row, amax, Some((key, (7 << 32) + 5, 16 * 9)));
                    check_row(q, &o, &row, amax * 0.3, Some((key, 3, 0)));
                }
            }
        }
    }
}

/// All 2^16 inputs of a 16-bit type, each in blocks led by a value that fixes the block's scale byte.
pub fn check_all_inputs(q: Quantizer, dtype: Dtype) {
    let o = Options::default();
    let all: Vec<f32> = (0..=0xFFFFu16)
        .map(|b| match dtype {
            Dtype::Bf16 => rounding::bf16_value(b),
            _ => rounding::f16_value(b),
        })
        .collect();
    for byte in 0..127u8 {
        // With amax 2688 the outer scale is 1, so that a block led by 6 * s gets byte s unless a larger value leads.
        let lead = 6.0 * crate::numerics::e4m3::decode(byte);
        let mut x = Vec::with_capacity(16 * all.len() / 15 + 16);
        for part in all.chunks(15) {
            x.push(lead);
            x.extend(part.iter().map(|v| if v.is_finite() { *v } else { 0.0 }));
        }
        let row = Row::new(dtype, &x);
        check_row(q, &o, &row, 2688.0, None);
        // Small values only, so that the lead decides.
        let small: Vec<f32> = x
            .iter()
            .map(|v| if v.abs() > lead { lead } else { *v })
            .collect();
        let (_, scales) = expected(&o, &small, 2688.0, None);
        assert!(scales.iter().all(|s| *s == byte), "blocks of scale {byte}");
        check_row(q, &o, &Row::new(dtype, &small), 2688.0, None);
    }
}

/// Random bit patterns, non-finite ones included.
pub fn check_random_bits(q: Quantizer, count: usize) {
    let mut r = Random(99);
    let o = Options::default();
    for _ in 0..count.div_ceil(4096) {
        let base = r.u32() % 254;
        let x: Vec<f32> = (0..4096)
            .map(|i| {
                let bits = r.u32();
                // A quarter over the whole range, the rest within reach of its block's scale.
                if i / 16 % 4 == 0 {
                    f32::from_bits(bits)
                } else {
                    let exponent = (base + (bits >> 23) % 12).min(254);
                    f32::from_bits(bits & 0x807F_FFFF | exponent << 23)
                }
            })
            .collect();
        let amax = special::amax(x.iter().copied());
        check_row(q, &o, &Row::new(Dtype::F32, &x), amax, None);
    }
}

pub type RowTransform = unsafe fn(Dtype, *const u8, usize, &Transform, *mut f32);

pub fn check_transform(f: RowTransform) {
    for n in [16u32, 32, 64, 128] {
        for keep_f32 in [false, true] {
            let o = Options {
                hadamard: n,
                keep_f32,
                signs: crate::numerics::Signs::Seeded,
                ..Options::default()
            };
            let t = Transform::new(&o, 5, 6).expect("a transform");
            for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
                for x in adversarial(384, n as u64) {
                    let row = Row::new(dtype, &x);
                    let mut y = row.values.clone();
                    for block in y.chunks_mut(n as usize) {
                        hadamard::forward(block, &t.signs);
                        if !keep_f32 {
                            block.iter_mut().for_each(|v| *v = rounding::round_bf16(*v));
                        }
                    }
                    let mut z = vec![f32::NAN; 384];
                    // SAFETY: both buffers hold 384 elements.
                    unsafe { f(dtype, row.bytes.as_ptr(), 384, &t, z.as_mut_ptr()) };
                    for (i, (y, z)) in y.iter().zip(&z).enumerate() {
                        assert!(
                            y.to_bits() == z.to_bits() || (y.is_nan() && z.is_nan()),
                            "{n} {dtype:?} element {i}: {y:e} {z:e}"
                        );
                    }
                }
            }
        }
    }
}

/// Largest magnitudes, of all and of finite elements.
type Amax = unsafe fn(Dtype, *const u8, usize) -> u32;

pub fn check_amax(all: Amax, finite: Amax) {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        for n in (0..34).chain([64, 127, 128, 129, 700]) {
            for x in adversarial(n, 5 + n as u64) {
                let row = Row::new(dtype, &x);
                // An odd address.
                let mut bytes = vec![0xFF; 1];
                bytes.extend(&row.bytes);
                let p = bytes[1..].as_ptr();
                // SAFETY: the row holds n elements.
                let (all, finite) = unsafe { (all(dtype, p, n), finite(dtype, p, n)) };
                let want = special::amax(row.values.iter().copied());
                assert_eq!(finite, want.to_bits());
                if row.values.iter().all(|v| v.is_finite()) {
                    assert_eq!(all, finite);
                } else {
                    assert!(all >= 0x7F80_0000);
                }
            }
        }
    }
}
