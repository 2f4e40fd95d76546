//! Tensor copies.
pub struct TmaOp;
