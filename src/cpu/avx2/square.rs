//! Square tiles of a rowwise copy (cpu/vector/square.rs), compiled for AVX2.

use super::lanes::*;
use super::quantize::{encode_group, store_scales};
use super::vector::V8;
use crate::cpu::rows::Square;
use crate::cpu::rule::{Draw, Rule};
use crate::cpu::vector::{
    by_type,
    square::{Held, MOST},
};
use crate::numerics::Dtype;
use std::arch::x86_64::*;

pub struct SquareRows(Held);

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load<const DT: u8>(held: &mut Held, r: usize, p: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { held.load::<V8, DT>(r, p, n) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scale(held: &mut Held, rule: &Rule) -> bool {
    // SAFETY: 128 magnitudes, eight multipliers, eight bytes.
    unsafe {
        let p = held.largest.as_ptr();
        let mut b = [_mm256_setzero_si256(); 8];
        for (i, b) in b.iter_mut().enumerate() {
            let p = p.add(16 * i);
            let (low, high) = (
                _mm256_loadu_si256(p.cast()),
                _mm256_loadu_si256(p.add(8).cast()),
            );
            *b = _mm256_max_epu32(low, high);
        }
        let b = maxima8(b);
        let b = match rule.block() {
            32 => _mm256_max_epu32(b, _mm256_shuffle_epi32::<0xB1>(b)),
            _ => b,
        };
        let s = scales(b, rule);
        store_scales(s.code, rule.block(), held.scales.as_mut_ptr());
        _mm256_storeu_ps(held.e.as_mut_ptr(), s.e);
        held.bad = _mm256_movemask_ps(_mm256_castsi256_ps(s.bad)) as u32;
    }
    held.bad != 0
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
        // SAFETY: as above.
        unsafe { scale(&mut self.0, rule) }
    }

    fn scales(&self) -> &[u8] {
        &self.0.scales
    }

    unsafe fn codes(&self, r: usize, n: usize, draw: Option<&Draw>, out: *mut u8) {
        let mut codes = [0u8; 64];
        // SAFETY: 128 elements in, 64 bytes out.
        unsafe {
            let p = self.0.values[r].as_ptr().cast();
            encode_group(p, &self.0.e, draw, codes.as_mut_ptr());
            for i in (0..8).filter(|i| self.0.bad >> i & 1 != 0) {
                codes[8 * i..][..8].fill(0);
            }
            std::ptr::copy_nonoverlapping(codes.as_ptr(), out, n.div_ceil(2));
        }
    }
}
