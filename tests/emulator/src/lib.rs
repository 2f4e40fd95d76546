//! An emulated GPU: the CUDA driver API outside, a PTX interpreter inside.
//!
//! A test tool. It is functional, not timed, and it is never shipped.
//!
//! The way of a kernel: `parse` (text to tree), `lower` (tree to decoded
//! instructions, `ir`), `launch` (clusters over host threads), `exec` (the
//! machine), with `shared` and `mem` holding memory and its checks.

pub mod arch;
pub mod convert;
pub mod counters;
#[allow(clippy::missing_safety_doc, non_snake_case, clippy::not_unsafe_ptr_arg_deref)]
pub mod cudart;
#[allow(clippy::missing_safety_doc, non_snake_case, clippy::not_unsafe_ptr_arg_deref)]
pub mod driver;
pub mod exec;
pub mod fault;
pub mod fp;
pub mod ir;
pub mod launch;
pub mod lower;
pub mod mem;
pub mod mma;
pub mod parse;
pub mod plant;
pub mod shared;
pub mod tma;
pub mod tmem;
