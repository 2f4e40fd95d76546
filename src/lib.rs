//! NVFP4 and MXFP4 training numerics behind a stable C ABI.
