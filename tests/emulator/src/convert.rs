//! Number-format conversions of the `cvt` family.
