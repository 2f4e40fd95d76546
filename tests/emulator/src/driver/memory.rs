//! Memory: allocation, copies, fills, attributes of pointers.

use super::graph::Node;
use super::state::*;
use super::stream::{not_capturing, submit};
use super::types::*;
use crate::mem::{memory, Kind};
use std::ffi::{c_int, c_uint, c_void};

/// Is a device range inside one allocation? Host memory is not checked.
fn device_range(call: &str, p: u64, n: u64) -> Result<bool, CUresult> {
    match memory().find(p) {
        Some(a) if a.contains(p, n) => Ok(true),
        Some(a) => {
            complain(call, &format!("{n} bytes from {p:#x} leave the allocation of {} bytes at {:#x}", a.size, a.base));
            Err(ERROR_INVALID_VALUE)
        }
        None => Ok(false),
    }
}

/// Copy between any two places; written-bits follow the bytes.
pub fn copy(dst: u64, src: u64, n: u64) -> Result<(), CUresult> {
    if n == 0 {
        return Ok(());
    }
    let (d, s) = (device_range("copy to", dst, n)?, device_range("copy from", src, n)?);
    // SAFETY: device ranges were checked; host ranges are the caller's promise.
    unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, n as usize) };
    if d {
        if s {
            memory().copy_shadow(dst, src, n);
        } else if let Some(a) = memory().find(dst) {
            a.set_written(dst, n);
        }
    }
    Ok(())
}

pub fn set(dst: u64, value: u32, width: u32, n: u64) -> Result<(), CUresult> {
    let bytes = n * width as u64;
    if bytes == 0 {
        return Ok(());
    }
    if !device_range("memset", dst, bytes)? || !dst.is_multiple_of(width as u64) {
        return Err(ERROR_INVALID_VALUE);
    }
    for k in 0..n {
        let v = value.to_le_bytes();
        // SAFETY: the range was checked.
        unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), (dst + k * width as u64) as *mut u8, width as usize) };
    }
    if let Some(a) = memory().find(dst) {
        a.set_written(dst, bytes);
    }
    Ok(())
}

fn alloc(out: *mut CUdeviceptr, n: usize, kind: Kind) -> CUresult {
    code((|| {
        if n == 0 || out.is_null() {
            return Err(ERROR_INVALID_VALUE);
        }
        let p = memory().alloc(n as u64, kind).ok_or(ERROR_OUT_OF_MEMORY)?;
        // SAFETY: not null; the caller's place for the pointer.
        unsafe { out.write(p) };
        Ok(())
    })())
}

#[no_mangle]
pub extern "C" fn cuMemAlloc_v2(out: *mut CUdeviceptr, n: usize) -> CUresult {
    if let Err(e) = usable().and_then(|_| not_capturing("cuMemAlloc")) {
        return e;
    }
    alloc(out, n, Kind::Device)
}

#[no_mangle]
pub extern "C" fn cuMemFree_v2(p: CUdeviceptr) -> CUresult {
    code((|| {
        if p == 0 {
            return Ok(());
        }
        usable()?;
        not_capturing("cuMemFree")?;
        if memory().free(p) {
            Ok(())
        } else {
            complain("cuMemFree", &format!("{p:#x} is not the start of an allocation"));
            Err(ERROR_INVALID_VALUE)
        }
    })())
}

#[no_mangle]
pub extern "C" fn cuMemAllocAsync(out: *mut CUdeviceptr, n: usize, stream: Handle) -> CUresult {
    code((|| {
        usable()?;
        if !super::stream::is_default(stream) && state().stream(stream as usize)?.capture.is_some() {
            complain("cuMemAllocAsync", "allocation nodes in a graph are not modelled");
            return Err(ERROR_NOT_SUPPORTED);
        }
        match alloc(out, n, Kind::Device) {
            SUCCESS => Ok(()),
            e => Err(e),
        }
    })())
}

#[no_mangle]
pub extern "C" fn cuMemAllocFromPoolAsync(out: *mut CUdeviceptr, n: usize, _pool: Handle, stream: Handle) -> CUresult {
    cuMemAllocAsync(out, n, stream)
}

#[no_mangle]
pub extern "C" fn cuMemFreeAsync(p: CUdeviceptr, stream: Handle) -> CUresult {
    code(submit("cuMemFreeAsync", stream, Node::Free(p)))
}

#[no_mangle]
pub extern "C" fn cuMemAllocManaged(out: *mut CUdeviceptr, n: usize, _flags: c_uint) -> CUresult {
    if let Err(e) = usable() {
        return e;
    }
    alloc(out, n, Kind::Managed)
}

