//! The random Hadamard transform (docs/format.md, section 6), along a row and down columns. Same operations in the same
//! order as the contract, so the same bits: strides 1, 2, 4, ... in f32, then one product that makes zeros +0.

use super::{round_bf16, size, Vector};
use crate::cpu::columns::WIDTH;
use crate::cpu::rule::Transform;

/// The sign bit of element i of a block, where it changes its sign.
#[inline(always)]
fn sign(t: &Transform, i: usize) -> u32 {
    (t.signs[i / 32] >> (i % 32) & 1) << 31
}

#[inline(always)]
unsafe fn finish<V: Vector, const KEEP: bool>(x: V, normalizer: V) -> V {
    // SAFETY: registers only.
    unsafe {
        let y = x.fma(normalizer, V::splat(0));
        match KEEP {
            true => y,
            false => round_bf16(y),
        }
    }
}

/// Transforms `n` elements of a row, a multiple of the transform's length, into f32.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`, `out` writable for `n` f32.
#[inline(always)]
pub unsafe fn row<V: Vector, const DT: u8>(x: *const u8, n: usize, t: &Transform, out: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match (t.n / V::LANES, t.keep_f32) {
            (2, false) => blocks::<V, DT, 2, false>(x, n, t, out),
            (4, false) => blocks::<V, DT, 4, false>(x, n, t, out),
            (8, false) => blocks::<V, DT, 8, false>(x, n, t, out),
            (16, false) => blocks::<V, DT, 16, false>(x, n, t, out),
            (_, false) => blocks::<V, DT, 32, false>(x, n, t, out),
            (2, true) => blocks::<V, DT, 2, true>(x, n, t, out),
            (4, true) => blocks::<V, DT, 4, true>(x, n, t, out),
            (8, true) => blocks::<V, DT, 8, true>(x, n, t, out),
            (16, true) => blocks::<V, DT, 16, true>(x, n, t, out),
            (_, true) => blocks::<V, DT, 32, true>(x, n, t, out),
        }
    }
}

/// With blocks of N vectors.
#[inline(always)]
unsafe fn blocks<V: Vector, const DT: u8, const N: usize, const KEEP: bool>(
    x: *const u8,
    n: usize,
    t: &Transform,
    out: *mut f32,
) {
    debug_assert!(t.n == N * V::LANES);
    let mut signs = [0u32; 128];
    for (i, s) in signs[..t.n].iter_mut().enumerate() {
        *s = sign(t, i);
    }
    let block = N * V::LANES;
    // SAFETY: whole blocks inside the caller's memory.
    unsafe {
        let normalizer = V::splat_f32(t.normalizer);
        let mut i = 0;
        while i < n {
            let mut v = [V::splat(0); N];
            for (j, v) in v.iter_mut().enumerate() {
                let x = V::load::<DT>(x.add((i + V::LANES * j) * size::<DT>()));
                let signs = V::read(signs.as_ptr().add(V::LANES * j));
                *v = x.xor(signs).within();
            }
            let mut stride = 1;
            while stride < N {
                for j in 0..N {
                    if j & stride == 0 {
                        let (a, b) = (v[j], v[j + stride]);
                        v[j] = a.fadd(b);
                        v[j + stride] = a.fsub(b);
                    }
                }
                stride *= 2;
            }
            for (j, v) in v.iter().enumerate() {
                finish::<V, KEEP>(*v, normalizer).write(out.add(i + V::LANES * j));
            }
            i += block;
        }
    }
}

/// Transforms `t.n` rows of LANES columns down the columns; rows are WIDTH apart.
///
/// # Safety
/// `p` must be readable and writable for t.n rows.
#[inline(always)]
pub unsafe fn down<V: Vector>(p: *mut f32, t: &Transform) {
    // SAFETY: the caller's promise.
    unsafe {
        match (t.n, t.keep_f32) {
            (16, false) => sixteen::<V, true, false>(p, t, 0),
            (16, true) => sixteen::<V, true, true>(p, t, 0),
            (_, false) => long::<V, false>(p, t),
            (_, true) => long::<V, true>(p, t),
        }
    }
}

/// Strides 1 to 8 of sixteen rows in registers, the first of them row `first` of the block. `LAST`: there are no more.
#[inline(always)]
unsafe fn sixteen<V: Vector, const LAST: bool, const KEEP: bool>(
    p: *mut f32,
    t: &Transform,
    first: usize,
) {
    // SAFETY: sixteen rows.
    unsafe {
        let mut v = [V::splat(0); 16];
        for i in 0..16 {
            v[i] = V::read(p.add(WIDTH * i)).xor(V::splat(sign(t, first + i)));
        }
        macro_rules! stage {
            ($h:literal) => {
                for i in 0..16 {
                    if i & $h == 0 {
                        let (a, b) = (v[i], v[i + $h]);
                        v[i] = a.fadd(b);
                        v[i + $h] = a.fsub(b);
                    }
                }
            };
        }
        stage!(1);
        stage!(2);
        stage!(4);
        stage!(8);
        let normalizer = V::splat_f32(t.normalizer);
        for i in 0..16 {
            let y = match LAST {
                true => finish::<V, KEEP>(v[i], normalizer),
                false => v[i],
            };
            y.write(p.add(WIDTH * i));
        }
    }
}

/// Blocks above sixteen.
#[inline(always)]
unsafe fn long<V: Vector, const KEEP: bool>(p: *mut f32, t: &Transform) {
    // SAFETY: every index below is under t.n.
    unsafe {
        for first in (0..t.n).step_by(16) {
            sixteen::<V, false, KEEP>(p.add(WIDTH * first), t, first);
        }
        let normalizer = V::splat_f32(t.normalizer);
        let mut stride = 16;
        while stride < t.n {
            let last = 2 * stride == t.n;
            for i in 0..t.n {
                if i & stride != 0 {
                    continue;
                }
                let (p, q) = (p.add(WIDTH * i), p.add(WIDTH * (i + stride)));
                let (a, b) = (V::read(p), V::read(q));
                let (mut y, mut z) = (a.fadd(b), a.fsub(b));
                if last {
                    y = finish::<V, KEEP>(y, normalizer);
                    z = finish::<V, KEEP>(z, normalizer);
                }
                y.write(p);
                z.write(q);
            }
            stride *= 2;
        }
    }
}
