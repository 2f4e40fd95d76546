//! The CUDA driver API, as far as a host program of ours, or one built on the
//! CUDA runtime, calls it. Streams run eagerly: when a call returns, its work
//! is done; graphs record and replay.

pub mod context;
pub mod device;
pub mod event;
pub mod fatbin;
pub mod function;
pub mod graph;
pub mod launch;
pub mod memory;
pub mod module;
pub mod proc_address;
pub mod state;
pub mod stream;
pub mod tensor_map;
pub mod types;

pub use types::*;
