//! Matrix multiply-accumulate arithmetic, fragments and descriptors.