#[no_mangle]
pub extern "C" fn cuMemHostAlloc(out: *mut *mut c_void, n: usize, _flags: c_uint) -> CUresult {
    if let Err(e) = usable() {
        return e;
    }
    alloc(out as *mut CUdeviceptr, n, Kind::Host)
}
#[no_mangle]
pub extern "C" fn cuMemAllocHost_v2(out: *mut *mut c_void, n: usize) -> CUresult {
    cuMemHostAlloc(out, n, 0)
}

#[no_mangle]
pub extern "C" fn cuMemFreeHost(p: *mut c_void) -> CUresult {
    if memory().free(p as u64) {
        SUCCESS
    } else {
        ERROR_INVALID_VALUE
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(out: *mut CUdeviceptr, p: *mut c_void, _flags: c_uint) -> CUresult {
    if memory().find(p as u64).is_none() {
        return ERROR_INVALID_VALUE;
    }
    put(out, p as u64)
}

#[no_mangle]
pub unsafe extern "C" fn cuMemHostGetFlags(out: *mut c_uint, _p: *mut c_void) -> CUresult {
    put(out, 0)
}

#[no_mangle]
pub extern "C" fn cuMemHostRegister_v2(p: *mut c_void, n: usize, _flags: c_uint) -> CUresult {
    if p.is_null() || n == 0 {
        return ERROR_INVALID_VALUE;
    }
    memory().register(p as u64, n as u64);
    SUCCESS
}

#[no_mangle]
pub extern "C" fn cuMemHostUnregister(p: *mut c_void) -> CUresult {
    if memory().free(p as u64) {
        SUCCESS
    } else {
        ERROR_HOST_MEMORY_NOT_REGISTERED
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    let (f, t) = memory().info();
    put(free, f as usize);
    put(total, t as usize)
}

#[no_mangle]
pub unsafe extern "C" fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, p: CUdeviceptr) -> CUresult {
    match memory().find(p) {
        Some(a) => {
            if !base.is_null() {
                *base = a.base;
            }
            if !size.is_null() {
                *size = a.size as usize;
            }
            SUCCESS
        }
        None => ERROR_INVALID_VALUE,
    }
}

fn copy_now(call: &str, dst: u64, src: u64, n: usize) -> CUresult {
    code((|| {
        usable()?;
        not_capturing(call)?;
        copy(dst, src, n as u64)
    })())
}

fn must_be_device(call: &str, p: u64, n: usize) -> Result<(), CUresult> {
    if n != 0 && memory().find(p).is_none() {
        complain(call, &format!("{p:#x} is not device memory"));
        return Err(ERROR_INVALID_VALUE);
    }
    Ok(())
}

macro_rules! copies {
    ($($sync:ident, $async_:ident, $d:ty, $s:ty, $dev_dst:expr, $dev_src:expr;)*) => {$(
        #[no_mangle]
        pub extern "C" fn $sync(dst: $d, src: $s, n: usize) -> CUresult {
            let c = stringify!($sync);
            if $dev_dst { if let Err(e) = must_be_device(c, dst as u64, n) { return e; } }
            if $dev_src { if let Err(e) = must_be_device(c, src as u64, n) { return e; } }
            copy_now(c, dst as u64, src as u64, n)
        }
        #[no_mangle]
        pub extern "C" fn $async_(dst: $d, src: $s, n: usize, stream: Handle) -> CUresult {
            let c = stringify!($async_);
            if $dev_dst { if let Err(e) = must_be_device(c, dst as u64, n) { return e; } }
            if $dev_src { if let Err(e) = must_be_device(c, src as u64, n) { return e; } }
            code(submit(c, stream, Node::Copy { dst: dst as u64, src: src as u64, n: n as u64 }))
        }
    )*};
}

copies! {
    cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, *const c_void, true, false;
    cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, *mut c_void, CUdeviceptr, false, true;
    cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, true, true;
    cuMemcpy, cuMemcpyAsync, CUdeviceptr, CUdeviceptr, false, false;
}

/// CUDA_MEMCPY2D.
#[repr(C)]
pub struct Copy2D {
    src_x: usize,
    src_y: usize,
    src_type: c_uint,
    src_host: *const c_void,
    src_device: CUdeviceptr,
    src_array: Handle,
    src_pitch: usize,
    dst_x: usize,
    dst_y: usize,
    dst_type: c_uint,
    dst_host: *mut c_void,
    dst_device: CUdeviceptr,
    dst_array: Handle,
    dst_pitch: usize,
    width: usize,
    height: usize,
}

unsafe fn copy_2d(c: *const Copy2D, stream: Option<Handle>) -> CUresult {
    let Some(c) = c.as_ref() else { return ERROR_INVALID_VALUE };
    let pick = |t: c_uint, h: u64, d: u64| match t {
        1 => Some(h),
        2 | 4 => Some(d),
        _ => None,
    };
    let (Some(s), Some(d)) = (pick(c.src_type, c.src_host as u64, c.src_device), pick(c.dst_type, c.dst_host as u64, c.dst_device)) else {
        return ERROR_NOT_SUPPORTED;
    };
    for y in 0..c.height {
        let src = s + ((c.src_y + y) * c.src_pitch + c.src_x) as u64;
        let dst = d + ((c.dst_y + y) * c.dst_pitch + c.dst_x) as u64;
        let r = match stream {
            None => copy_now("cuMemcpy2D", dst, src, c.width),
            Some(st) => code(submit("cuMemcpy2DAsync", st, Node::Copy { dst, src, n: c.width as u64 })),
        };
        if r != SUCCESS {
            return r;
        }
    }
    SUCCESS
}

#[no_mangle]
pub unsafe extern "C" fn cuMemcpy2D_v2(c: *const Copy2D) -> CUresult {
    copy_2d(c, None)
}
#[no_mangle]
pub unsafe extern "C" fn cuMemcpy2DUnaligned_v2(c: *const Copy2D) -> CUresult {
    copy_2d(c, None)
}
#[no_mangle]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(c: *const Copy2D, stream: Handle) -> CUresult {
    copy_2d(c, Some(stream))
}

macro_rules! sets {
    ($($sync:ident, $async_:ident, $t:ty, $w:expr;)*) => {$(
        #[no_mangle]
        pub extern "C" fn $sync(dst: CUdeviceptr, value: $t, n: usize) -> CUresult {
            code((|| {
                usable()?;
                not_capturing(stringify!($sync))?;
                set(dst, value as u32, $w, n as u64)
            })())
        }
        #[no_mangle]
        pub extern "C" fn $async_(dst: CUdeviceptr, value: $t, n: usize, stream: Handle) -> CUresult {
            code(submit(stringify!($async_), stream, Node::Set { dst, value: value as u32, width: $w, n: n as u64 }))
        }
    )*};
}

sets! {
    cuMemsetD8_v2, cuMemsetD8Async, u8, 1;
    cuMemsetD16_v2, cuMemsetD16Async, u16, 2;
    cuMemsetD32_v2, cuMemsetD32Async, u32, 4;
}

/// One attribute of a pointer: None when the pointer is unknown.
unsafe fn attribute(data: *mut c_void, what: c_int, p: CUdeviceptr) -> CUresult {
    let Some(a) = memory().find(p) else { return ERROR_INVALID_VALUE };
    match what {
        1 => put(data as *mut usize, current().max(state().primary)),
        2 => put(data as *mut c_uint, if a.kind == Kind::Host { 1 } else { 2 }),
        3 => put(data as *mut u64, p),
        4 => put(data as *mut u64, if a.kind == Kind::Device { 0 } else { p }),
        6 => put(data as *mut c_uint, 1),
        7 => put(data as *mut u64, a.id),
        8 => put(data as *mut c_uint, (a.kind == Kind::Managed) as c_uint),
        9 => put(data as *mut c_int, 0),
        11 => put(data as *mut u64, a.base),
        12 => put(data as *mut usize, a.size as usize),
        13 => put(data as *mut c_uint, 1),
        _ => ERROR_NOT_SUPPORTED,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuPointerGetAttribute(data: *mut c_void, what: c_int, p: CUdeviceptr) -> CUresult {
    if data.is_null() {
        return ERROR_INVALID_VALUE;
    }
    attribute(data, what, p)
}

#[no_mangle]
pub unsafe extern "C" fn cuPointerGetAttributes(n: c_uint, what: *const c_int, data: *mut *mut c_void, p: CUdeviceptr) -> CUresult {
    let known = memory().find(p).is_some();
    for k in 0..n as usize {
        let (w, d) = (*what.add(k), *data.add(k));
        if known {
            let r = attribute(d, w, p);
            if r != SUCCESS {
                return r;
            }
        } else if matches!(w, 2 | 6 | 8 | 9) {
            *(d as *mut c_uint) = if w == 9 { c_uint::MAX - 1 } else { 0 };
        } else {
            *(d as *mut u64) = 0;
        }
    }
    SUCCESS
}
