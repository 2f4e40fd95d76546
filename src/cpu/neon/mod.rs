//! Kernels for AArch64 (NEON is part of its base): rows and columns of a copy, amax, dequantize
//! and products.

pub mod dequantize;
pub mod gemm;
mod half;
mod kernel;
mod pack;
pub mod quantize;
mod square;
pub mod table;
pub mod vector;

#[cfg(test)]
mod tests;
