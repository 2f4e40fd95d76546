//! The driver API as a host program meets it: graphs and capture, contexts,
//! events, fat binaries, what is not implemented, counters.

mod support;
use nvfp4_emulator::driver::{
    context::*, event::*, fatbin, function::*, graph::*, memory::*, module::*, proc_address::*, stream::*, types::*,
};
use std::ffi::{c_void, CStr, CString};
use support::{Arg::*, Gpu};

/// y[i] = 2 * x[i] + y[i] over n elements of u32.
const PTX: &str = "
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 calls = 7;
.visible .entry twice(.param .u64 p_x, .param .u64 p_y, .param .u32 p_n)
{
  .reg .pred %p<2>; .reg .b32 %r<10>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [p_x]; ld.param.u64 %rd2, [p_y]; ld.param.u32 %r1, [p_n];
  mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x;
  mad.lo.s32 %r5, %r3, %r4, %r2;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra END;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
  ld.global.u32 %r6, [%rd4]; ld.global.u32 %r7, [%rd5];
  mad.lo.u32 %r8, %r6, 2, %r7;
  st.global.u32 [%rd5], %r8;
END:
  ret;
}
";

/// A capture in global mode forbids calls of every thread: one test at a time.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn stream() -> Handle {
    let mut s = std::ptr::null_mut();
    assert_eq!(cuStreamCreate(&mut s, 1), SUCCESS);
    s
}

fn launch(f: Handle, s: Handle, x: u64, y: u64, n: u32) -> CUresult {
    let mut args = [&x as *const u64 as *mut c_void, &y as *const u64 as *mut c_void, &n as *const u32 as *mut c_void];
    // SAFETY: three parameters, as the kernel has.
    unsafe { nvfp4_emulator::driver::launch::cuLaunchKernel(f, 4, 1, 1, 64, 1, 1, 0, s, args.as_mut_ptr(), std::ptr::null_mut()) }
}

#[test]
fn graphs_record_and_replay_with_copied_parameters() {
    let _alone = alone();
    let g = Gpu::new("sm_90");
    let f = g.module(PTX).get("twice").0;
    let x = g.upload(&(0..200u32).collect::<Vec<_>>());
    let y = g.filled(800, 0);
    let s = stream();
    assert_eq!(cuStreamBeginCapture_v2(s, 0), SUCCESS);
    assert_eq!(cuMemsetD32Async(y, 5, 200, s), SUCCESS);
    assert_eq!(launch(f, s, x, y, 200), SUCCESS);
    let mut graph = std::ptr::null_mut();
    let mut exec = std::ptr::null_mut();
    // SAFETY: valid places for handles, here and below.
    unsafe {
        let mut status = 0;
        assert_eq!(cuStreamIsCapturing(s, &mut status), SUCCESS);
        assert_eq!(status, 1);
        assert_eq!(cuStreamEndCapture(s, &mut graph), SUCCESS);
        let mut n = 0;
        assert_eq!(cuGraphGetNodes(graph, std::ptr::null_mut(), &mut n), SUCCESS);
        assert_eq!(n, 2);
        assert_eq!(cuGraphInstantiateWithFlags(&mut exec, graph, 0), SUCCESS);
    }
    assert_eq!(g.download::<u32>(y, 200), vec![0; 200], "capture runs nothing");
    for k in 1..4u32 {
        assert_eq!(cuMemcpyHtoD_v2(x, (0..200u32).map(|i| i * k).collect::<Vec<_>>().as_ptr() as *const c_void, 800), SUCCESS);
        assert_eq!(cuGraphLaunch(exec, s), SUCCESS);
        assert_eq!(g.download::<u32>(y, 200), (0..200).map(|i| 5 + 2 * i * k).collect::<Vec<_>>());
    }
    assert_eq!(cuGraphDestroy(graph), SUCCESS);
    assert_eq!(cuGraphExecDestroy(exec), SUCCESS);
    assert_eq!(cuGraphLaunch(exec, s), ERROR_INVALID_VALUE);

    // Allocating or waiting spoils a capture.
    for bad in 0..3 {
        let s = stream();
        assert_eq!(cuStreamBeginCapture_v2(s, 0), SUCCESS);
        let mut p = 0;
        let r = match bad {
            0 => cuMemAlloc_v2(&mut p, 16),
            1 => cuStreamSynchronize(s),
            _ => cuCtxSynchronize(),
        };
        assert_eq!(r, ERROR_STREAM_CAPTURE_UNSUPPORTED, "call {bad}");
        // SAFETY: as above.
        assert_eq!(unsafe { cuStreamEndCapture(s, &mut graph) }, ERROR_STREAM_CAPTURE_INVALIDATED);
        assert!(graph.is_null());
    }
}

