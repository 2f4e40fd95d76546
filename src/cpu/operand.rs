//! A quantized operand as kernels read it: raw pointers and strides, checked by the plan before they come here.

use crate::numerics::layout::swizzled_offset;

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
