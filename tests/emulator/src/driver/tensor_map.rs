//! Tensor maps.
