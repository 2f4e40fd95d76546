//! A driver by its functions' names: the emulator that is part of this program, or the machine's libcuda.

use nvfp4_emulator::driver::proc_address;
use std::ffi::{c_char, c_int, c_uint, c_void, CString};
use std::ptr::null_mut;

pub struct Driver {
    pub name: String,
    library: Option<*mut c_void>,
}

#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: *mut c_void,
    attributes: *const Attribute,
    count: c_uint,
}

#[repr(C)]
struct Attribute {
    id: c_int,
    pad: c_int,
    value: [u64; 8],
}

/// 128 bytes as the driver wants a tensor map to lie.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Map(pub [u8; 128]);

/// A tensor of bytes, 16-bit or 32-bit elements and the box that is copied.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The driver's number of the element type.
    pub element: c_uint,
    pub dims: Vec<u64>,
    /// Bytes from one index to the next, of all dimensions but the first.
    pub strides: Vec<u64>,
    pub boxes: Vec<u32>,
    pub swizzle: c_uint,
}

pub type Status<T> = Result<T, String>;

impl Driver {
    pub fn emulator() -> Driver {
        Driver { name: "the emulator".into(), library: None }
    }

    /// The machine's, if it has one.
    pub fn machine() -> Status<Driver> {
        // SAFETY: loads the driver as any program does.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match library.is_null() {
            true => Err("no CUDA driver (libcuda.so.1) on this machine".into()),
            false => Ok(Driver { name: "the card".into(), library: Some(library) }),
        }
    }

    fn find(&self, name: &str) -> usize {
        let found = match self.library {
            None => proc_address::TABLE.iter().find(|e| e.0 == name).map_or(0, |e| (e.1)()),
            Some(library) => {
                let symbol = CString::new(name).expect("no NUL");
                // SAFETY: a handle that stays open.
                unsafe { libc::dlsym(library, symbol.as_ptr()) as usize }
            }
        };
        assert!(found != 0, "{} has no {name}", self.name);
        found
    }
}

macro_rules! call {
    ($driver:expr, $name:ident($($value:expr => $ty:ty),* $(,)?)) => {{
        // SAFETY: the driver's own signature.
        let f: extern "C" fn($($ty),*) -> c_int = unsafe { std::mem::transmute($driver.find(stringify!($name))) };
        match f($($value),*) {
            0 => Ok(()),
            status => Err(format!("{} gives {status}", stringify!($name))),
        }
    }};
}

impl Driver {
    /// Makes a context current, and names the device. Is it of sm_90?
    pub fn enter(&mut self) -> Status<bool> {
        call!(self, cuInit(0 => c_uint))?;
        let (mut device, mut context, mut name) = (0, null_mut(), [0u8; 96]);
        call!(self, cuDeviceGet(&mut device => *mut c_int, 0 => c_int))?;
        call!(self, cuDeviceGetName(name.as_mut_ptr().cast() => *mut c_char, 96 => c_int, device => c_int))?;
        call!(self, cuDevicePrimaryCtxRetain(&mut context => *mut *mut c_void, device => c_int))?;
        call!(self, cuCtxSetCurrent(context => *mut c_void))?;
        let attribute = |which| {
            let mut value = 0;
            call!(self, cuDeviceGetAttribute(&mut value => *mut c_int, which => c_int, device => c_int)).map(|()| value)
        };
        let (major, minor) = (attribute(75)?, attribute(76)?);
        let end = name.iter().position(|b| *b == 0).unwrap_or(0);
        let said = String::from_utf8_lossy(&name[..end]).into_owned();
        self.name = format!("{said} (sm_{major}{minor})");
        Ok((major, minor) == (9, 0))
    }

    /// A context without what a stopped kernel left.
    pub fn restart(&mut self) -> Status<()> {
        call!(self, cuDevicePrimaryCtxReset_v2(0 => c_int))?;
        self.enter().map(|_| ())
    }

    pub fn module(&self, ptx: &str) -> Status<*mut c_void> {
        let text = CString::new(ptx).expect("PTX without NUL");
        let (mut module, mut log) = (null_mut(), vec![0u8; 4096]);
        // CU_JIT_ERROR_LOG_BUFFER and its size.
        let mut options = [5 as c_int, 6];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), 4096 as *mut c_void];
        let status = call!(self, cuModuleLoadDataEx(&mut module => *mut *mut c_void, text.as_ptr().cast() => *const c_void,
            2 => c_uint, options.as_mut_ptr() => *mut c_int, values.as_mut_ptr() => *mut *mut c_void));
        let end = log.iter().position(|b| *b == 0).unwrap_or(0);
        status.map_err(|e| format!("{e}: {}", String::from_utf8_lossy(&log[..end]).trim()))?;
        Ok(module)
    }

    pub fn function(&self, module: *mut c_void, name: &str) -> Status<*mut c_void> {
        let (c_name, mut function) = (CString::new(name).expect("no NUL"), null_mut());
        call!(self, cuModuleGetFunction(&mut function => *mut *mut c_void, module => *mut c_void, c_name.as_ptr() => *const c_char))?;
        Ok(function)
    }

    pub fn memory(&self, bytes: &[u8]) -> Status<u64> {
        let mut at = 0u64;
        call!(self, cuMemAlloc_v2(&mut at => *mut u64, bytes.len().max(1) => usize))?;
        call!(self, cuMemcpyHtoD_v2(at => u64, bytes.as_ptr().cast() => *const c_void, bytes.len() => usize))?;
        Ok(at)
    }

    pub fn read(&self, at: u64, bytes: usize) -> Status<Vec<u8>> {
        let mut out = vec![0u8; bytes];
        call!(self, cuMemcpyDtoH_v2(out.as_mut_ptr().cast() => *mut c_void, at => u64, bytes => usize))?;
        Ok(out)
    }

    pub fn free(&self, at: u64) -> Status<()> {
        call!(self, cuMemFree_v2(at => u64))
    }

    pub fn map(&self, t: &Tensor, at: u64) -> Status<Map> {
        let mut map = Map([0; 128]);
        let ones = vec![1u32; t.dims.len()];
        call!(self, cuTensorMapEncodeTiled((&raw mut map).cast() => *mut c_void, t.element => c_uint, t.dims.len() as c_uint => c_uint,
            at as *mut c_void => *mut c_void, t.dims.as_ptr() => *const u64, t.strides.as_ptr() => *const u64,
            t.boxes.as_ptr() => *const u32, ones.as_ptr() => *const u32, 0 => c_uint, t.swizzle => c_uint, 0 => c_uint, 0 => c_uint))?;
        Ok(map)
    }

    /// Launches and waits.
    pub fn launch(&self, function: *mut c_void, [grid, block, cluster, shared]: [u32; 4], arguments: &mut [*mut c_void]) -> Status<()> {
        if shared > 48 << 10 {
            call!(self, cuFuncSetAttribute(function => *mut c_void, 8 => c_int, shared as c_int => c_int))?;
        }
        // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        let attribute = Attribute { id: 4, pad: 0, value: [cluster as u64 | 1 << 32, 1, 0, 0, 0, 0, 0, 0] };
        let config = Config {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared,
            stream: null_mut(),
            attributes: &attribute,
            count: (cluster > 1) as c_uint,
        };
        call!(self, cuLaunchKernelEx(&config => *const Config, function => *mut c_void, arguments.as_mut_ptr() => *mut *mut c_void,
            null_mut() => *mut *mut c_void))?;
        call!(self, cuCtxSynchronize())
    }
}
