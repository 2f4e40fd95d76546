//! The library's version, at run time.

use std::ffi::{c_char, CStr};

const fn number(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let (mut value, mut i) = (0, 0);
    while i < bytes.len() {
        value = value * 10 + (bytes[i] - b'0') as u32;
        i += 1;
    }
    value
}

const VERSION: u32 = number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
    | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
    | number(env!("CARGO_PKG_VERSION_PATCH"));

const VERSION_STRING: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version has no NUL inside"),
    };

/// Version of the library that is loaded: major << 16 | minor << 8 | patch. Compare with NVFP4_VERSION_*.
#[unsafe(no_mangle)]
pub extern "C" fn nvfp4_version() -> u32 {
    VERSION
}

/// The same as text, "0.1.0". Static.
#[unsafe(no_mangle)]
pub extern "C" fn nvfp4_version_string() -> *const c_char {
    VERSION_STRING.as_ptr()
}
