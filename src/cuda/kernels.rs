//! Every kernel by name, with what a launch needs. Images are loaded once a process, kernels once a context.

use std::ffi::CString;
use std::sync::Mutex;

use cudarc::driver::sys::CUresult;

use super::driver::{self, describe, CUkernel, CUlibrary, Device, Stream};
use crate::{Error, Result};

/// Gives embedded bytes the alignment that the driver reads them with.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

macro_rules! image {
    ($path:expr) => {{
        static IMAGE: &Aligned<[u8]> = &Aligned(*include_bytes!($path));
        &IMAGE.0
    }};
}
include!(concat!(env!("OUT_DIR"), "/cuda_images.rs"));

/// Dynamic shared memory of the quantize_fast kernels (kernels/quantize_fast.cu asserts it).
const QUANTIZE_FAST_SHARED: u32 = 75920;

/// A loaded kernel.
#[derive(Clone, Copy)]
pub struct Kernel {
    handle: CUkernel,
    threads: u32,
    shared: u32,
    /// Blocks that the device holds at once.
    resident: u32,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Launches as many blocks as there are pieces of work, at most `waves` times what the device holds: the kernels
    /// walk over the rest.
    pub fn launch<P: Copy>(
        &self,
        stream: Stream,
        pieces: usize,
        waves: u32,
        params: &P,
    ) -> Result<()> {
        let most = self.resident as usize * waves as usize;
        match pieces.min(most).min(i32::MAX as usize) {
            0 => Ok(()),
            grid => stream.launch(self.handle, grid as u32, self.threads, self.shared, params),
        }
    }
}

macro_rules! kernels {
    ($($field:ident: $image:literal, $threads:expr, $shared:expr;)*) => {
        /// All kernels of the library.
        pub struct Kernels {
            $(pub $field: Kernel,)*
            /// By element type (bf16, f16), rowwise and columnwise `Make`.
            quantize_fast: [[[Option<Kernel>; 5]; 5]; 2],
        }

        impl Kernels {
            /// Brings every kernel into the current context.
            pub fn load(device: &Device) -> Result<Kernels> {
                Ok(Kernels {
                    $($field: load(device, $image, stringify!($field), $threads, $shared)?,)*
                    quantize_fast: load_quantize_fast(device)?,
                })
            }
        }
    };
}

kernels! {
    amax_bf16: "amax", 256, 0;
    amax_bf16_transform: "amax", 256, 0;
    amax_f16: "amax", 256, 0;
    amax_f16_transform: "amax", 256, 0;
    amax_general: "quantize", 256, 0;
    quantize_general: "quantize", 256, 0;
    group_table: "groups", 256, 0;
    amax_grouped: "grouped_quantize", 256, 0;
    quantize_grouped: "grouped_quantize", 256, 0;
    stats_rows: "stats", 128, 0;
    stats_total: "stats", 32, 0;
    dequantize_fast: "dequantize", 256, 0;
    dequantize_blocks: "dequantize", 256, 0;
    dequantize_bf16_format: "dequantize", 256, 0;
    dequantize_transposed: "dequantize", 256, 0;
    hadamard: "hadamard", 256, 0;
    transpose_quantized: "transpose", 256, 0;
    swizzle_scales: "scales", 256, 0;
    unswizzle_scales: "scales", 256, 0;
    clear_scale_padding: "scales", 256, 0;
}

/// What a fast quantizer makes of one copy (kernels/quantize_fast.cu).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    Nothing,
    Nearest,
    Stochastic,
    TransformNearest,
    TransformStochastic,
}

use Make::*;

/// Pairs of copies that are made from one read; others take two launches.
const QUANTIZE_FAST: [(Make, Make); 13] = [
    (Nearest, Nothing),
    (Stochastic, Nothing),
    (TransformNearest, Nothing),
    (TransformStochastic, Nothing),
    (Nothing, Nearest),
    (Nothing, Stochastic),
    (Nothing, TransformNearest),
    (Nothing, TransformStochastic),
    (Nearest, Nearest),
    (Stochastic, Stochastic),
    (Nearest, TransformNearest),
    (Nearest, TransformStochastic),
    (Stochastic, TransformStochastic),
];

fn load_quantize_fast(device: &Device) -> Result<[[[Option<Kernel>; 5]; 5]; 2]> {
    let mut table = [[[None; 5]; 5]; 2];
    for (t, dtype) in ["bf16", "f16"].into_iter().enumerate() {
        for (row, col) in QUANTIZE_FAST {
            let code = |m: Make| ["0", "n", "s", "tn", "ts"][m as usize];
            let name = format!("quantize_fast_{dtype}_{}_{}", code(row), code(col));
            let kernel = load(device, "quantize_fast", &name, 256, QUANTIZE_FAST_SHARED)?;
            table[t][row as usize][col as usize] = Some(kernel);
        }
    }
    Ok(table)
}

impl Kernels {
    /// The kernel that makes both copies from one read, if there is one.
    pub fn quantize_fast(&self, f16: bool, row: Make, col: Make) -> Option<&Kernel> {
        self.quantize_fast[f16 as usize][row as usize][col as usize].as_ref()
    }
}

/// Libraries belong to no context and stay loaded, so that contexts can come and go.
struct Loaded(Vec<(&'static str, CUlibrary)>);
// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Loaded {}
static LOADED: Mutex<Loaded> = Mutex::new(Loaded(Vec::new()));

fn library(device: &Device, name: &'static str) -> Result<CUlibrary> {
    let mut loaded = LOADED.lock().unwrap_or_else(|p| p.into_inner());
    if let Some((_, library)) = loaded.0.iter().find(|(n, _)| *n == name) {
        return Ok(*library);
    }
    let (_, image) = IMAGES
        .iter()
        .find(|(n, _)| *n == name)
        .ok_or_else(|| Error::Internal(format!("no kernel image named {name}")))?;
    let library =
        driver::load_library(image).map_err(|e| refused(device, "cuLibraryLoadData", e))?;
    loaded.0.push((name, library));
    Ok(library)
}

/// Is there a file of kernels of that name in this build?
pub fn has_image(name: &str) -> bool {
    IMAGES.iter().any(|(n, _)| *n == name)
}

pub fn load(
    device: &Device,
    image: &'static str,
    name: &str,
    threads: u32,
    shared: u32,
) -> Result<Kernel> {
    let library = library(device, image)?;
    let c_name = CString::new(name).expect("kernel names hold no NUL");
    let (handle, blocks) = driver::load_kernel(device, library, &c_name, threads, shared)
        .map_err(|(what, e)| refused(device, &format!("{what} of {name}"), e))?;
    Ok(Kernel {
        handle,
        threads,
        shared,
        resident: blocks * device.multiprocessors,
    })
}

fn refused(device: &Device, what: &str, error: CUresult) -> Error {
    use CUresult::*;
    match error {
        CUDA_ERROR_NO_BINARY_FOR_GPU
        | CUDA_ERROR_INVALID_IMAGE
        | CUDA_ERROR_INVALID_PTX
        | CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        | CUDA_ERROR_INVALID_SOURCE
        | CUDA_ERROR_JIT_COMPILER_NOT_FOUND => Error::NoKernel(format!(
            "{} cannot run this library's kernels, which are built for {ARCHS} and as PTX for compute_80: {what} says {}; \
             a CPU context works",
            device.name,
            describe(error)
        )),
        _ => match driver::check(what, error) {
            Err(e) => e,
            Ok(()) => Error::Internal(format!("{what} failed with no error")),
        },
    }
}
