//! Register access: 32 lanes side by side, with the blend that a partly active
//! warp needs.

use super::Machine;
use crate::ir::{Inst, Slot};

/// A value as instructions see it, and the register word that holds it.
pub trait Lane: Copy {
    type C: Copy + Default;
    /// Slots of the register.
    const W: u8 = (std::mem::size_of::<Self::C>() / 4) as u8;
    const FLOAT: bool = false;
    fn get(c: Self::C) -> Self;
    fn put(self) -> Self::C;
}

macro_rules! lane {
    ($($t:ty, $c:ty, $get:expr, $put:expr, $float:expr;)*) => {$(
        impl Lane for $t {
            type C = $c;
            const FLOAT: bool = $float;
            #[inline(always)]
            fn get(c: $c) -> $t { let f: fn($c) -> $t = $get; f(c) }
            #[inline(always)]
            fn put(self) -> $c { let f: fn($t) -> $c = $put; f(self) }
        }
    )*};
}

lane! {
    u8, u32, |c| c as u8, |v| v as u32, false;
    i8, u32, |c| c as i8, |v| v as u8 as u32, false;
    u16, u32, |c| c as u16, |v| v as u32, false;
    i16, u32, |c| c as i16, |v| v as u16 as u32, false;
    u32, u32, |c| c, |v| v, false;
    i32, u32, |c| c as i32, |v| v as u32, false;
    f32, u32, f32::from_bits, f32::to_bits, true;
    u64, u64, |c| c, |v| v, false;
    i64, u64, |c| c as i64, |v| v as u64, false;
    f64, u64, f64::from_bits, f64::to_bits, true;
    u128, u128, |c| c, |v| v, false;
}

impl Machine {
    /// The 32 words of a register.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub fn row<C>(&self, s: Slot) -> &mut [C; 32] {
        // SAFETY: lowering gave every register enough slots inside the warp's
        // file, rows are 128-byte aligned, and operand rows are copied before
        // the result row is written.
        unsafe { &mut *(self.regs.add(s as usize * 32) as *mut [C; 32]) }
    }

    #[inline(always)]
    pub fn pred(&self, p: u32) -> u32 {
        // SAFETY: predicate indices come from lowering and are in range.
        unsafe { *self.preds.add(p as usize) }
    }

    /// Write predicate bits of the active lanes.
    #[inline(always)]
    pub fn set_pred(&mut self, p: u32, bits: u32) {
        let m = self.mask;
        // SAFETY: as in `pred`.
        unsafe {
            let r = self.preds.add(p as usize);
            *r = (*r & !m) | (bits & m);
        }
    }

    #[inline(always)]
    pub fn store<C: Copy>(&mut self, d: Slot, t: &[C; 32]) {
        let r = self.row::<C>(d);
        if self.mask == !0 {
            *r = *t;
        } else {
            let m = self.mask;
            for l in 0..32 {
                if m >> l & 1 != 0 {
                    r[l] = t[l];
                }
            }
        }
    }

    #[inline(always)]
    pub fn un<A: Lane, D: Lane>(&mut self, i: &Inst, f: impl Fn(A) -> D) {
        let a = *self.row::<A::C>(i.a[1]);
        let mut t = [D::C::default(); 32];
        for l in 0..32 {
            t[l] = f(A::get(a[l])).put();
        }
        self.store(i.a[0], &t);
    }

    #[inline(always)]
    pub fn bin<A: Lane, B: Lane, D: Lane>(&mut self, i: &Inst, f: impl Fn(A, B) -> D) {
        let (a, b) = (*self.row::<A::C>(i.a[1]), *self.row::<B::C>(i.a[2]));
        let mut t = [D::C::default(); 32];
        for l in 0..32 {
            t[l] = f(A::get(a[l]), B::get(b[l])).put();
        }
        self.store(i.a[0], &t);
    }

    #[inline(always)]
    pub fn tri<A: Lane, B: Lane, E: Lane, D: Lane>(&mut self, i: &Inst, f: impl Fn(A, B, E) -> D) {
        let (a, b, c) = (*self.row::<A::C>(i.a[1]), *self.row::<B::C>(i.a[2]), *self.row::<E::C>(i.a[3]));
        let mut t = [D::C::default(); 32];
        for l in 0..32 {
            t[l] = f(A::get(a[l]), B::get(b[l]), E::get(c[l])).put();
        }
        self.store(i.a[0], &t);
    }

    #[inline(always)]
    pub fn cmp<A: Lane>(&mut self, i: &Inst, f: impl Fn(A, A) -> bool) -> u32 {
        let (a, b) = (*self.row::<A::C>(i.a[1]), *self.row::<A::C>(i.a[2]));
        let mut p = 0u32;
        for l in 0..32 {
            p |= (f(A::get(a[l]), A::get(b[l])) as u32) << l;
        }
        p
    }

    /// Lanes that are active, lowest first.
    #[inline(always)]
    pub fn lanes(&self) -> Lanes {
        Lanes(self.mask)
    }
}

#[derive(Clone, Copy)]
pub struct Lanes(pub u32);

impl Iterator for Lanes {
    type Item = usize;
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let l = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(l)
    }
}
