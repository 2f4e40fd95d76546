//! Reading C's descriptors, size first.
//!
//! `struct_size` is what `sizeof` was where the caller was compiled. A shorter struct (an older caller) is read as if
//! its missing tail were zero; a longer one (a newer caller) is accepted when the tail that we do not know is zero.

use std::mem::{align_of, size_of, MaybeUninit};

use crate::abi::*;
use crate::{Error, Result};

/// A descriptor that starts with `struct_size`. All of ours are valid when every byte is zero.
///
/// # Safety
/// `#[repr(C)]`, first field `struct_size: usize`, valid for every bit pattern.
pub(crate) unsafe trait Descriptor: Copy {
    /// Bytes that a caller must at least have known; 0.1's first layout or less.
    const MIN: usize;
}

macro_rules! descriptors {
    ($($name:ident from $field:ident),*) => {$(
        // SAFETY: repr(C), starts with struct_size, integers, floats and raw pointers only (tests/abi.rs has layouts).
        unsafe impl Descriptor for $name {
            const MIN: usize = std::mem::offset_of!($name, $field);
        }
    )*};
}
// Up to the named field a caller must know the struct; what follows may be missing.
descriptors!(
    nvfp4_context_desc from ordinal,
    nvfp4_matrix from stride,
    nvfp4_options from block,
    nvfp4_quantize_desc from nonfinite,
    nvfp4_quantized from sign_mask,
    nvfp4_gemm_desc from alpha,
    nvfp4_hadamard_desc from signs,
    nvfp4_recipe from accumulate,
    nvfp4_linear_desc from seed,
    nvfp4_grouped_quantize_desc from column_align,
    nvfp4_grouped_gemm_desc from column_align
);

/// More than any descriptor will grow to; a larger struct_size is garbage, and its tail is not looked at.
const LARGEST: usize = 8192;

/// SAFETY: `p` is NULL or points to a descriptor of at least `struct_size` readable bytes.
pub(crate) unsafe fn struct_size<T: Descriptor>(p: *const T, name: &'static str) -> Result<usize> {
    if p.is_null() {
        return Err(Error::NullPointer(name));
    }
    if !p.is_aligned() {
        return Err(Error::Alignment(format!(
            "{name} is at {p:p}, which is not a multiple of {}",
            align_of::<T>()
        )));
    }
    // SAFETY: not NULL, aligned, and every descriptor starts with its size.
    let given = unsafe { p.cast::<usize>().read() };
    if given < T::MIN || given > LARGEST {
        return Err(Error::StructSize(format!(
            "{name}.struct_size is {given}, this library's {} has {} bytes and needs at least {}",
            type_name::<T>(),
            size_of::<T>(),
            T::MIN
        )));
    }
    Ok(given)
}

/// Copies a descriptor, zero where the caller's is shorter.
///
/// SAFETY: as `struct_size`.
pub(crate) unsafe fn read<T: Descriptor>(p: *const T, name: &'static str) -> Result<T> {
    // SAFETY: the caller's promise.
    let given = unsafe { struct_size(p, name)? };
    let ours = size_of::<T>();
    let bytes = p.cast::<u8>();
    for i in ours..given {
        // SAFETY: inside the struct_size bytes that the caller vouches for.
        let byte = unsafe { bytes.add(i).read() };
        if byte != 0 {
            return Err(Error::StructSize(format!(
                "{name}.struct_size is {given}, this library's {} has {ours} bytes and the field at byte {i}, which \
                 it does not know, is not zero",
                type_name::<T>()
            )));
        }
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: both sides hold at least min(given, ours) bytes; zero bytes and any bytes are a valid T.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes, value.as_mut_ptr().cast::<u8>(), given.min(ours));
        Ok(value.assume_init())
    }
}

/// Writes a descriptor back, as much of it as the caller knows; its struct_size stays.
///
/// SAFETY: `struct_size` said Ok for `p`, which is writable.
pub(crate) unsafe fn write_back<T: Descriptor>(p: *mut T, value: &T) {
    let head = size_of::<usize>();
    // SAFETY: the caller's promise; the range starts after struct_size and ends inside both structs.
    unsafe {
        let known = p.cast::<usize>().read().min(size_of::<T>());
        std::ptr::copy_nonoverlapping(
            (value as *const T).cast::<u8>().add(head),
            p.cast::<u8>().add(head),
            known - head,
        );
    }
}

/// Options inside another descriptor: of exactly our size or shorter (then the rest must be zero, as its bytes are
/// there in any case); all zero with struct_size 0 is the default.
pub(crate) fn nested(options: &nvfp4_options, name: &str) -> Result<nvfp4_options> {
    let ours = size_of::<nvfp4_options>();
    let given = options.struct_size;
    // SAFETY: repr(C) without padding (tests/abi.rs), so all bytes are initialised.
    let bytes =
        unsafe { std::slice::from_raw_parts((options as *const nvfp4_options).cast::<u8>(), ours) };
    let known = given.clamp(size_of::<usize>(), ours);
    if given > ours
        || (given != 0 && given < nvfp4_options::MIN)
        || bytes[known..].iter().any(|b| *b != 0)
    {
        return Err(Error::StructSize(format!(
            "{name}.struct_size is {given}, this library's nvfp4_options has {ours} bytes{}",
            if given < ours {
                ", and bytes after it are not zero"
            } else {
                ""
            }
        )));
    }
    Ok(*options)
}

/// Checks a pointer that the call writes through.
pub(crate) fn out_pointer<T>(p: *mut T, name: &'static str) -> Result<()> {
    if p.is_null() {
        return Err(Error::NullPointer(name));
    }
    if !p.is_aligned() {
        return Err(Error::Alignment(format!(
            "{name} is at {p:p}, which is not a multiple of {}",
            align_of::<T>()
        )));
    }
    Ok(())
}

fn type_name<T>() -> &'static str {
    std::any::type_name::<T>()
        .rsplit("::")
        .next()
        .unwrap_or("descriptor")
}
