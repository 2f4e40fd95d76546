//! A small host side for tests: compile CUDA, load, launch, compare.
#![allow(dead_code)]

use nvfp4_emulator::driver::{context::*, device::*, function::*, launch::*, memory::*, module::*, types::*};
use nvfp4_emulator::{arch, counters};
use std::collections::hash_map::DefaultHasher;
use std::ffi::{c_void, CString};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The CUDA compiler: `NVCC`, the project's `.venv-cuda`, or the system's.
pub fn nvcc() -> Option<PathBuf> {
    if let Some(p) = std::env::var_os("NVCC") {
        return Some(PathBuf::from(p));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    if let Ok(libs) = std::fs::read_dir(root.join(".venv-cuda/lib")) {
        for d in libs.flatten() {
            found.push(d.path().join("site-packages/nvidia/cu13/bin/nvcc"));
        }
    }
    found.push(PathBuf::from("/usr/local/cuda/bin/nvcc"));
    found.into_iter().find(|p| p.is_file())
}

/// Compile CUDA to PTX for `compute_XX`, once for each text. None (with one
/// printed line) when there is no compiler.
pub fn compile(name: &str, source: &str, target: &str) -> Option<String> {
    compile_with(name, source, target, None)
}

/// The same for a kernel of the library; `folder` is the include path, and
/// `source` must hold every header's text for the cache's sake.
pub fn compile_with(name: &str, source: &str, target: &str, folder: Option<&Path>) -> Option<String> {
    let Some(nvcc) = nvcc() else {
        println!("skipped {name}: no nvcc (set NVCC, or make .venv-cuda)");
        return None;
    };
    let mut h = DefaultHasher::new();
    (source, target, nvcc.to_string_lossy()).hash(&mut h);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ptx");
    std::fs::create_dir_all(&dir).unwrap();
    let stem = format!("{name}-{target}-{:016x}", h.finish());
    let (cu, ptx) = (dir.join(format!("{stem}.cu")), dir.join(format!("{stem}.ptx")));
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    if !ptx.is_file() {
        std::fs::write(&cu, source).unwrap();
        let tmp = dir.join(format!("{stem}.{}.tmp", std::process::id()));
        let out = Command::new(nvcc)
            .args(["-std=c++17", "-ptx", "-lineinfo", &format!("-arch=compute_{target}"), "-o"])
            .arg(&tmp)
            .arg(&cu)
            .args(folder.map(|f| format!("-I{}", f.display())))
            .output()
            .unwrap();
        assert!(out.status.success(), "nvcc: {}", String::from_utf8_lossy(&out.stderr));
        std::fs::rename(&tmp, &ptx).unwrap();
    }
    Some(std::fs::read_to_string(ptx).unwrap())
}

pub struct Gpu {
    ctx: Handle,
}

pub enum Arg {
    Ptr(u64),
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
    Bytes(Vec<u8>),
}

impl Gpu {
    /// A context of its own on the given chip.
    pub fn new(chip: &str) -> Gpu {
        assert!(arch::choose(chip), "another chip was chosen in this process");
        assert_eq!(cuInit(0), SUCCESS);
        let mut ctx = std::ptr::null_mut();
        // SAFETY: the place for the handle is valid.
        assert_eq!(unsafe { cuCtxCreate_v4(&mut ctx, std::ptr::null_mut(), 0, 0) }, SUCCESS);
        Gpu { ctx }
    }

    pub fn module(&self, ptx: &str) -> Module {
        let text = CString::new(ptx).unwrap();
        let mut m = std::ptr::null_mut();
        // SAFETY: NUL-terminated text.
        assert_eq!(unsafe { cuModuleLoadData(&mut m, text.as_ptr() as *const c_void) }, SUCCESS);
        Module(m)
    }

    pub fn alloc(&self, bytes: usize) -> u64 {
        let mut p = 0;
        assert_eq!(cuMemAlloc_v2(&mut p, bytes), SUCCESS);
        p
    }

    pub fn upload<T: Copy>(&self, v: &[T]) -> u64 {
        let n = std::mem::size_of_val(v);
        let p = self.alloc(n);
        assert_eq!(cuMemcpyHtoD_v2(p, v.as_ptr() as *const c_void, n), SUCCESS);
        p
    }

    /// Memory filled with a byte.
    pub fn filled(&self, bytes: usize, v: u8) -> u64 {
        let p = self.alloc(bytes);
        assert_eq!(cuMemsetD8_v2(p, v, bytes), SUCCESS);
        p
    }

    pub fn download<T: Copy + Default>(&self, p: u64, n: usize) -> Vec<T> {
        let mut v = vec![T::default(); n];
        assert_eq!(cuMemcpyDtoH_v2(v.as_mut_ptr() as *mut c_void, p, std::mem::size_of_val(&v[..])), SUCCESS);
        v
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        cuCtxDestroy_v2(self.ctx);
    }
}

pub struct Module(pub Handle);

pub struct Kernel(pub Handle);

impl Module {
    pub fn get(&self, name: &str) -> Kernel {
        let n = CString::new(name).unwrap();
        let mut f = std::ptr::null_mut();
        // SAFETY: valid handle and name.
        assert_eq!(unsafe { cuModuleGetFunction(&mut f, self.0, n.as_ptr()) }, SUCCESS, "function {name}");
        Kernel(f)
    }
}

impl Kernel {
    /// Launch; the driver's result.
    pub fn try_launch(&self, grid: [u32; 3], block: [u32; 3], cluster: [u32; 3], shared: u32, args: &[Arg]) -> CUresult {
        let mut store: Vec<Vec<u8>> = args
            .iter()
            .map(|a| match a {
                Arg::Ptr(v) | Arg::U64(v) => v.to_le_bytes().to_vec(),
                Arg::U32(v) => v.to_le_bytes().to_vec(),
                Arg::I32(v) => v.to_le_bytes().to_vec(),
                Arg::F32(v) => v.to_le_bytes().to_vec(),
                Arg::Bytes(b) => b.clone(),
            })
            .collect();
        let mut ptrs: Vec<*mut c_void> = store.iter_mut().map(|b| b.as_mut_ptr() as *mut c_void).collect();
        if shared > 49152 {
            assert_eq!(cuFuncSetAttribute(self.0, 8, shared as i32), SUCCESS);
        }
        for d in 0..3 {
            cuFuncSetAttribute(self.0, 11 + d as i32, cluster[d] as i32);
        }
        // SAFETY: as many parameters as the kernel has, by the test's care.
        unsafe {
            cuLaunchKernel(
                self.0,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared,
                std::ptr::null_mut(),
                ptrs.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    }

    pub fn launch(&self, grid: u32, block: u32, shared: u32, args: &[Arg]) {
        assert_eq!(self.try_launch([grid, 1, 1], [block, 1, 1], [1, 1, 1], shared, args), SUCCESS);
    }

    /// Launch a kernel that must stop; its report.
    pub fn must_stop(&self, grid: u32, block: u32, shared: u32, args: &[Arg]) -> String {
        let r = self.try_launch([grid, 1, 1], [block, 1, 1], [1, 1, 1], shared, args);
        assert_ne!(r, SUCCESS, "the kernel should have been stopped");
        last_fault().unwrap()
    }
}

/// Counters of this process's launches of one kernel.
pub fn counters_of(name: &str) -> Vec<counters::LaunchRecord> {
    counters::take().into_iter().filter(|r| r.kernel == name).collect()
}
