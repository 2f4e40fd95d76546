//! An emulated GPU: the CUDA driver API outside, a PTX interpreter inside.
//!
//! A test tool. It is functional, not timed, and it is never shipped.

pub mod convert;
pub mod mma;
pub mod tma;
pub mod tmem;
