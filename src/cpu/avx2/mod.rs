//! Kernels for AVX2 with FMA and F16C (Haswell, Zen and later): rows and columns of a copy, amax,
//! dequantize and products. The sibling cpu/avxvnni differs in the products' inner kernel alone.

pub mod bf16;
pub mod dequantize;
pub mod gemm;
mod kernel;
pub mod lanes;
mod pack;
pub mod quantize;
mod square;
pub mod table;
mod three_rows;
pub mod vector;
pub mod weight;

/// Whether this processor has all that the kernels here use.
pub fn available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

#[cfg(test)]
mod tests;
