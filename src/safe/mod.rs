//! The safe Rust API: owned tensors in host memory over the same plans as the C ABI. Small on purpose; streams, device
//! memory, strided views, batches and workspaces are the C ABI's.
//!
//! ```
//! use nvfp4::{Context, Options, Tensor};
//!
//! let ctx = Context::cpu(0);
//! let x = Tensor::from_f32(2, 32, (0..64).map(|i| i as f32).collect())?;
//! let w = Tensor::from_f32(3, 32, vec![0.5; 96])?;
//! let a = nvfp4::quantize(&ctx, &x, &Options::default())?;
//! let b = nvfp4::quantize(&ctx, &w, &Options::default())?;
//! let y = nvfp4::gemm(&ctx, &a, &b, &nvfp4::Gemm::default())?; // x w^T, [2, 3]
//! assert_eq!((y.rows(), y.cols()), (2, 3));
//! assert_eq!(a.amax(), [63.0]);
//! # Ok::<(), nvfp4::Error>(())
//! ```

mod linear;
mod ops;
mod tensor;

pub use linear::{linear_dgrad, linear_fprop, linear_wgrad, Layer};
pub use ops::{
    amax, dequantize, dequantize_transposed, gemm, hadamard, quantize, quantize_with, transpose,
    Gemm, Hadamard, Quantize,
};
pub use tensor::{QuantizedTensor, Tensor};
