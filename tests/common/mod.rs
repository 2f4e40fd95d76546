//! What the tests of the library share: data, and calls through the C ABI compared with the scalar contract.
#![allow(dead_code, unused_imports)]

mod data;
mod packed;
mod setup;
mod ways;

pub use data::*;
pub use packed::*;
pub use setup::*;
pub use ways::*;

use std::ffi::CStr;
use std::mem::{size_of, zeroed};

use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::*;

/// A context of the C ABI.
pub struct Ctx(pub *mut nvfp4_context);

// SAFETY: a context may be used from many threads.
unsafe impl Send for Ctx {}
// SAFETY: as above.
unsafe impl Sync for Ctx {}

impl Ctx {
    pub fn new(threads: u32) -> Ctx {
        let desc = nvfp4_context_desc {
            struct_size: size_of::<nvfp4_context_desc>(),
            device: NVFP4_DEVICE_CPU,
            ordinal: 0,
            threads,
            reserved: 0,
        };
        let mut ctx = std::ptr::null_mut();
        // SAFETY: valid pointers.
        assert_eq!(unsafe { nvfp4_context_create(&desc, &mut ctx) }, NVFP4_OK);
        Ctx(ctx)
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        // SAFETY: made by nvfp4_context_create.
        unsafe { nvfp4_context_destroy(self.0) };
    }
}

/// The last error's sentence.
pub fn last_error() -> String {
    // SAFETY: a NUL-terminated string of this thread.
    unsafe { CStr::from_ptr(nvfp4_last_error()) }
        .to_str()
        .unwrap()
        .to_owned()
}

#[track_caller]
pub fn ok(status: nvfp4_status) {
    assert_eq!(status, NVFP4_OK, "{}", last_error());
}

/// The call failed with this status, and its sentence holds these words.
#[track_caller]
pub fn fails(status: nvfp4_status, want: nvfp4_status, words: &[&str]) {
    let text = last_error();
    assert_eq!(status, want, "{text}");
    for word in words {
        assert!(text.contains(word), "{text:?} does not hold {word:?}");
    }
}

/// A descriptor, all zero but its size.
pub fn zero<T>() -> T {
    // SAFETY: only used for the ABI's plain descriptors, for which all zero is valid; each starts with its size.
    unsafe {
        let mut value: T = zeroed();
        (&mut value as *mut T).cast::<usize>().write(size_of::<T>());
        value
    }
}

/// Rust options as C has them.
pub fn c_options(o: &Options) -> nvfp4_options {
    let (signs, sign_mask) = match o.signs {
        Signs::Default => (NVFP4_SIGNS_DEFAULT, [0; 4]),
        Signs::Mask16(m) => (NVFP4_SIGNS_MASK16, [m as u32, 0, 0, 0]),
        Signs::Mask(m) => (NVFP4_SIGNS_MASK, m),
        Signs::Seeded => (NVFP4_SIGNS_SEEDED, [0; 4]),
    };
    let mut c: nvfp4_options = zero();
    c.format = o.format as u32;
    c.block = o.block as u32;
    c.chain = o.chain as u32;
    c.scale_rule = o.scale_rule as u32;
    c.rounding = o.rounding as u32;
    c.scale_layout = o.scale_layout as u32;
    c.select = o.select as u32;
    c.hadamard = o.hadamard;
    c.signs = signs;
    c.sign_mask = sign_mask;
    c.flags = if o.keep_f32 { NVFP4_KEEP_F32 } else { 0 }
        | if o.range_16_17 { NVFP4_RANGE_16_17 } else { 0 }
        | if o.half_scale { NVFP4_MX_HALF_SCALE } else { 0 };
    c.domain_rows = o.domain_rows as i64;
    c.c = o.c;
    c
}

/// Within `ulps` units in the last place of f32.
#[track_caller]
pub fn near(have: f32, want: f32, ulps: u32, what: &str) {
    let key = |v: f32| {
        let bits = v.to_bits() as i32;
        if bits < 0 {
            i32::MIN - bits
        } else {
            bits
        }
    };
    let distance = (key(have) as i64 - key(want) as i64).unsigned_abs();
    assert!(
        have.is_finite() && distance <= ulps as u64,
        "{what}: {have:e}, want {want:e} within {ulps} ulp"
    );
}

/// Runs a test of this binary again with the scalar kernels, where the processor would choose faster ones.
#[track_caller]
pub fn again_in_scalar(test: &str) {
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("NVFP4_CPU_ISA", "scalar")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && text.contains("1 passed"),
        "with scalar kernels:\n{text}"
    );
}
