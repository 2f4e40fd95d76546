//! Launching kernels.

use super::graph::Node;
use super::state::*;
use super::stream::submit;
use super::types::*;
use crate::arch;
use crate::launch::{self, Request};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;

/// CUlaunchAttribute: id, padding, 64 bytes of value.
#[repr(C)]
pub struct LaunchAttribute {
    pub id: c_int,
    pad: [u8; 4],
    pub value: [u32; 16],
}

/// CUlaunchConfig.
#[repr(C)]
pub struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub stream: Handle,
    pub attrs: *const LaunchAttribute,
    pub nattrs: c_uint,
}

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Text of the last stop of a kernel in this process.
pub fn last_fault() -> Option<String> {
    LAST.lock().unwrap_or_else(|e| e.into_inner()).clone()
}

/// Run a kernel now; a stop breaks the context, as on a chip.
pub fn execute(ctx: usize, r: &Request) -> Result<(), CUresult> {
    match launch::run(r) {
        Ok(_) => Ok(()),
        Err(f) => {
            eprintln!("{f}");
            *LAST.lock().unwrap_or_else(|e| e.into_inner()) = Some(f.to_string());
            if let Ok(c) = state().context(ctx) {
                c.sticky = f.code;
            }
            Err(f.code)
        }
    }
}

unsafe fn pack(f: &Function, params: *mut *mut c_void, extra: *mut *mut c_void) -> Result<Vec<u8>, CUresult> {
    let k = &f.kernel;
    let mut buf = vec![0u8; k.param_bytes as usize];
    if !extra.is_null() {
        let (mut p, mut n) = (std::ptr::null::<u8>(), 0usize);
        let mut e = extra;
        loop {
            match *e as usize {
                0 => break,
                1 => p = *e.add(1) as *const u8,
                2 => n = *(*e.add(1) as *const usize),
                _ => return Err(ERROR_INVALID_VALUE),
            }
            e = e.add(2);
        }
        if p.is_null() || n < buf.len() {
            return Err(ERROR_INVALID_VALUE);
        }
        std::ptr::copy_nonoverlapping(p, buf.as_mut_ptr(), buf.len());
        return Ok(buf);
    }
    for (i, p) in k.params.iter().enumerate() {
        if params.is_null() || (*params.add(i)).is_null() {
            complain("cuLaunchKernel", &format!("parameter {i} of {} is missing", k.name));
            return Err(ERROR_INVALID_VALUE);
        }
        std::ptr::copy_nonoverlapping(*params.add(i) as *const u8, buf[p.offset as usize..].as_mut_ptr(), p.size as usize);
    }
    Ok(buf)
}

#[allow(clippy::too_many_arguments)]
unsafe fn go(
    f: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: Option<[u32; 3]>,
    shared: u32,
    stream: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<(), CUresult> {
    let ctx = usable()?;
    let f = state().function(f as usize)?.clone();
    let cluster = cluster.unwrap_or_else(|| if f.cluster[0] == 0 { [1; 3] } else { f.cluster.map(|c| c.max(1)) });
    let request = Request { kernel: f.kernel.clone(), grid, block, cluster, dyn_smem: shared, params: pack(&f, params, extra)? };
    if let Err(r) = launch::check(&request, &arch::current(), f.max_dynamic) {
        complain("cuLaunchKernel", &format!("{}: {}", request.kernel.name, r.why));
        return Err(r.code);
    }
    if cluster.iter().product::<u32>() > 8 && !f.nonportable_cluster {
        complain(
            "cuLaunchKernel",
            &format!("cluster {cluster:?} has more than 8 blocks and the function does not allow non-portable sizes"),
        );
        return Err(ERROR_INVALID_VALUE);
    }
    submit("cuLaunchKernel", stream, Node::Kernel { ctx, request })
}

#[no_mangle]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cuLaunchKernel(
    f: Handle,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    code(go(f, [gx, gy, gz], [bx, by, bz], None, shared, stream, params, extra))
}

#[no_mangle]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cuLaunchCooperativeKernel(
    f: Handle,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Handle,
    params: *mut *mut c_void,
) -> CUresult {
    code(go(f, [gx, gy, gz], [bx, by, bz], None, shared, stream, params, std::ptr::null_mut()))
}

unsafe fn attrs<'a>(c: &LaunchConfig) -> &'a [LaunchAttribute] {
    if c.attrs.is_null() {
        &[]
    } else {
        std::slice::from_raw_parts(c.attrs, c.nattrs as usize)
    }
}

/// The cluster that a launch configuration asks for.
///
/// # Safety
/// The attributes must be valid.
pub unsafe fn cluster_of(c: &LaunchConfig, f: &Function) -> [u32; 3] {
    for a in attrs(c) {
        if a.id == 4 {
            return [a.value[0], a.value[1], a.value[2]];
        }
    }
    if f.cluster[0] == 0 {
        [1; 3]
    } else {
        f.cluster
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuLaunchKernelEx(
    c: *const LaunchConfig,
    f: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let Some(c) = c.as_ref() else { return ERROR_INVALID_VALUE };
    let mut cluster = None;
    for a in attrs(c) {
        match a.id {
            4 => cluster = Some([a.value[0], a.value[1], a.value[2]]),
            // Hints, and programmatic dependent launch: kernels run one after the other anyway.
            0..=3 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 | 14 => {}
            id => {
                complain("cuLaunchKernelEx", &format!("launch attribute {id} is not modelled"));
                return ERROR_NOT_SUPPORTED;
            }
        }
    }
    code(go(f, c.grid, c.block, cluster, c.shared, c.stream, params, extra))
}

/// Text of the last fault into a caller's buffer; returns its length.
#[no_mangle]
pub unsafe extern "C" fn nvfp4_emu_last_fault(buf: *mut u8, n: usize) -> usize {
    let s = last_fault().unwrap_or_default();
    if !buf.is_null() && n > 0 {
        let k = s.len().min(n - 1);
        std::ptr::copy_nonoverlapping(s.as_ptr(), buf, k);
        *buf.add(k) = 0;
    }
    s.len()
}

/// Bytes read and written by the launches since the last call, for tests in
/// other processes' languages: [launches, read, written, mma, instructions].
#[no_mangle]
pub unsafe extern "C" fn nvfp4_emu_take_counters(out: *mut u64) {
    let all = crate::counters::take();
    let v = [
        all.len() as u64,
        all.iter().map(|r| r.read()).sum(),
        all.iter().map(|r| r.written()).sum(),
        all.iter().map(|r| r.mma).sum(),
        all.iter().map(|r| r.instructions()).sum(),
    ];
    std::ptr::copy_nonoverlapping(v.as_ptr(), out, 5);
}