#[test]
fn a_second_stream_joins_a_capture_by_an_event() {
    let _alone = alone();
    let g = Gpu::new("sm_90");
    let f = g.module(PTX).get("twice").0;
    let (x, y) = (g.filled(400, 1), g.filled(400, 0));
    let (s, t) = (stream(), stream());
    let mut e = std::ptr::null_mut();
    // SAFETY: valid places for handles.
    unsafe { assert_eq!(cuEventCreate(&mut e, 2), SUCCESS) };
    assert_eq!(cuStreamBeginCapture_v2(s, 1), SUCCESS);
    assert_eq!(cuEventRecord(e, s), SUCCESS);
    assert_eq!(cuEventQuery(e), ERROR_CAPTURED_EVENT);
    assert_eq!(cuStreamWaitEvent(t, e, 0), SUCCESS);
    assert_eq!(launch(f, t, x, y, 100), SUCCESS);
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: as above.
    unsafe {
        assert_eq!(cuStreamEndCapture(t, &mut graph), ERROR_STREAM_CAPTURE_UNMATCHED);
        assert_eq!(cuStreamEndCapture(s, &mut graph), SUCCESS);
        assert_eq!(cuGraphInstantiateWithFlags(&mut exec, graph, 0), SUCCESS);
    }
    assert_eq!(g.download::<u32>(y, 1), vec![0]);
    assert_eq!(cuGraphLaunch(exec, t), SUCCESS);
    assert_eq!(g.download::<u32>(y, 1), vec![0x0202_0202]);
}

#[test]
fn contexts_are_kept_apart() {
    let _alone = alone();
    let a = Gpu::new("sm_90");
    let f = a.module(PTX).get("twice").0;
    let (x, y) = (a.filled(400, 1), a.filled(400, 0));
    let s = stream();
    let b = Gpu::new("sm_90");
    assert_eq!(launch(f, s, x, y, 10), ERROR_INVALID_HANDLE, "a stream of another context");
    drop(b);
    assert_eq!(launch(f, s, x, y, 10), SUCCESS);
    let mut now = std::ptr::null_mut();
    // SAFETY: valid place for the handle.
    unsafe { assert_eq!(cuCtxPopCurrent_v2(&mut now), SUCCESS) };
    assert_eq!(launch(f, s, x, y, 10), ERROR_INVALID_CONTEXT);
    assert_eq!(cuCtxPushCurrent_v2(now), SUCCESS);
    assert_eq!(launch(f, s, x, y, 10), SUCCESS);
    assert_eq!(cuCtxSetCurrent(0x77 as Handle), ERROR_INVALID_CONTEXT);
}

#[test]
fn variables_and_attributes() {
    let _alone = alone();
    let g = Gpu::new("sm_90");
    let m = g.module(PTX);
    let (mut p, mut n, mut v) = (0, 0, 0);
    // SAFETY: valid handles and places.
    unsafe {
        assert_eq!(cuModuleGetGlobal_v2(&mut p, &mut n, m.0, c"calls".as_ptr()), SUCCESS);
        assert_eq!(cuModuleGetGlobal_v2(&mut p, &mut n, m.0, c"none".as_ptr()), ERROR_NOT_FOUND);
        let mut f = std::ptr::null_mut();
        assert_eq!(cuModuleGetFunction(&mut f, m.0, c"none".as_ptr()), ERROR_NOT_FOUND);
        assert_eq!(cuFuncGetAttribute(&mut v, 0, m.get("twice").0), SUCCESS);
    }
    assert_eq!((n, g.download::<u32>(p, 1)[0], v), (4, 7, 1024));
    assert_eq!(cuFuncSetAttribute(m.get("twice").0, 8, 232_448), SUCCESS);
    assert_eq!(cuFuncSetAttribute(m.get("twice").0, 8, 232_449), ERROR_INVALID_VALUE);
}

