//! Small floating-point helpers: half formats, directed rounding, flushing.

pub fn bf16_to_f32(b: u16) -> f32 {
    f32::from_bits((b as u32) << 16)
}

pub fn f16_to_f32(h: u16) -> f32 {
    let (s, e, m) = ((h as u32 >> 15) << 31, (h as u32 >> 10) & 31, h as u32 & 0x3ff);
    match e {
        0 => {
            let v = m as f32 * f32::from_bits(0x3380_0000); // 2^-24
            f32::from_bits(v.to_bits() | s)
        }
        31 => f32::from_bits(s | 0x7f80_0000 | (m << 13)),
        _ => f32::from_bits(s | ((e + 112) << 23) | (m << 13)),
    }
}

/// A binary format by its stored mantissa bits and exponent range.
#[derive(Clone, Copy)]
pub struct Fmt {
    pub mant: i32,
    pub emin: i32,
    pub emax: i32,
}
pub const F16: Fmt = Fmt { mant: 10, emin: -14, emax: 15 };
pub const BF16: Fmt = Fmt { mant: 7, emin: -126, emax: 127 };

/// Round to nearest even into a 16-bit format. NaN becomes 0x7fff.
pub fn f64_to_16(v: f64, f: Fmt) -> u16 {
    if v.is_nan() {
        return 0x7fff;
    }
    let b = v.to_bits();
    let sign = ((b >> 63) as u16) << 15;
    let inf = sign | (((f.emax - f.emin + 2) as u16) << f.mant);
    let e = ((b >> 52) & 0x7ff) as i32 - 1023;
    if e == 1024 {
        return inf;
    }
    if b << 1 == 0 {
        return sign;
    }
    let (m, e) = if e == -1023 { (b & ((1 << 52) - 1), -1022) } else { ((b & ((1 << 52) - 1)) | (1 << 52), e) };
    // Bits dropped so that the result has `mant` fraction bits at exponent max(e, emin).
    let drop = (52 - f.mant + (f.emin - e).max(0)) as u32;
    if drop > 54 {
        return sign;
    }
    let (q, rem, half) = (m >> drop, m & ((1u64 << drop) - 1), 1u64 << (drop - 1));
    let q = q + (rem > half || (rem == half && q & 1 == 1)) as u64;
    // q carries the hidden bit when normal; adding it to the exponent does the rest.
    let base = ((e.max(f.emin) - f.emin) as u64) << f.mant;
    let r = base + q;
    if r >= (inf & 0x7fff) as u64 {
        return inf;
    }
    sign | r as u16
}

pub fn f32_to_bf16(v: f32) -> u16 {
    let b = v.to_bits();
    if b & 0x7fff_ffff > 0x7f80_0000 {
        return 0x7fff;
    }
    ((b + 0x7fff + ((b >> 16) & 1)) >> 16) as u16
}

pub fn f32_to_f16(v: f32) -> u16 {
    f64_to_16(v as f64, F16)
}

/// a + b with the rounding error made sticky in the last bit (round to odd),
/// so that one more rounding to a narrower format is exact.
pub fn add_odd(a: f64, b: f64) -> f64 {
    let s = a + b;
    if !s.is_finite() {
        return s;
    }
    let t = s - a;
    let e = (a - (s - t)) + (b - t);
    if e == 0.0 || s.to_bits() & 1 == 1 {
        return s;
    }
    let toward_zero = (e > 0.0) != (s > 0.0);
    f64::from_bits(if toward_zero { s.to_bits() - 1 } else { s.to_bits() + 1 })
}

/// The same for one more rounding in a direction: down, a sum that is exactly 0 is -0, but for (+0) + (+0).
pub fn add_toward(a: f64, b: f64, r: Rnd) -> f64 {
    let s = add_odd(a, b);
    if r == Rnd::M && s == 0.0 && !(a.is_sign_positive() && b.is_sign_positive()) {
        return -0.0;
    }
    s
}

/// a * b + c, rounded to odd in f64. The product of two f32 (or narrower) is exact.
pub fn fma_odd(a: f32, b: f32, c: f32) -> f64 {
    add_odd(a as f64 * b as f64, c as f64)
}

