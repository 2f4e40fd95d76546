//! Errors of the library: one sentence with the values in it, one status code of the C ABI each.

use crate::abi::*;

/// Result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, in words that name the values. `status()` is the C ABI's code for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    InvalidArgument(String),
    #[error("{0} is NULL")]
    NullPointer(&'static str),
    #[error("{0}")]
    StructSize(String),
    #[error("{0}")]
    Shape(String),
    #[error("{0}")]
    Alignment(String),
    #[error("{0}")]
    BufferSize(String),
    #[error("{0}")]
    NotSupported(String),
    #[error("{0}")]
    Mismatch(String),
    #[error("{0}")]
    NoDevice(String),
    #[error("{0}")]
    NoKernel(String),
    #[error("{0}")]
    Driver(String),
    #[error("{0}")]
    OutOfMemory(String),
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// The C ABI's code of this error.
    pub fn status(&self) -> nvfp4_status {
        match self {
            Error::InvalidArgument(_) => NVFP4_ERR_INVALID_ARGUMENT,
            Error::NullPointer(_) => NVFP4_ERR_NULL_POINTER,
            Error::StructSize(_) => NVFP4_ERR_STRUCT_SIZE,
            Error::Shape(_) => NVFP4_ERR_SHAPE,
            Error::Alignment(_) => NVFP4_ERR_ALIGNMENT,
            Error::BufferSize(_) => NVFP4_ERR_BUFFER_SIZE,
            Error::NotSupported(_) => NVFP4_ERR_NOT_SUPPORTED,
            Error::Mismatch(_) => NVFP4_ERR_MISMATCH,
            Error::NoDevice(_) => NVFP4_ERR_NO_DEVICE,
            Error::NoKernel(_) => NVFP4_ERR_NO_KERNEL,
            Error::Driver(_) => NVFP4_ERR_DRIVER,
            Error::OutOfMemory(_) => NVFP4_ERR_OUT_OF_MEMORY,
            Error::Internal(_) => NVFP4_ERR_INTERNAL,
        }
    }
}
