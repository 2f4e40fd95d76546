//! NVFP4 and MXFP4 training numerics behind a stable C ABI: quantize, dequantize, random Hadamard transform,
//! stochastic rounding, block-scaled GEMM, and whole training recipes. One answer on every backend.
//!
//! The way of one call, top to bottom; imports point only downwards (tests/abi.rs checks it):
//!
//! | module | what it does |
//! |---|---|
//! | `ffi` | every `extern "C"` function, one file a noun: `boundary(\|\| read -> plan -> run)`; `read` takes C's structs size first, `convert` makes them Rust values, `boundary` turns errors and panics into a code |
//! | `safe` | the same for Rust: owned tensors and functions over them, re-exported here |
//! | `selftest` | known answers through every operation of a context |
//! | `linear`, `recipe` | a recipe applied to fprop, dgrad and wgrad; named recipes |
//! | `context` | the one place that chooses a backend: plans, then runs |
//! | `cuda` | `run(plan)` on a GPU, by the kernels of kernels/; tries them against `cpu` where they are not certified |
//! | `cpu` | `run(plan)` on the CPU, tile by tile |
//! | `plan` | what was asked for becomes a plan value, or an error that names the values. Pure |
//! | `numerics` | the contract (docs/format.md) as slow, clear code: the oracle of everything |
//! | `abi`, `error`, `log` | the `#[repr(C)]` structs and constants; `Error` and its status code; the log |
//!
//! So `nvfp4_quantize` is: `ffi/quantize.rs` reads the descriptor, `Context::quantize` plans it
//! (`plan/quantize.rs`: every check is there) and hands the plan to `cpu/quantize.rs`, which cuts it into tiles; a
//! tile is loaded and transformed in `cpu/panel.rs` and becomes codes and scales in `cpu/encode.rs`.

// Public for the library's own tests and benches, not for users: everything that is hidden from the documentation.
pub mod abi;
pub mod context;
#[doc(hidden)]
pub mod cpu;
#[cfg(feature = "cuda")]
#[allow(missing_docs)]
pub mod cuda;
pub mod error;
#[doc(hidden)]
pub mod ffi;
#[doc(hidden)]
pub mod linear;
mod log;
pub mod numerics;
#[doc(hidden)]
pub mod plan;
pub mod recipe;
mod safe;
#[doc(hidden)]
pub mod selftest;

pub use context::Context;
pub use error::{Error, Result};
pub use numerics::{Dtype, Format, Options};
pub use recipe::Recipe;
pub use safe::*;
