//! Every `extern "C"` function, one file a noun. Each is a few lines: `boundary(|| read -> plan -> run)`.
//!
//! Safety, once for all of them: a caller in C promises what include/nvfp4.h says, namely that a pointer which is not
//! NULL points to what its type says (a descriptor to at least `struct_size` bytes, a buffer to the bytes that its
//! length fields state), that an nvfp4_context came from `nvfp4_context_create` and was not destroyed, and that no
//! other thread writes what a call reads, or uses what it writes, while it runs. Everything else is checked.
#![allow(clippy::missing_safety_doc, non_camel_case_types)]

mod boundary;
mod context;
mod convert;
mod dequantize;
mod gemm;
mod grouped;
mod hadamard;
mod linear;
mod log;
#[cfg(feature = "panic-test")]
mod panic_test;
mod quantize;
mod read;
mod recipe;
mod scales;
mod selftest;
mod supports;
mod version;
mod weight;

pub use boundary::*;
pub use context::*;
pub use dequantize::*;
pub use gemm::*;
pub use grouped::*;
pub use hadamard::*;
pub use linear::*;
pub use log::*;
pub use quantize::*;
pub use recipe::*;
pub use scales::*;
pub use selftest::*;
pub use supports::*;
pub use version::*;
pub use weight::*;
