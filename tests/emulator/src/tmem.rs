//! Tensor memory and its load, store and copy layouts.
