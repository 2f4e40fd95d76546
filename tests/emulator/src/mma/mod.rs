//! Matrix multiply-accumulate: arithmetic, fragments and descriptors.
//!
//! Everything here works on registers as `[u32; LANES]` arrays ("register-major":
//! `regs[r][lane]`), on descriptors as plain words, on shared memory through
//! [`SharedMemory`] and on tensor memory through [`crate::tmem::TensorMemory`].
//! Every check fails with a sentence that holds the offending values; the caller
//! adds kernel, line and thread.
//!
//! | instruction | function |
//! |---|---|
//! | `mma.sync` f16, bf16, tf32, fp8 | [`sync::mma_sync`]`(&MmaSync, a, b, c) -> Result<Vec<[u32; 32]>, String>` |
//! | `mma.sync` s8, u8 | [`sync::mma_sync_int`]`(m, k, a_signed, b_signed, sat, a, b, c)` |
//! | `mma.sync ... block_scale` | [`sync::mma_sync_block_scale`]`(&BlockScale, a, b, c, sfa, sfa_sel, sfb, sfb_sel)` |
//! | `wgmma.mma_async` | [`wgmma::wgmma`]`(&Wgmma, a, b_desc, smem, acc)`, or [`wgmma::wgmma_warp`] for one warp's sixteen rows |
//! | `tcgen05.mma` | [`umma::umma`]`(&Umma, &UmmaArgs, &mut [CtaMemory])`, with [`idesc::InstrDesc`] |
//! | shared-memory matrix descriptors | [`desc::MatrixDesc`] |
//!
//! Glue between these functions and the interpreter (registers, proxies, mbarriers) belongs
//! in `exec/mma_ops.rs`, `exec/tma_ops.rs` and `lower/tensor.rs`; it is written from this
//! side, against the hooks of the same names, as soon as the interpreter stands on main.
//!
//! Arithmetic by itself, one output element at a time: [`arith::dot_add`] (dense),
//! [`arith::block_scaled_dot_add`] (mxf4, mxf4nvf4), [`arith::scaled_dot_add`]
//! (mxf8f6f4).
//!
//! # Cross-checking a whole GEMM in the hardware's numerics
//!
//! [`hardware_gemm_step`] is one K = 64 step of one output element, from packed
//! codes and scale bytes exactly as they lie in memory. A library's HARDWARE
//! accumulate mode for NVFP4 must equal, for every (m, n),
//!
//! ```text
//! let mut acc = 0u32;                         // +0.0; or the bits of C
//! for s in 0..K.div_ceil(64) {                // ascending K, one accumulator
//!     acc = hardware_gemm_step(
//!         &a_row[32 * s..32 * s + 32],        // packed, low nibble first; pad with 0
//!         &b_row[32 * s..32 * s + 32],
//!         &a_scales[4 * s..4 * s + 4],        // linear E4M3 bytes of the row; pad with 0
//!         &b_scales[4 * s..4 * s + 4],
//!         ScaleType::Ue4m3, acc);
//! }
//! ```
//!
//! (MXFP4: two UE8M0 bytes a step and `ScaleType::Ue8m0`; its padding is 0 as well,
//! the scale 2^-127 of a zero product: it has no effect on a finite sum whose
//! accumulator is normal or zero, since a zero accumulator already counts as 2^-126.)
//! K = 96 instructions: 48 bytes and 6 (3) scales a step through the same function.
//! A zero result is +0 always (also when a tiny negative sum is truncated away); a sum
//! past the f32 range becomes infinite; an infinite accumulator stays as it is (the
//! published model leaves that open).

pub mod arith;
pub mod desc;
pub mod idesc;
pub mod sync;
pub mod umma;
pub mod wgmma;

#[cfg(test)]
mod golden;

pub use arith::{hardware_gemm_step, Acc, Elem, ScaleType};

/// Byte-addressed shared memory of one CTA as a tensor core sees it. The
/// interpreter implements it over its checked memory; tests over a byte slice.
pub trait SharedMemory {
    /// Copies `out.len()` bytes from `addr`, or says why that is not allowed.
    fn read(&self, addr: u32, out: &mut [u8]) -> Result<(), String>;
}

impl SharedMemory for [u8] {
    fn read(&self, addr: u32, out: &mut [u8]) -> Result<(), String> {
        let start = addr as usize;
        let source = self.get(start..start + out.len()).ok_or_else(|| {
            format!("shared memory read of {} bytes at {addr:#x} is outside the {:#x} bytes of the CTA", out.len(), self.len())
        })?;
        out.copy_from_slice(source);
        Ok(())
    }
}

impl SharedMemory for Vec<u8> {
    fn read(&self, addr: u32, out: &mut [u8]) -> Result<(), String> {
        self.as_slice().read(addr, out)
    }
}
