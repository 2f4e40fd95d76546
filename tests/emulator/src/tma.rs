//! Tensor maps and the box copies they describe.
