//! Unbiased gradients by MS-EDEN (docs/format.md, section 9; idea: Quartet II).

/// What the largest magnitude of a block is mapped to: fl(6 / fl(fl(17/16) * fl(0.93))).
pub const VAL_MAX: f32 = 6.0 / (1.0625 * 0.93);
/// C of the outer scale: fl(fl(255.99) * VAL_MAX).
pub const C: f32 = 255.99 * VAL_MAX;
/// Length of the transform that must come first.
pub const TRANSFORM: usize = 128;