#[test]
fn what_is_missing_is_not_found() {
    let _alone = alone();
    let (mut f, mut status) = (std::ptr::null_mut(), 7);
    // SAFETY: valid names and places.
    unsafe {
        assert_eq!(cuGetProcAddress_v2(c"cuTexObjectCreate".as_ptr(), &mut f, 13000, 0, &mut status), ERROR_NOT_FOUND);
        assert!(f.is_null() && status == 1);
        assert_eq!(cuGetProcAddress_v2(c"cuMemAlloc".as_ptr(), &mut f, 13000, 0, &mut status), SUCCESS);
        assert_eq!(f as usize, cuMemAlloc_v2 as *const () as usize);
        let mut text = std::ptr::null();
        assert_eq!(cuGetErrorName(700, &mut text), SUCCESS);
        assert_eq!(CStr::from_ptr(text).to_str().unwrap(), "CUDA_ERROR_ILLEGAL_ADDRESS");
    }
    for (name, f) in TABLE {
        assert!(f() != 0, "{name}");
    }
}

/// A container with the given entries: (kind, architecture, compressed, data).
fn container(entries: &[(u16, u32, bool, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for &(kind, arch, packed, data) in entries {
        let mut h = vec![0u8; 64];
        let padded = data.len().next_multiple_of(8);
        h[0..2].copy_from_slice(&kind.to_le_bytes());
        h[4..8].copy_from_slice(&64u32.to_le_bytes());
        h[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        h[16..20].copy_from_slice(&(if packed { data.len() as u32 } else { 0 }).to_le_bytes());
        h[28..32].copy_from_slice(&arch.to_le_bytes());
        body.extend(h);
        body.extend(data);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    let mut out = 0xba55_ed50u32.to_le_bytes().to_vec();
    out.extend(1u16.to_le_bytes());
    out.extend(16u16.to_le_bytes());
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(body);
    out
}

#[test]
fn fat_binaries_give_the_best_ptx() {
    let _alone = alone();
    let arch = nvfp4_emulator::arch::Arch::by_name("sm_90").unwrap();
    let text = |t: &str| format!(".version 8.0\n.target {t}\n.address_size 64\n\0").into_bytes();
    let (a, b, c) = (text("sm_80"), text("sm_90a"), text("sm_100a"));
    let pick = |e: &[(u16, u32, bool, &[u8])]| {
        let image = container(e);
        // SAFETY: a complete container.
        unsafe { fatbin::ptx_of(image.as_ptr(), &arch) }
    };
    let got = pick(&[(1, 80, false, &a), (2, 90, false, b"\x7fELF"), (1, 90, false, &b), (1, 100, false, &c)]).unwrap();
    assert!(got.contains("sm_90a"));
    assert!(pick(&[(1, 80, false, &a), (1, 100, false, &c)]).unwrap().contains("sm_80"));
    let e = pick(&[(1, 80, true, &a), (2, 90, false, b"\x7fELF")]).unwrap_err();
    assert!(e.contains("compressed") && e.contains("sm_90 cubin"), "{e}");
    let elf = CString::new("\x7fELF garbage").unwrap();
    // SAFETY: NUL-terminated.
    assert!(unsafe { fatbin::ptx_of(elf.as_ptr() as *const u8, &arch) }.unwrap_err().contains("cubin"));
}

#[test]
fn modules_for_other_chips_and_broken_text_are_refused() {
    let _alone = alone();
    let g = Gpu::new("sm_90");
    let load = |text: &str| {
        let t = CString::new(text).unwrap();
        let mut m = std::ptr::null_mut();
        // SAFETY: NUL-terminated text.
        unsafe { cuModuleLoadData(&mut m, t.as_ptr() as *const c_void) }
    };
    assert_eq!(load(&PTX.replace("sm_80", "sm_100a")), ERROR_NO_BINARY_FOR_GPU);
    assert_eq!(load(&PTX.replace("ret;", "ret")), ERROR_INVALID_PTX);
    drop(g);
}

#[test]
fn counters_are_exact() {
    let _alone = alone();
    let g = Gpu::new("sm_90");
    let ptx = PTX.replace("twice", "twice_counted");
    let k = g.module(&ptx).get("twice_counted");
    let n = 1000u32;
    let (x, y) = (g.filled(4000, 1), g.filled(4000, 0));
    k.launch(16, 64, 0, &[Ptr(x), Ptr(y), U32(n)]);
    let r = support::counters_of("twice_counted").pop().unwrap();
    assert_eq!((r.read(), r.written()), (8000, 4000));
    let kind = |name: &str| r.kinds.iter().find(|k| k.0 == name).unwrap().1;
    assert_eq!((kind("ld.global.u32").warps, kind("ld.global.u32").lanes), (2 * 32, 2000));
    assert_eq!(kind("ld.global.u32").sectors, 2 * 125);
    assert_eq!(kind("st.global.u32").sectors, 125);
    assert!(r.table().contains("8000 B read, 4000 B written"));
}
