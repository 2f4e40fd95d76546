//! Result codes and plain types of the driver API.

use std::ffi::{c_char, c_int, c_void};

pub type CUresult = c_int;
pub type CUdevice = c_int;
pub type CUdeviceptr = u64;
pub type Handle = *mut c_void;

macro_rules! results {
    ($($name:ident = $v:expr, $text:expr;)*) => {
        $(pub const $name: CUresult = $v;)*
        /// (code, name, description) of every result that is used.
        pub const RESULTS: &[(CUresult, &str, &str)] = &[
            $(($v, concat!("CUDA_", stringify!($name), "\0"), concat!($text, "\0")),)*
        ];
    };
}

results! {
    SUCCESS = 0, "no error";
    ERROR_INVALID_VALUE = 1, "invalid argument";
    ERROR_OUT_OF_MEMORY = 2, "out of memory";
    ERROR_NOT_INITIALIZED = 3, "initialization error";
    ERROR_DEINITIALIZED = 4, "driver shutting down";
    ERROR_NO_DEVICE = 100, "no CUDA-capable device is detected";
    ERROR_INVALID_DEVICE = 101, "invalid device ordinal";
    ERROR_INVALID_IMAGE = 200, "device kernel image is invalid";
    ERROR_INVALID_CONTEXT = 201, "invalid device context";
    ERROR_NO_BINARY_FOR_GPU = 209, "no kernel image is available for execution on the device";
    ERROR_INVALID_PTX = 218, "a PTX JIT compilation failed";
    ERROR_UNSUPPORTED_PTX_VERSION = 222, "the provided PTX was compiled with an unsupported toolchain.";
    ERROR_INVALID_SOURCE = 300, "device kernel image is invalid";
    ERROR_FILE_NOT_FOUND = 301, "file not found";
    ERROR_INVALID_HANDLE = 400, "invalid resource handle";
    ERROR_ILLEGAL_STATE = 401, "the operation cannot be performed in the present state";
    ERROR_NOT_FOUND = 500, "named symbol not found";
    ERROR_NOT_READY = 600, "device not ready";
    ERROR_ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    ERROR_LAUNCH_OUT_OF_RESOURCES = 701, "too many resources requested for launch";
    ERROR_LAUNCH_TIMEOUT = 702, "the launch timed out and was terminated";
    ERROR_ASSERT = 710, "device-side assert triggered";
    ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped";
    ERROR_HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    ERROR_ILLEGAL_INSTRUCTION = 715, "an illegal instruction was encountered";
    ERROR_MISALIGNED_ADDRESS = 716, "misaligned address";
    ERROR_LAUNCH_FAILED = 719, "unspecified launch failure";
    ERROR_NOT_PERMITTED = 800, "operation not permitted";
    ERROR_NOT_SUPPORTED = 801, "operation not supported";
    ERROR_STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    ERROR_STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    ERROR_STREAM_CAPTURE_UNMATCHED = 903, "operation not permitted on a stream that does not capture";
    ERROR_STREAM_CAPTURE_UNJOINED = 904, "capturing stream has unjoined work";
    ERROR_STREAM_CAPTURE_IMPLICIT = 906, "operation would make the legacy stream depend on a capturing blocking stream";
    ERROR_CAPTURED_EVENT = 907, "operation not permitted on an event last recorded in a capturing stream";
    ERROR_UNKNOWN = 999, "unknown error";
}

/// # Safety
/// `p` must be null or point to writable memory for a `T`.
pub unsafe fn put<T>(p: *mut T, v: T) -> CUresult {
    if p.is_null() {
        return ERROR_INVALID_VALUE;
    }
    p.write(v);
    SUCCESS
}

/// Say on stderr why a call failed: the codes alone are hard to work with.
pub fn complain(call: &str, why: &str) {
    eprintln!("emulator: {call}: {why}");
}

#[no_mangle]
pub unsafe extern "C" fn cuGetErrorString(e: CUresult, out: *mut *const c_char) -> CUresult {
    match RESULTS.iter().find(|r| r.0 == e) {
        Some(r) => put(out, r.2.as_ptr() as *const c_char),
        None => {
            put(out, std::ptr::null());
            ERROR_INVALID_VALUE
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuGetErrorName(e: CUresult, out: *mut *const c_char) -> CUresult {
    match RESULTS.iter().find(|r| r.0 == e) {
        Some(r) => put(out, r.1.as_ptr() as *const c_char),
        None => {
            put(out, std::ptr::null());
            ERROR_INVALID_VALUE
        }
    }
}
