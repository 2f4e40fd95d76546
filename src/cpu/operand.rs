//! A quantized operand as kernels read it: raw pointers and strides, checked by the plan before they come here.

use crate::numerics::layout::swizzled_offset;
use crate::numerics::ScaleLayout;
use crate::plan::Quantized;

/// Codes and scale bytes of a matrix whose blocks lie along its rows.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub codes: *const u8,
    /// Bytes from one row of codes to the next.
    pub code_stride: usize,
    pub scales: *const u8,
    /// Bytes from one row of scales to the next; unused when swizzled.
    pub scale_stride: usize,
    pub swizzled: bool,
    pub rows: usize,
    pub cols: usize,
    /// Elements a scale byte: 16 or 32.
    pub block: usize,
}

// SAFETY: an Operand is only read through, and whoever makes one keeps its memory alive and unchanged during the call.
unsafe impl Send for Operand {}
// SAFETY: as above.
unsafe impl Sync for Operand {}

impl Operand {
    /// A checked quantized matrix; not of the BF16 format.
    pub fn of(q: &Quantized) -> Operand {
        Operand {
            codes: q.codes,
            code_stride: q.code_stride,
            scales: q.scales,
            scale_stride: q.scale_stride,
            swizzled: q.scale_layout == ScaleLayout::Swizzled,
            rows: q.rows,
            cols: q.cols,
            block: q.format.block(),
        }
    }

    /// Scale bytes of a row.
    pub fn scale_cols(&self) -> usize {
        self.cols.div_ceil(self.block)
    }

    /// Codes of a row from element `first` (even) on.
    ///
    /// # Safety
    /// `row` and `first` must lie inside the matrix.
    pub unsafe fn code_row(&self, row: usize, first: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { self.codes.add(row * self.code_stride + first / 2) }
    }

    /// Copies the scale bytes of blocks `first..first + out.len()` of a row; blocks past the end read as 0.
    ///
    /// # Safety
    /// `row` must lie inside the matrix.
    #[inline]
    pub unsafe fn read_scales(&self, row: usize, first: usize, out: &mut [u8]) {
        let cols = self.scale_cols();
        let n = out.len().min(cols.saturating_sub(first));
        out[n..].fill(0);
        // SAFETY: blocks below scale_cols of a row inside the matrix.
        unsafe {
            if !self.swizzled {
                let p = self.scales.add(row * self.scale_stride + first);
                std::ptr::copy_nonoverlapping(p, out.as_mut_ptr(), n);
            } else {
                for (i, o) in out[..n].iter_mut().enumerate() {
                    *o = *self.scales.add(swizzled_offset(row, first + i, cols));
                }
            }
        }
    }
}

/// Exponent bytes of MXFP4 within which no term of a product under- or overflows f32, so that an FMA's single rounding
/// is the contract's.
pub const SAFE_LOW: u8 = 127 - 50;
pub const SAFE_HIGH: u8 = 127 + 50;

/// Whether every MXFP4 scale lies in the safe range, is NaN, or belongs to a block of zeros.
///
/// # Safety
/// `m` must describe readable memory.
pub unsafe fn mx_is_safe(m: &Operand) -> bool {
    let mut bytes = [0u8; 256];
    for row in 0..m.rows {
        let mut first = 0;
        while first < m.scale_cols() {
            let n = (m.scale_cols() - first).min(256);
            // SAFETY: rows and blocks inside the matrix.
            unsafe { m.read_scales(row, first, &mut bytes[..n]) };
            let unsafe_byte = |&b: &u8| b < SAFE_LOW || (b > SAFE_HIGH && b != 255);
            if bytes[..n].iter().fold(false, |u, b| u | unsafe_byte(b)) {
                for (i, b) in bytes[..n]
                    .iter()
                    .enumerate()
                    .filter(|(_, b)| unsafe_byte(b))
                {
                    let start = (first + i) * 32;
                    let len = (m.cols - start).min(32).div_ceil(2);
                    // SAFETY: the block's bytes inside the row.
                    let codes = unsafe { std::slice::from_raw_parts(m.code_row(row, start), len) };
                    if *b > SAFE_HIGH || codes.iter().any(|c| c & 0x77 != 0) {
                        return false;
                    }
                }
            }
            first += n;
        }
    }
    true
}
