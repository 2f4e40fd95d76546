//! Kernels: registration by the code that nvcc adds to every program, attributes, launches.

use super::*;
use crate::driver::launch::{LaunchAttribute, LaunchConfig};
use crate::driver::{function, launch, module};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::sync::Mutex;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// cudaLaunchConfig_t
#[repr(C)]
pub struct Config {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: Handle,
    attrs: *const LaunchAttribute,
    nattrs: c_uint,
}

#[derive(Default)]
struct Registry {
    /// Fat binaries by handle: image, module once it is loaded.
    images: Vec<(usize, usize)>,
    /// Host function to image and device name.
    kernels: HashMap<usize, (usize, CString)>,
    /// Host function to the driver's function.
    loaded: HashMap<usize, usize>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

fn with<T>(f: impl FnOnce(&mut Registry) -> T) -> T {
    let mut guard = REGISTRY.lock().unwrap_or_else(|e| e.into_inner());
    f(guard.get_or_insert_with(Registry::default))
}

/// Handles are places in this array: the caller reads through them only by passing them back.
#[no_mangle]
pub extern "C" fn __cudaRegisterFatBinary(image: *const c_void) -> *mut *mut c_void {
    with(|r| {
        r.images.push((image as usize, 0));
        r.images.len() as *mut *mut c_void
    })
}

#[no_mangle]
pub extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

#[no_mangle]
pub extern "C" fn __cudaUnregisterFatBinary(_handle: *mut *mut c_void) {}

#[no_mangle]
pub extern "C" fn __cudaInitModule(_handle: *mut *mut c_void) -> c_char {
    1
}

/// # Safety
/// As nvcc's code calls it: a handle from above and names that live as long as the program.
#[no_mangle]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    handle: *mut *mut c_void,
    host: *const c_void,
    _device: *mut c_char,
    name: *const c_char,
    _threads: c_int,
    _tid: *mut c_void,
    _bid: *mut c_void,
    _block: *mut c_void,
    _grid: *mut c_void,
    _warp: *mut c_int,
) {
    // SAFETY: a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(name) }.to_owned();
    with(|r| r.kernels.insert(host as usize, (handle as usize - 1, name)));
}

/// Device variables are found by their own code; the host's shadow of them is not modelled,
/// and cudaMemcpyToSymbol is not here.
#[no_mangle]
pub extern "C" fn __cudaRegisterVar(
    _handle: *mut *mut c_void,
    _host: *mut c_char,
    _device: *mut c_char,
    _name: *const c_char,
    _ext: c_int,
    _size: usize,
    _constant: c_int,
    _global: c_int,
) {
}

/// The driver's function behind a host function; its module is loaded at the first use.
fn kernel(host: *const c_void) -> Result<Handle, Status> {
    ready()?;
    if let Some(f) = with(|r| r.loaded.get(&(host as usize)).copied()) {
        return Ok(f as Handle);
    }
    let Some((at, name)) = with(|r| r.kernels.get(&(host as usize)).cloned()) else {
        return Err(INVALID_DEVICE_FUNCTION);
    };
    let (image, mut loaded) = with(|r| r.images[at]);
    if loaded == 0 {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the image that nvcc's code registered.
        check(unsafe { module::cuModuleLoadFatBinary(&mut handle, image as *const c_void) })?;
        loaded = handle as usize;
        with(|r| r.images[at].1 = loaded);
    }
    let mut f = std::ptr::null_mut();
    // SAFETY: a module and a NUL-terminated name.
    check(unsafe { function::cuModuleGetFunction(&mut f, loaded as Handle, name.as_ptr()) })?;
    with(|r| r.loaded.insert(host as usize, f as usize));
    Ok(f)
}

const INVALID_DEVICE_FUNCTION: Status = 98;

/// A call about one kernel.
fn about(host: *const c_void, f: impl FnOnce(Handle) -> CUresult) -> Status {
    call(|| kernel(host).map_or_else(|e| e, f))
}

#[no_mangle]
pub extern "C" fn cudaFuncSetAttribute(host: *const c_void, what: c_int, value: c_int) -> Status {
    about(host, |f| function::cuFuncSetAttribute(f, what, value))
}

