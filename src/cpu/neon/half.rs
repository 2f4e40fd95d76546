//! Conversions of half precision, by inline assembly: the intrinsics are not in stable Rust.

use std::arch::aarch64::*;
use std::arch::asm;

/// Four values as f32.
#[inline]
pub fn widen(x: uint16x4_t) -> float32x4_t {
    let y: float32x4_t;
    // SAFETY: registers only; part of AArch64's base.
    unsafe {
        asm!("fcvtl {y:v}.4s, {x:v}.4h", y = out(vreg) y, x = in(vreg) x, options(pure, nomem, nostack, preserves_flags));
    }
    y
}

/// Four values to nearest even; too large ones become infinite.
#[inline]
pub fn narrow(x: float32x4_t) -> uint16x4_t {
    let y: uint16x4_t;
    // SAFETY: as above.
    unsafe {
        asm!("fcvtn {y:v}.4h, {x:v}.4s", y = out(vreg) y, x = in(vreg) x, options(pure, nomem, nostack, preserves_flags));
    }
    y
}
