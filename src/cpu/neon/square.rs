//! Square tiles of a rowwise copy (cpu/vector/square.rs) on NEON.

use super::quantize::{encode_group, scale_group, GROUP};
use super::vector::V4;
use crate::cpu::rows::Square;
use crate::cpu::rule::{Draw, Rule};
use crate::cpu::vector::{
    by_type,
    square::{Held, MOST},
    Vector, F32,
};
use crate::numerics::Dtype;

pub struct SquareRows(Held);

unsafe fn load<const DT: u8>(held: &mut Held, r: usize, p: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { held.load::<V4, DT>(r, p, n) }
}

// SAFETY: memory as `Square` says it.
unsafe impl Square for SquareRows {
    const GROUP: usize = MOST;

    fn new() -> SquareRows {
        SquareRows(Held::new())
    }

    unsafe fn load(&mut self, dtype: Dtype, r: usize, p: *const u8, n: usize) {
        // SAFETY: the caller's promise, here and below.
        unsafe { by_type!(dtype, load(&mut self.0, r, p, n)) }
    }

    unsafe fn scale(&mut self, rule: &Rule) -> bool {
        let held = &mut self.0;
        held.bad = 0;
        for half in 0..2 {
            let p = held.largest[GROUP * half..].as_ptr();
            let out = held.scales[GROUP / rule.block() * half..].as_mut_ptr();
            // SAFETY: 64 magnitudes, 64 / block bytes.
            let (e, flags) = unsafe {
                let b = core::array::from_fn(|i| {
                    let m: [V4; 4] = core::array::from_fn(|j| V4::read(p.add(16 * i + 4 * j)));
                    m[0].umax(m[1]).umax(m[2].umax(m[3])).0
                });
                scale_group(b, rule, out)
            };
            held.e[4 * half..][..4].copy_from_slice(&e);
            for (i, flag) in flags.iter().enumerate() {
                held.bad |= (flag & 1) << (4 * half + i);
            }
        }
        held.bad != 0
    }

    fn scales(&self) -> &[u8] {
        &self.0.scales
    }

    unsafe fn codes(&self, r: usize, n: usize, draw: Option<&Draw>, out: *mut u8) {
        let mut codes = [0u8; MOST / 2];
        // SAFETY: twice 64 elements in, 32 bytes out.
        unsafe {
            for half in 0..2 {
                let flags = core::array::from_fn(|i| self.0.bad >> (4 * half + i) & 1);
                let p = self.0.values[r][GROUP * half..].as_ptr().cast();
                let c = codes[GROUP / 2 * half..].as_mut_ptr();
                encode_group::<F32>(p, &self.0.e[4 * half..], &flags, draw, 4 * half, c);
            }
            std::ptr::copy_nonoverlapping(codes.as_ptr(), out, n.div_ceil(2));
        }
    }
}