/// # Safety
/// `out` has room for `cudaFuncAttributes` of CUDA 13 (144 bytes).
#[no_mangle]
pub unsafe extern "C" fn cudaFuncGetAttributes(out: *mut u8, host: *const c_void) -> Status {
    about(host, |f| {
        let get = |what: c_int| {
            let mut v = 0;
            // SAFETY: the place is valid.
            let r = unsafe { function::cuFuncGetAttribute(&mut v, what, f) };
            if r == SUCCESS {
                v
            } else {
                0
            }
        };
        let mut a = [0u8; 144];
        // shared, const and local bytes; then the ints from maxThreadsPerBlock on.
        for (i, what) in [1, 2, 3].into_iter().enumerate() {
            a[8 * i..8 * i + 8].copy_from_slice(&(get(what) as u64).to_le_bytes());
        }
        for (i, what) in [0, 4, 5, 6, 7, 8, 9].into_iter().enumerate() {
            a[24 + 4 * i..28 + 4 * i].copy_from_slice(&get(what).to_le_bytes());
        }
        // SAFETY: the caller gives this much room.
        unsafe { std::ptr::copy_nonoverlapping(a.as_ptr(), out, a.len()) };
        SUCCESS
    })
}

#[no_mangle]
pub extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    n: *mut c_int,
    host: *const c_void,
    threads: c_int,
    dynamic: usize,
) -> Status {
    // SAFETY: the caller's place.
    about(host, |f| unsafe { function::cuOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, dynamic) })
}

#[no_mangle]
pub extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    n: *mut c_int,
    host: *const c_void,
    threads: c_int,
    dynamic: usize,
    _flags: c_uint,
) -> Status {
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, host, threads, dynamic)
}

/// # Safety
/// A valid configuration.
#[no_mangle]
pub unsafe extern "C" fn cudaOccupancyMaxActiveClusters(n: *mut c_int, host: *const c_void, config: *const Config) -> Status {
    about(host, |f| {
        // SAFETY: the caller's configuration and place.
        unsafe { function::cuOccupancyMaxActiveClusters(n, f, &driver_config(&*config)) }
    })
}

fn driver_config(c: &Config) -> LaunchConfig {
    LaunchConfig {
        grid: [c.grid.x, c.grid.y, c.grid.z],
        block: [c.block.x, c.block.y, c.block.z],
        shared: c.shared as c_uint,
        stream: c.stream,
        attrs: c.attrs,
        nattrs: c.nattrs,
    }
}

/// # Safety
/// A valid configuration and as many arguments as the kernel takes.
#[no_mangle]
pub unsafe extern "C" fn cudaLaunchKernelExC(config: *const Config, host: *const c_void, args: *mut *mut c_void) -> Status {
    about(host, |f| {
        // SAFETY: the caller's configuration and arguments.
        unsafe { launch::cuLaunchKernelEx(&driver_config(&*config), f, args, std::ptr::null_mut()) }
    })
}

/// # Safety
/// As many arguments as the kernel takes.
#[no_mangle]
pub unsafe extern "C" fn cudaLaunchKernel(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: *mut *mut c_void,
    shared: usize,
    stream: Handle,
) -> Status {
    let config = Config { grid, block, shared, stream, attrs: std::ptr::null(), nattrs: 0 };
    // SAFETY: handed on.
    unsafe { cudaLaunchKernelExC(&config, host, args) }
}

/// # Safety
/// As nvcc's code calls it: `out` is a place for the handle, which stands for the host function.
#[no_mangle]
pub unsafe extern "C" fn __cudaGetKernel(out: *mut *const c_void, host: *const c_void) -> Status {
    // SAFETY: the caller's place.
    unsafe { put(out, host) }
}

/// # Safety
/// As [`cudaLaunchKernel`], with the handle from [`__cudaGetKernel`].
#[no_mangle]
pub unsafe extern "C" fn __cudaLaunchKernel(
    kernel: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: *mut *mut c_void,
    shared: usize,
    stream: Handle,
) -> Status {
    // SAFETY: handed on.
    unsafe { cudaLaunchKernel(kernel, grid, block, args, shared, stream) }
}

thread_local! {
    static PUSHED: Cell<Option<(Dim3, Dim3, usize, usize)>> = const { Cell::new(None) };
}

/// `<<<grid, block, shared, stream>>>`: kept until the generated stub asks.
#[no_mangle]
pub extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: Handle) -> c_uint {
    PUSHED.with(|p| p.set(Some((grid, block, shared, stream as usize))));
    0
}

/// # Safety
/// Four places, as nvcc's code passes them.
#[no_mangle]
pub unsafe extern "C" fn __cudaPopCallConfiguration(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut Handle) -> Status {
    let Some((g, b, n, s)) = PUSHED.with(|p| p.take()) else { return 52 };
    // SAFETY: the caller's places.
    unsafe {
        grid.write(g);
        block.write(b);
        shared.write(n);
        stream.write(s as Handle);
    }
    SUCCESS
}
