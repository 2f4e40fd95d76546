//! Kernels for AVX-512 with VBMI and VNNI (Ice Lake, Zen 4 and later).

pub mod amax;
pub mod columnwise;
mod copy16;
pub mod dequantize;
mod encode;
pub mod gemm;
pub mod hadamard;
pub mod lanes;
pub mod philox;
pub mod quantize;
mod square;
pub mod table;

/// Whether this processor has all that the kernels here use.
pub fn available() -> bool {
    macro_rules! all { ($($f:tt)*) => { $( is_x86_feature_detected!($f) )&&* } }
    all!("avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vbmi" "avx512vnni")
}

#[cfg(test)]
mod tests;
