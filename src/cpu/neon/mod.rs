//! Kernels for AArch64 (NEON is part of its base): rows of a copy and amax, for f32 and bf16 sources. What they do not
//! know goes to the scalar entry.

pub mod quantize;
pub mod table;

#[cfg(test)]
mod tests;
