//! The numerics contract as the slowest, clearest code: docs/format.md in Rust. It is the oracle of everything: every
//! fast path must equal it, byte for byte.
//!
//! Notation of the contract: `fl(.)` is one binary32 operation, round to nearest even, subnormals kept, never
//! contracted into an FMA. Rust's f32 operators are exactly that.

pub mod options;

pub use options::*;
