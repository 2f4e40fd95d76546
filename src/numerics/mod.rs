//! The numerics contract as the slowest, clearest code: docs/format.md in Rust. It is the oracle of everything: every
//! fast path must equal it, byte for byte.
//!
//! Notation of the contract: `fl(.)` is one binary32 operation, round to nearest even, subnormals kept, never
//! contracted into an FMA. Rust's f32 operators are exactly that.
//!
//! Scalars first, then blocks, then whole matrices: `e2m1 e4m3 e8m0 philox rounding special layout` are functions of
//! one number; `scale mx four_over_six ms_eden hadamard` of one block; `matrix quantize dequantize gemm` of a
//! whole matrix.

pub mod activation;
pub mod check;
pub mod dequantize;
pub mod e2m1;
pub mod e4m3;
pub mod e8m0;
pub mod four_over_six;
pub mod gemm;
pub mod gemm_fast;
pub mod gemm_hardware;
pub mod hadamard;
pub mod known;
pub mod layout;
pub mod matrix;
pub mod ms_eden;
pub mod mx;
pub mod options;
pub mod philox;
pub mod quantize;
pub mod rounding;
pub mod scale;
pub mod special;

pub use options::*;
