//! The wall between Rust and C: an error becomes a status code and a thread-local sentence, and so does a panic.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::abi::*;
use crate::{log, Error, Result};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs the body of one C function. Nothing unwinds past it.
pub(crate) fn boundary(body: impl FnOnce() -> Result<()>) -> nvfp4_status {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return NVFP4_OK,
        Ok(Err(error)) => error,
        Err(panic) => Error::Internal(format!(
            "internal error, please report it: {}",
            panic_text(panic.as_ref())
        )),
    };
    let status = error.status();
    // A failure while the failure is told (out of memory, thread already exiting) leaves the code without its words.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let text = error.to_string();
        log::error(&text);
        let text = CString::new(text.replace('\0', "\\0")).unwrap_or_default();
        let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
    }));
    status
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "a panic without words"
    }
}

/// The sentence of the last call that failed on this thread, never NULL, "" if none has. Valid until the next failing
/// call on this thread, or its end.
#[unsafe(no_mangle)]
pub extern "C" fn nvfp4_last_error() -> *const c_char {
    LAST_ERROR
        .try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// The name of a status, as "NVFP4_ERR_SHAPE"; "NVFP4_ERR_UNKNOWN" for a number that is none. Static.
#[unsafe(no_mangle)]
pub extern "C" fn nvfp4_status_name(status: nvfp4_status) -> *const c_char {
    let name = match status {
        NVFP4_OK => c"NVFP4_OK",
        NVFP4_ERR_INVALID_ARGUMENT => c"NVFP4_ERR_INVALID_ARGUMENT",
        NVFP4_ERR_NULL_POINTER => c"NVFP4_ERR_NULL_POINTER",
        NVFP4_ERR_STRUCT_SIZE => c"NVFP4_ERR_STRUCT_SIZE",
        NVFP4_ERR_SHAPE => c"NVFP4_ERR_SHAPE",
        NVFP4_ERR_ALIGNMENT => c"NVFP4_ERR_ALIGNMENT",
        NVFP4_ERR_BUFFER_SIZE => c"NVFP4_ERR_BUFFER_SIZE",
        NVFP4_ERR_NOT_SUPPORTED => c"NVFP4_ERR_NOT_SUPPORTED",
        NVFP4_ERR_MISMATCH => c"NVFP4_ERR_MISMATCH",
        NVFP4_ERR_NO_DEVICE => c"NVFP4_ERR_NO_DEVICE",
        NVFP4_ERR_NO_KERNEL => c"NVFP4_ERR_NO_KERNEL",
        NVFP4_ERR_DRIVER => c"NVFP4_ERR_DRIVER",
        NVFP4_ERR_OUT_OF_MEMORY => c"NVFP4_ERR_OUT_OF_MEMORY",
        NVFP4_ERR_INTERNAL => c"NVFP4_ERR_INTERNAL",
        _ => c"NVFP4_ERR_UNKNOWN",
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: nvfp4_last_error returns a NUL-terminated string of this thread.
        unsafe { CStr::from_ptr(nvfp4_last_error()) }
            .to_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_sentence() {
        assert_eq!(boundary(|| Ok(())), NVFP4_OK);
        // resume_unwind does not call the panic hook, so that nothing is printed.
        let status = boundary(|| std::panic::resume_unwind(Box::new("index 7 of 5")));
        assert_eq!(status, NVFP4_ERR_INTERNAL);
        assert!(last().contains("index 7 of 5"), "{}", last());
        let status = boundary(|| std::panic::resume_unwind(Box::new(7u8)));
        assert_eq!(status, NVFP4_ERR_INTERNAL);
    }

    #[test]
    fn the_last_error_is_this_threads_own() {
        let status = boundary(|| Err(Error::Shape("rows is -3".into())));
        assert_eq!(status, NVFP4_ERR_SHAPE);
        std::thread::spawn(|| assert_eq!(last(), ""))
            .join()
            .unwrap();
        assert_eq!(last(), "rows is -3");
        boundary(|| Ok(()));
        assert_eq!(last(), "rows is -3");
    }
}
