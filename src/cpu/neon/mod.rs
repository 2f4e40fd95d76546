//! Kernels for AArch64 (NEON is part of its base): rows of a copy, amax, dequantize and products. What they do not know
//! goes to the scalar entry.

pub mod dequantize;
pub mod gemm;
mod half;
mod kernel;
mod pack;
pub mod quantize;
pub mod table;

#[cfg(test)]
mod tests;
