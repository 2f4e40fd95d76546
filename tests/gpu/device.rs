//! Device memory, streams, graphs and the clock, as a caller of the library has them: straight from the driver, in the
//! primary context.
#![allow(dead_code)] // the tests and the bench use different parts

use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUresult};

pub fn ok(what: &str, r: CUresult) {
    assert!(r == CUresult::CUDA_SUCCESS, "{what}: {r:?}");
}

/// Makes the primary context of device 0 current on this thread, or says why there is none.
pub fn enter() -> Result<(), String> {
    // SAFETY: plain driver calls with valid out pointers, after asking whether there is a driver.
    unsafe {
        if !sys::is_culib_present() {
            return Err("no CUDA driver (libcuda.so.1) on this machine".into());
        }
        let r = sys::cuInit(0);
        if r != CUresult::CUDA_SUCCESS {
            return Err(format!("cuInit: {r:?}"));
        }
        let (mut device, mut context) = (0, null_mut());
        ok("cuDeviceGet", sys::cuDeviceGet(&mut device, 0));
        ok(
            "cuDevicePrimaryCtxRetain",
            sys::cuDevicePrimaryCtxRetain(&mut context, device),
        );
        ok("cuCtxSetCurrent", sys::cuCtxSetCurrent(context));
    }
    Ok(())
}

/// A block of device memory.
pub struct Memory {
    pub address: u64,
    pub bytes: usize,
}

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        let mut address = 0;
        // SAFETY: valid out pointer.
        ok("cuMemAlloc", unsafe {
            sys::cuMemAlloc_v2(&mut address, bytes.max(256))
        });
        Memory { address, bytes }
    }
    pub fn at(&self, offset: usize) -> *mut u8 {
        (self.address as usize + offset) as *mut u8
    }
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.bytes);
        // SAFETY: in bounds on both sides.
        ok("cuMemcpyHtoD", unsafe {
            sys::cuMemcpyHtoD_v2(
                self.address + offset as u64,
                from.as_ptr().cast(),
                from.len(),
            )
        });
        // The copy of a small pageable buffer may still be on its way, and streams of their own do not wait for it.
        // SAFETY: the legacy stream.
        ok("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(null_mut())
        });
    }
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= self.bytes);
        // SAFETY: in bounds on both sides.
        ok("cuMemcpyDtoH", unsafe {
            sys::cuMemcpyDtoH_v2(
                to.as_mut_ptr().cast(),
                self.address + offset as u64,
                to.len(),
            )
        });
    }
    pub fn fill(&self, byte: u8) {
        // SAFETY: in bounds.
        ok("cuMemsetD8", unsafe {
            sys::cuMemsetD8_v2(self.address, byte, self.bytes)
        });
        // The host does not wait for a memset, and a stream of its own could overtake it.
        // SAFETY: the legacy stream.
        ok("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(null_mut())
        });
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`.
        unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// A stream of its own.
pub struct Stream(pub sys::CUstream);

impl Stream {
    pub fn new() -> Stream {
        let mut s = null_mut();
        // SAFETY: valid out pointer; 1 = does not wait for the default stream.
        ok("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut s, 1) });
        Stream(s)
    }
    pub fn raw(&self) -> *mut std::ffi::c_void {
        self.0.cast()
    }
    pub fn wait(&self) {
        // SAFETY: a live stream.
        ok("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.0)
        });
    }
    /// What `work` puts on the stream, as a graph.
    pub fn capture(&self, work: impl FnOnce()) -> Graph {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        // SAFETY: a live stream and valid out pointers. Global mode: any unsafe call of any thread spoils the capture.
        unsafe {
            let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;
            ok(
                "cuStreamBeginCapture",
                sys::cuStreamBeginCapture_v2(self.0, mode),
            );
            work();
            ok(
                "cuStreamEndCapture",
                sys::cuStreamEndCapture(self.0, &mut graph),
            );
            ok(
                "cuGraphInstantiate",
                sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0),
            );
        }
        Graph(exec)
    }
}

pub struct Graph(sys::CUgraphExec);

impl Graph {
    pub fn launch(&self, stream: &Stream) {
        // SAFETY: both are live.
        ok("cuGraphLaunch", unsafe {
            sys::cuGraphLaunch(self.0, stream.0)
        });
    }
}

/// Microseconds of one run of `work`: the median over `repeats` of the mean of ten runs between two events.
pub fn time(stream: &Stream, repeats: usize, mut work: impl FnMut()) -> f64 {
    const RUNS: usize = 10;
    let event = || {
        let mut e = null_mut();
        // SAFETY: valid out pointer.
        ok("cuEventCreate", unsafe { sys::cuEventCreate(&mut e, 0) });
        e
    };
    let pairs: Vec<_> = (0..repeats).map(|_| (event(), event())).collect();
    for _ in 0..RUNS {
        work();
    }
    for (start, end) in &pairs {
        // SAFETY: live events and stream.
        unsafe {
            ok("cuEventRecord", sys::cuEventRecord(*start, stream.0));
            (0..RUNS).for_each(|_| work());
            ok("cuEventRecord", sys::cuEventRecord(*end, stream.0));
        }
    }
    stream.wait();
    let mut times: Vec<f64> = pairs
        .iter()
        .map(|(start, end)| {
            let mut ms = 0f32;
            // SAFETY: both events have happened.
            unsafe {
                ok(
                    "cuEventElapsedTime",
                    sys::cuEventElapsedTime_v2(&mut ms, *start, *end),
                );
                sys::cuEventDestroy_v2(*start);
                sys::cuEventDestroy_v2(*end);
            }
            ms as f64 * 1e3 / RUNS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
