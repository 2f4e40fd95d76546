//! Properties of the numerics contract, held by the scalar reference.

mod data;
mod digests;
mod epilogue;
mod errors;
mod examples;
mod gemm;
mod gemm_hardware;
mod quantize;
mod sharding;
mod special;
mod stochastic;