/// The same, see `add_toward`.
pub fn fma_toward(a: f32, b: f32, c: f32, r: Rnd) -> f64 {
    add_toward(a as f64 * b as f64, c as f64, r)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rnd {
    N,
    Z,
    M,
    P,
}

/// Round a value that is exact, or rounded to odd, into f32.
pub fn to_f32(v: f64, r: Rnd) -> f32 {
    let n = v as f32;
    if r == Rnd::N || n.is_nan() || v.is_infinite() {
        return n;
    }
    let up = |x: f32| {
        if x == 0.0 {
            f32::from_bits(1)
        } else if x > 0.0 {
            f32::from_bits(x.to_bits() + 1)
        } else {
            f32::from_bits(x.to_bits() - 1)
        }
    };
    let down = |x: f32| -up(-x);
    let w = n as f64;
    match r {
        Rnd::Z if w.abs() > v.abs() => {
            if n > 0.0 {
                down(n)
            } else {
                up(n)
            }
        }
        Rnd::M if w > v => down(n),
        Rnd::P if w < v => up(n),
        _ => n,
    }
}

/// Quotient or root: the f64 result is within half an ulp, so an exact residual
/// decides the sticky bit.
pub fn div_odd(a: f32, b: f32) -> f64 {
    let (x, y) = (a as f64, b as f64);
    let q = x / y;
    if !q.is_finite() || q == 0.0 {
        return q;
    }
    sticky(q, -q.mul_add(y, -x) * y.signum())
}

pub fn sqrt_odd(a: f32) -> f64 {
    let x = a as f64;
    let q = x.sqrt();
    if !q.is_finite() || q == 0.0 {
        return q;
    }
    sticky(q, -q.mul_add(q, -x))
}

/// `err` has the sign of (exact - q).
fn sticky(q: f64, err: f64) -> f64 {
    if err == 0.0 || q.to_bits() & 1 == 1 {
        return q;
    }
    let toward_zero = (err > 0.0) != (q > 0.0);
    f64::from_bits(if toward_zero { q.to_bits() - 1 } else { q.to_bits() + 1 })
}

/// Flush a subnormal to zero of the same sign.
#[inline(always)]
pub fn ftz(v: f32) -> f32 {
    let b = v.to_bits();
    if b & 0x7f80_0000 == 0 {
        f32::from_bits(b & 0x8000_0000)
    } else {
        v
    }
}

/// Arithmetic on the device gives one NaN.
#[inline(always)]
pub fn canon(v: f32) -> f32 {
    if v.is_nan() {
        f32::from_bits(0x7fff_ffff)
    } else {
        v
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_trip() {
        for h in 0..=0xffffu16 {
            let f = f16_to_f32(h);
            if !f.is_nan() {
                assert_eq!(f32_to_f16(f), h);
            }
            let b = bf16_to_f32(h);
            if !b.is_nan() {
                assert_eq!(f32_to_bf16(b), h);
                assert_eq!(f64_to_16(b as f64, BF16), h);
            }
        }
    }

    #[test]
    fn half_ties_go_to_even() {
        assert_eq!(f32_to_f16(1.0 + 1.0 / 2048.0), 0x3c00);
        assert_eq!(f32_to_f16(1.0 + 3.0 / 2048.0), 0x3c02);
        assert_eq!(f32_to_f16(65519.9), 0x7bff);
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(f32_to_f16(f32::from_bits(0x3300_0000)), 0); // 2^-25 ties to zero
        assert_eq!(f64_to_16(1.0e-45, BF16), 0);
    }

    #[test]
    fn directed_rounding_brackets() {
        let v = add_odd(1.0, 1e-30);
        assert_eq!(to_f32(v, Rnd::Z), 1.0);
        assert_eq!(to_f32(v, Rnd::P), 1.0 + f32::EPSILON);
        assert_eq!(to_f32(-v, Rnd::M), -1.0 - f32::EPSILON);
        assert_eq!(to_f32(div_odd(1.0, 3.0), Rnd::N), 1.0f32 / 3.0);
        assert!((to_f32(div_odd(1.0, 3.0), Rnd::Z) as f64) < 1.0 / 3.0);
    }
}
