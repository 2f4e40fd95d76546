//! Products on AMX tiles (Sapphire Rapids and later).
//!
//! `int8`: mode BLOCK, the contract's bits. A tile multiplication sums over 64 bytes of k, which is more than a block of
//! 16 or 32; so a step takes one block alone (tiles of 16 or 32 bytes of k), and the block's exact integers go through
//! memory to the vector unit, which scales and adds them as everywhere else.
//!
//! `bf16`: mode FAST alone. Code times block scale is exact in bf16 and a product of two exact in f32, but the tile adds
//! them up in its own order.
//!
//! Not for blocks of 16 in mode BLOCK: half the tile would be empty, and AVX-512 VNNI is faster (docs/measured.md).

pub mod bf16;
pub mod gemm;
pub mod int8;
pub mod pack;
pub mod table;

use std::arch::asm;

/// What is missing to use AMX, or None. Asks the kernel for leave to use tiles, which holds for the whole process.
pub fn missing() -> Option<&'static str> {
    macro_rules! all { ($($f:tt)*) => { $( std::arch::is_x86_feature_detected!($f) )&&* } }
    if !all!("avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vnni" "avx512vbmi") {
        return Some("the processor lacks AVX-512");
    }
    // SAFETY: leaf 7 exists where AVX-512 does. (Safe by itself in newer compilers.)
    #[allow(unused_unsafe)]
    let features = unsafe { std::arch::x86_64::__cpuid_count(7, 0).edx };
    for (bit, what) in [
        (24, "the processor lacks amx-tile"),
        (25, "the processor lacks amx-int8"),
        (22, "the processor lacks amx-bf16"),
    ] {
        if features >> bit & 1 == 0 {
            return Some(what);
        }
    }
    let enabled: u32;
    // SAFETY: XGETBV of register 0 exists wherever AVX does.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") enabled, out("edx") _, options(nomem, nostack));
    }
    if enabled >> 17 & 3 != 3 {
        return Some("the operating system does not keep tile registers");
    }
    ask()
}

/// Since Linux 5.16 a process asks before it uses tiles.
#[cfg(target_os = "linux")]
fn ask() -> Option<&'static str> {
    extern "C" {
        fn syscall(number: std::ffi::c_long, ...) -> std::ffi::c_long;
    }
    const ARCH_PRCTL: std::ffi::c_long = 158;
    const ARCH_REQ_XCOMP_PERM: std::ffi::c_long = 0x1023;
    const TILE_DATA: std::ffi::c_long = 18;
    // SAFETY: this call reads no memory of ours.
    let refused = unsafe { syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA) } != 0;
    refused.then_some("the kernel refuses tile registers (arch_prctl ARCH_REQ_XCOMP_PERM)")
}

#[cfg(not(target_os = "linux"))]
fn ask() -> Option<&'static str> {
    Some("no way is known to ask this operating system for tile registers")
}

/// Shapes of the eight tile registers, as LDTILECFG reads them.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// (rows, bytes of a row) of each register.
    fn new(shapes: [(u8, u16); 8]) -> Shapes {
        let mut s = Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for (i, (rows, bytes)) in shapes.into_iter().enumerate() {
            (s.rows[i], s.row_bytes[i]) = (rows, bytes);
        }
        s
    }

    /// # Safety
    /// `missing` must have returned None.
    unsafe fn load(&self) {
        // SAFETY: 64 bytes of a legal configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) self, options(nostack, readonly)) };
    }
}

/// Gives the tile registers up, so that context switches need not save them.
///
/// # Safety
/// `missing` must have returned None.
unsafe fn release() {
    // SAFETY: no operands.
    unsafe { asm!("tilerelease", options(nomem, nostack)) };
}

#[cfg(test)]
mod tests;
