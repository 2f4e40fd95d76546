//! Rowwise quantization of square tiles: rows that share scales are held together in f32.

use super::encode::{encode_group, zero_bad};
use super::lanes::*;
use super::quantize::*;
use crate::cpu::rows::Square;
use crate::cpu::rule::{Draw, Rule};
use crate::cpu::vector::by_type;
use crate::numerics::Dtype;
use std::arch::x86_64::*;

/// Up to 32 rows of 256 elements.
#[repr(C, align(64))]
pub struct SquareRows {
    values: [[f32; GROUP]; 32],
    /// Largest magnitudes of each column so far, as bits.
    largest: [u32; GROUP],
    e: [f32; GROUP / 16],
    scales: [u8; GROUP / 16],
    clip: bool,
    bad: __mmask16,
}

impl SquareRows {
    const fn empty() -> SquareRows {
        SquareRows {
            values: [[0.0; GROUP]; 32],
            largest: [0; GROUP],
            e: [0.0; GROUP / 16],
            scales: [0; GROUP / 16],
            clip: false,
            bad: 0,
        }
    }

    /// Takes row `r` (in ascending order from 0), `n` elements at `p`, the others +0.
    ///
    /// # Safety
    /// `p` must be readable for `n` elements; the processor must be able to run this.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
    unsafe fn load_row<const DT: u8>(&mut self, r: usize, p: *const u8, n: usize) {
        for i in (0..GROUP).step_by(16) {
            // SAFETY: the mask holds what is left of n; arrays hold GROUP elements.
            unsafe {
                // The next 256 elements of the row; prefetches never fault.
                let next = p.wrapping_add((i + GROUP) * size::<DT>());
                _mm_prefetch::<_MM_HINT_T1>(next.cast());
                let v = match n.saturating_sub(i) {
                    0 => _mm512_setzero_ps(),
                    left => load_masked::<DT>(p.add(i * size::<DT>()), mask16(left)),
                };
                _mm512_store_ps(self.values[r].as_mut_ptr().add(i), v);
                let p = self.largest.as_mut_ptr().add(i).cast();
                let before = if r == 0 {
                    _mm512_setzero_si512()
                } else {
                    _mm512_load_si512(p)
                };
                _mm512_store_si512(p.cast(), _mm512_max_epu32(before, abs_bits(v)));
            }
        }
    }

    /// Scales of the tiles of the rows taken. Returns whether a tile was non-finite.
    ///
    /// # Safety
    /// The processor must be able to run this.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
    unsafe fn find_scales(&mut self, rule: &Rule) -> bool {
        // SAFETY: GROUP magnitudes, sixteen multipliers, sixteen bytes.
        unsafe {
            let mut b = maxima::<F32>(self.largest.as_ptr().cast(), 0);
            if rule.block() == 32 {
                b = pair(b);
            }
            let s = scales(b, rule);
            store_scales(s.code, rule.block(), self.scales.as_mut_ptr());
            _mm512_storeu_ps(self.e.as_mut_ptr(), s.e);
            self.clip = s.clip != 0;
            self.bad = s.bad;
            s.bad != 0
        }
    }

    /// Writes the codes of row `r`, ceil(n / 2) bytes; `draw` starts at its first element.
    ///
    /// # Safety
    /// `out` must be writable for them; the processor must be able to run this.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
    unsafe fn row_codes(&self, r: usize, n: usize, draw: Option<&Draw>, out: *mut u8) {
        let mut codes = [0u8; GROUP / 2];
        let p = self.values[r].as_ptr().cast();
        // SAFETY: GROUP elements in, GROUP / 2 bytes out.
        unsafe {
            encode_group(p, &self.e, self.clip, draw, codes.as_mut_ptr());
            if self.bad != 0 {
                zero_bad(&[self.bad], codes.as_mut_ptr());
            }
            std::ptr::copy_nonoverlapping(codes.as_ptr(), out, n.div_ceil(2));
        }
    }
}

// SAFETY: memory as `Square` says it.
unsafe impl Square for SquareRows {
    const GROUP: usize = GROUP;

    fn new() -> SquareRows {
        SquareRows::empty()
    }

    unsafe fn load(&mut self, dtype: Dtype, r: usize, p: *const u8, n: usize) {
        // SAFETY: the caller's promise, here and below.
        unsafe { by_type!(dtype, self.load_row(r, p, n)) }
    }

    unsafe fn scale(&mut self, rule: &Rule) -> bool {
        // SAFETY: as above.
        unsafe { self.find_scales(rule) }
    }

    fn scales(&self) -> &[u8] {
        &self.scales
    }

    unsafe fn codes(&self, r: usize, n: usize, draw: Option<&Draw>, out: *mut u8) {
        // SAFETY: as above.
        unsafe { self.row_codes(r, n, draw, out) }
    }
}
