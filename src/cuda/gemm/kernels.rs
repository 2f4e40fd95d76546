//! The GEMM kernels of a context. Those for one architecture are there only on it.

use super::lt_library::Library;
use crate::cuda::driver::Device;
use crate::cuda::kernels::{has_image, load, Kernel};
use crate::Result;

/// Dynamic shared memory of the Hopper kernels (kernels/gemm_sm90a.cu asserts it).
const FAST_SHARED: u32 = 231424;
const BLOCK_SHARED: u32 = 207872;
/// Of the sm_120 kernels (kernels/gemm_sm120.cu asserts it).
const SCALED_SHARED: u32 = 73728;
/// Of the sm_100 kernels (kernels/gemm_sm100a.cu asserts it): NVFP4 and MXFP4, for each of `Tensor::ways`.
const TENSOR_SHARED: [[u32; 2]; 3] = [[201728, 191488], [160768, 150528], [211968, 196608]];
/// Of the decode kernels (kernels/gemm_decode.cu asserts it): 8 and 16 rows of A.
const DECODE_SHARED: [u32; 2] = [36864, 73728];

pub struct GemmKernels {
    pub portable: Portable,
    /// The same for groups.
    pub grouped: Portable,
    /// Or why not.
    pub hopper: std::result::Result<Hopper, String>,
    pub decode: std::result::Result<Decode, String>,
    pub scaled: std::result::Result<Scaled, String>,
    pub tensor: std::result::Result<Tensor, String>,
    pub lt: std::result::Result<Library, String>,
    pub expand: Expand,
}

/// What cuBLASLt's operands are made by.
pub struct Expand {
    pub rows: Kernel,
    pub scalars: Kernel,
}

pub struct Decode {
    pub m8: Kernel,
    pub m16: Kernel,
    pub bf16_m8: Kernel,
    pub bf16_m16: Kernel,
}

pub struct Portable {
    pub fast: Kernel,
    pub block_nvfp4: Kernel,
    pub block_mxfp4: Kernel,
    pub chain: Kernel,
}

pub struct Hopper {
    pub expand_fast: Kernel,
    pub expand_block: Kernel,
    pub align: Kernel,
    pub gemm_fast: Kernel,
    pub gemm_block: Kernel,
}

/// Block-scaled mma.sync.
pub struct Scaled {
    pub nvfp4: Kernel,
    pub mxfp4: Kernel,
}

/// tcgen05.
pub struct Tensor {
    pub pack: Kernel,
    /// By tile: 128 x 128, 128 x 64, 256 x 256 a pair; NVFP4 and MXFP4.
    pub ways: [[Kernel; 2]; 3],
}

impl GemmKernels {
    /// Brings them into the current context.
    pub fn load(device: &Device) -> Result<GemmKernels> {
        let portable = |image, prefix: &str| {
            let load = |name, threads| load(device, image, &format!("{prefix}_{name}"), threads, 0);
            Ok::<_, crate::Error>(Portable {
                fast: load("fast", 128)?,
                block_nvfp4: load("block_nvfp4", 128)?,
                block_mxfp4: load("block_mxfp4", 128)?,
                chain: load("chain", 256)?,
            })
        };
        let decode = |name, i: usize| load(device, "gemm_decode", name, 256, DECODE_SHARED[i]);
        let hopper = |name, threads, shared| load(device, "gemm_sm90a", name, threads, shared);
        Ok(GemmKernels {
            portable: portable("gemm_portable", "gemm_portable")?,
            grouped: portable("gemm_grouped", "gemm_grouped")?,
            lt: Library::load(),
            expand: Expand {
                rows: load(device, "gemm_expand", "gemm_expand_rows", 256, 0)?,
                scalars: load(device, "gemm_expand", "gemm_scalars", 32, 0)?,
            },
            decode: if device.arch < 90 {
                Err(format!("{} has no clusters", device.name))
            } else {
                Ok(Decode {
                    m8: decode("gemm_decode_m8", 0)?,
                    m16: decode("gemm_decode_m16", 1)?,
                    bf16_m8: decode("gemm_decode_bf16_m8", 0)?,
                    bf16_m16: decode("gemm_decode_bf16_m16", 1)?,
                })
            },
            scaled: if !matches!(device.arch, 120 | 121) {
                Err(format!("{} is not sm_120 or sm_121", device.name))
            } else if !has_image("gemm_sm120") {
                Err("this build has no kernels for sm_120".into())
            } else {
                let scaled = |name| load(device, "gemm_sm120", name, 256, SCALED_SHARED);
                Ok(Scaled {
                    nvfp4: scaled("gemm_sm120_nvfp4")?,
                    mxfp4: scaled("gemm_sm120_mxfp4")?,
                })
            },
            tensor: if !matches!(device.arch, 100 | 103) {
                Err(format!("{} is not sm_100 or sm_103", device.name))
            } else if !has_image("gemm_sm100a") {
                Err("this build has no kernels for sm_100a or sm_103a".into())
            } else {
                let way = |i: usize, prefix: &str| {
                    let load = |j: usize, format| {
                        let name = format!("gemm_sm100_{prefix}{format}");
                        load(device, "gemm_sm100a", &name, 192, TENSOR_SHARED[i][j])
                    };
                    Ok::<_, crate::Error>([load(0, "nvfp4")?, load(1, "mxfp4")?])
                };
                Ok(Tensor {
                    pack: load(device, "gemm_pack_sm100a", "gemm_pack_sm100", 256, 0)?,
                    ways: [way(0, "")?, way(1, "narrow_")?, way(2, "pair_")?],
                })
            },
            hopper: if device.arch != 90 {
                Err(format!("{} is not Hopper", device.name))
            } else if !has_image("gemm_sm90a") {
                Err("this build has no kernels for sm_90a".into())
            } else {
                Ok(Hopper {
                    expand_fast: hopper("gemm_expand_fast", 256, 0)?,
                    expand_block: hopper("gemm_expand_block", 256, 0)?,
                    align: hopper("gemm_align", 256, 0)?,
                    gemm_fast: hopper("gemm_sm90a_fast", 384, FAST_SHARED)?,
                    gemm_block: hopper("gemm_sm90a_block", 384, BLOCK_SHARED)?,
                })
            },
        })
    }
}
