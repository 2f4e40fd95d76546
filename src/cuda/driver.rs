//! The only driver calls. The driver is loaded when the first context is made; a machine without one loses nothing but
//! CUDA contexts.

use std::ffi::{c_char, c_void, CStr};
use std::ptr::{null, null_mut};

use cudarc::driver::sys::{self, CUresult};

use crate::{Error, Result};

use sys::{CUdevice, CUdeviceptr, CUstream};
pub use sys::{CUkernel, CUlibrary};

/// Libraries that belong to no context, and launches with attributes, came with 12.0.
const DRIVER_NEEDED: i32 = 12000;

/// A device and its primary context.
pub struct Device {
    pub handle: CUdevice,
    context: sys::CUcontext,
    /// 90 for compute capability 9.0.
    pub arch: i32,
    pub multiprocessors: u32,
    pub name: String,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above; nothing here changes after `open`.
unsafe impl Sync for Device {}

impl Device {
    pub fn open(ordinal: u32) -> Result<Device> {
        // SAFETY: only tries to load the driver's library.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDevice(
                "no CUDA driver: libcuda.so.1 cannot be loaded on this machine; a CPU context works".into(),
            ));
        }
        // SAFETY: plain calls with valid out pointers; cuInit comes first.
        unsafe {
            no_device("cuInit", sys::cuInit(0))?;
            let mut version = 0;
            no_device("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
            if version < DRIVER_NEEDED {
                return Err(Error::NoDevice(format!(
                    "the CUDA driver is for CUDA {}.{}, want 12.0 or newer",
                    version / 1000,
                    version % 1000 / 10
                )));
            }
            let mut count = 0;
            no_device("cuDeviceGetCount", sys::cuDeviceGetCount(&mut count))?;
            if ordinal as i64 >= count as i64 {
                return Err(Error::NoDevice(format!(
                    "CUDA device {ordinal} is asked for, the driver sees {count}"
                )));
            }
            let mut handle = 0;
            no_device("cuDeviceGet", sys::cuDeviceGet(&mut handle, ordinal as i32))?;
            let attribute = |a| {
                let mut value = 0;
                no_device(
                    "cuDeviceGetAttribute",
                    sys::cuDeviceGetAttribute(&mut value, a, handle),
                )
                .map(|()| value)
            };
            use sys::CUdevice_attribute_enum::*;
            let arch = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
                + attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
            let multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
            let mut name = [0 as c_char; 256];
            no_device(
                "cuDeviceGetName",
                sys::cuDeviceGetName(name.as_mut_ptr(), 256, handle),
            )?;
            let name = CStr::from_ptr(name.as_ptr()).to_string_lossy();
            let mut context = null_mut();
            no_device(
                "cuDevicePrimaryCtxRetain",
                sys::cuDevicePrimaryCtxRetain(&mut context, handle),
            )?;
            Ok(Device {
                handle,
                context,
                arch,
                multiprocessors: multiprocessors.max(1) as u32,
                name: format!("{name} (sm_{arch})"),
            })
        }
    }

    /// Makes the primary context current until the guard is dropped, and then what was current before.
    pub fn enter(&self) -> Result<Current> {
        // SAFETY: the context is retained as long as `self` lives; out pointers are valid.
        unsafe {
            let mut now = null_mut();
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut now))?;
            if now == self.context {
                return Ok(Current { pushed: false });
            }
            check("cuCtxPushCurrent", sys::cuCtxPushCurrent_v2(self.context))?;
        }
        Ok(Current { pushed: true })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`. At process exit the driver may be gone already; then there is nothing to do.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.handle) };
    }
}

/// See `Device::enter`.
pub struct Current {
    pushed: bool,
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = null_mut();
            // SAFETY: pops what `enter` pushed on this thread.
            unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
        }
    }
}

/// The caller's stream; NULL is the legacy default stream.
#[derive(Clone, Copy)]
pub struct Stream(CUstream);

impl Stream {
    pub fn new(stream: *mut c_void) -> Stream {
        Stream(stream.cast())
    }

    pub fn raw(self) -> *mut c_void {
        self.0.cast()
    }

    /// Sets `count` 32-bit words.
    pub fn fill32<T>(self, to: *mut T, value: u32, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the plan checked that the caller's buffer holds them.
        check("cuMemsetD32Async", unsafe {
            sys::cuMemsetD32Async(to as CUdeviceptr, value, count, self.0)
        })
    }

    pub fn copy<T>(self, to: *mut T, from: *const T, count: usize) -> Result<()> {
        if count == 0 || std::ptr::eq(to, from) {
            return Ok(());
        }
        let bytes = count * size_of::<T>();
        // SAFETY: the plan checked that both buffers hold them.
        check("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(to as CUdeviceptr, from as CUdeviceptr, bytes, self.0)
        })
    }

    /// Launches a kernel whose one parameter is `params`.
    pub fn launch<P: Copy>(
        self,
        kernel: CUkernel,
        grid: u32,
        threads: u32,
        shared: u32,
        params: &P,
    ) -> Result<()> {
        let config = sys::CUlaunchConfig {
            gridDimX: grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: self.0,
            attrs: null_mut(),
            numAttrs: 0,
        };
        let mut arguments = [(params as *const P).cast_mut().cast::<c_void>()];
        // SAFETY: the kernel takes one parameter of P's size (asserted on both sides), which the driver copies; a
        // CUkernel is taken where a CUfunction is.
        check("cuLaunchKernelEx", unsafe {
            sys::cuLaunchKernelEx(&config, kernel.cast(), arguments.as_mut_ptr(), null_mut())
        })
    }
}

impl Stream {
    /// Is what the caller puts on this stream recorded instead of run? Also where the driver cannot say.
    pub fn is_captured(self) -> bool {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: valid out pointer; the legacy stream gives an error while another stream is captured, and spoils nothing.
        let result = unsafe { sys::cuStreamIsCapturing(self.0, &mut status) };
        result != CUresult::CUDA_SUCCESS
            || status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
    }
}

/// While it lives, calls of this thread that allocate or load do not spoil a capture that is under way elsewhere.
pub struct Relaxed(sys::CUstreamCaptureMode);

impl Relaxed {
    pub fn new() -> Relaxed {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: exchanges this thread's mode; fails only without a driver.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        Relaxed(mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        let mut mode = self.0;
        // SAFETY: as above.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    }
}

/// A stream of the library's own, for its trials. Waits for no other stream.
pub struct OwnStream(CUstream);

impl OwnStream {
    pub fn new() -> Result<OwnStream> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: valid out pointer; a context is current.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&mut stream, flags)
        })?;
        Ok(OwnStream(stream))
    }

    pub fn get(&self) -> Stream {
        Stream(self.0)
    }

    pub fn wait(&self) -> Result<()> {
        // SAFETY: a live stream.
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.0)
        })
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: created in `new`.
        unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// Device memory of the library's own, for its trials.
pub struct Memory {
    at: CUdeviceptr,
    bytes: usize,
}

impl Memory {
    pub fn new(bytes: usize) -> Result<Memory> {
        let mut at = 0;
        // SAFETY: valid out pointer; a context is current.
        check("cuMemAlloc", unsafe {
            sys::cuMemAlloc_v2(&mut at, bytes.max(256))
        })?;
        Ok(Memory { at, bytes })
    }

    pub fn pointer(&self) -> *mut u8 {
        self.at as usize as *mut u8
    }

    pub fn write(&self, from: &[u8], stream: &OwnStream) -> Result<()> {
        assert!(from.len() <= self.bytes);
        // SAFETY: in bounds; the source stays until the wait.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.at, from.as_ptr().cast(), from.len(), stream.0)
        })?;
        stream.wait()
    }

    pub fn read(&self, to: &mut [u8], stream: &OwnStream) -> Result<()> {
        assert!(to.len() <= self.bytes);
        // SAFETY: as above.
        check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), self.at, to.len(), stream.0)
        })?;
        stream.wait()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; the trials have waited.
        unsafe { sys::cuMemFree_v2(self.at) };
    }
}

/// Loads an image that belongs to no context.
pub fn load_library(image: &'static [u8]) -> std::result::Result<CUlibrary, CUresult> {
    let mut library = null_mut();
    // SAFETY: the image is a fat binary that names its own size.
    let result = unsafe {
        sys::cuLibraryLoadData(
            &mut library,
            image.as_ptr().cast(),
            null_mut(),
            null_mut(),
            0,
            null_mut(),
            null_mut(),
            0,
        )
    };
    match result {
        CUresult::CUDA_SUCCESS => Ok(library),
        error => Err(error),
    }
}

/// A kernel of a library, brought into the current context so that no later launch has to load anything, and how many
/// of its blocks a multiprocessor holds.
pub fn load_kernel(
    device: &Device,
    library: CUlibrary,
    name: &CStr,
    threads: u32,
    shared: u32,
) -> std::result::Result<(CUkernel, u32), (&'static str, CUresult)> {
    let step = |what, result| match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err((what, error)),
    };
    // SAFETY: plain calls with valid handles and out pointers; the device's context is current.
    unsafe {
        let mut kernel = null_mut();
        step(
            "cuLibraryGetKernel",
            sys::cuLibraryGetKernel(&mut kernel, library, name.as_ptr()),
        )?;
        if shared > 48 * 1024 {
            let attribute =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            step(
                "cuKernelSetAttribute",
                sys::cuKernelSetAttribute(attribute, shared as i32, kernel, device.handle),
            )?;
        }
        let mut function = null_mut();
        step(
            "cuKernelGetFunction",
            sys::cuKernelGetFunction(&mut function, kernel),
        )?;
        let mut blocks = 0;
        step(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                function,
                threads as i32,
                shared as usize,
            ),
        )?;
        Ok((kernel, blocks.max(1) as u32))
    }
}

/// The driver's name of an error and its sentence.
pub fn describe(result: CUresult) -> String {
    let text = |f: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut p = null();
        // SAFETY: gives a static string or NULL.
        unsafe {
            f(result, &mut p);
            if p.is_null() {
                return String::new();
            }
            CStr::from_ptr(p).to_string_lossy().into_owned()
        }
    };
    format!(
        "{} ({})",
        text(sys::cuGetErrorName),
        text(sys::cuGetErrorString)
    )
}

/// An error of the driver as the library's.
pub fn check(what: &str, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            Err(Error::OutOfMemory(format!("{what}: {}", describe(result))))
        }
        _ => Err(Error::Driver(format!("{what}: {}", describe(result)))),
    }
}

fn no_device(what: &str, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        _ => Err(Error::NoDevice(format!(
            "the CUDA driver is there but gives no usable device: {what} says {}",
            describe(result)
        ))),
    }
}
