//! NVFP4 and MXFP4 training numerics behind a stable C ABI: quantize, dequantize, random Hadamard transform,
//! stochastic rounding, block-scaled GEMM, and whole training recipes. One answer on every backend.
//!
//! The way of one call, top to bottom; imports point only downwards:
//!
//! | module | what it does |
//! |---|---|
//! | `ffi` | every `extern "C"` function, one file a noun: `boundary(read -> plan -> run)` |
//! | `abi` | the `#[repr(C)]` descriptors; reading them into Rust values, size first |
//! | `recipe`, `linear` | named recipes; a recipe applied to fprop, dgrad and wgrad |
//! | `plan` | descriptor -> plan value, or an error that names the values. Pure |
//! | `cpu`, `cuda` | `run(plan)` on one backend |
//! | `numerics` | the contract (docs/format.md) as slow, clear code: the oracle of everything |
//! | `error` | `Error` <-> status code |

#[allow(missing_docs)]
pub mod abi;
pub mod context;
#[allow(missing_docs)]
pub mod cpu;
pub mod error;
#[allow(missing_docs)]
pub mod ffi;
#[allow(missing_docs)]
pub mod linear;
mod log;
pub mod numerics;
#[allow(missing_docs)]
pub mod plan;
pub mod recipe;

pub use context::Context;
pub use error::{Error, Result};
