//! Properties of the numerics contract, held by the scalar reference.

mod data;
mod digests;
mod errors;
mod examples;
mod gemm;
mod quantize;
mod sharding;
mod stochastic;
