//! cuBLASLt, if this machine has it: found by dlopen, the copy that the process has already before any other. A product is
//! described once a shape and kept, with the algorithm that the library's heuristic names.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null_mut;
use std::sync::Mutex;

use crate::cuda::driver::Stream;
use crate::{Error, Result};

/// What cuBLASLt may use of the workspace.
pub const WORKSPACE: usize = 32 << 20;

const NAMES: [&CStr; 2] = [c"libcublasLt.so.13", c"libcublasLt.so.12"];
/// First version whose functions are used as they are here.
const NEEDED: usize = 120000;

type Handle = *mut c_void;

macro_rules! table {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        struct Table { $($field: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl Table {
            /// SAFETY: `library` comes from dlopen of cuBLASLt, whose functions have these types.
            unsafe fn load(library: *mut c_void) -> std::result::Result<Table, String> {
                Ok(Table {
                    $($field: {
                        // SAFETY: the caller's promise; the name is NUL-terminated.
                        let p = unsafe { libc::dlsym(library, concat!($symbol, "\0").as_ptr().cast::<c_char>()) };
                        if p.is_null() {
                            return Err(format!("cuBLASLt lacks {}", $symbol));
                        }
                        // SAFETY: a function of this type.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(p) }
                    },)*
                })
            }
        }
    };
}

table! {
    version = "cublasLtGetVersion": fn() -> usize;
    create = "cublasLtCreate": fn(*mut Handle) -> c_int;
    destroy = "cublasLtDestroy": fn(Handle) -> c_int;
    desc_create = "cublasLtMatmulDescCreate": fn(*mut Handle, c_int, c_int) -> c_int;
    desc_destroy = "cublasLtMatmulDescDestroy": fn(Handle) -> c_int;
    desc_set = "cublasLtMatmulDescSetAttribute": fn(Handle, c_int, *const c_void, usize) -> c_int;
    layout_create = "cublasLtMatrixLayoutCreate": fn(*mut Handle, c_int, u64, u64, i64) -> c_int;
    layout_destroy = "cublasLtMatrixLayoutDestroy": fn(Handle) -> c_int;
    preference_create = "cublasLtMatmulPreferenceCreate": fn(*mut Handle) -> c_int;
    preference_destroy = "cublasLtMatmulPreferenceDestroy": fn(Handle) -> c_int;
    preference_set = "cublasLtMatmulPreferenceSetAttribute": fn(Handle, c_int, *const c_void, usize) -> c_int;
    heuristic = "cublasLtMatmulAlgoGetHeuristic":
        fn(Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Heuristic, *mut c_int) -> c_int;
    matmul = "cublasLtMatmul":
        fn(Handle, Handle, *const f32, *const u8, Handle, *const u8, Handle, *const f32, *const u8, Handle, *mut u8,
           Handle, *const Algorithm, *mut u8, usize, *mut c_void) -> c_int;
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Algorithm([u64; 8]);

#[repr(C)]
#[derive(Clone, Copy)]
struct Heuristic {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}
const _: () = assert!(size_of::<Heuristic>() == 96);

/// Element type of both operands. FP4 ones have their block scales in the 128x4 layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elements {
    Bf16,
    Nvfp4,
    Mxfp4,
}

impl Elements {
    /// cudaDataType.
    fn code(self) -> c_int {
        match self {
            Elements::Bf16 => 14,
            Elements::Nvfp4 | Elements::Mxfp4 => 33,
        }
    }

    /// cublasLtMatmulMatrixScale_t: VEC16_UE4M3, VEC32_UE8M0.
    fn scale_mode(self) -> Option<c_int> {
        match self {
            Elements::Bf16 => None,
            Elements::Nvfp4 => Some(1),
            Elements::Mxfp4 => Some(2),
        }
    }
}

/// D [m, n] = alpha A [m, k] B [n, k]^T + beta C, all row-major; `ld*` in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub elements: Elements,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub lda: i64,
    pub ldb: i64,
    pub ldc: i64,
    pub ldd: i64,
    /// Of C and D: cudaDataType.
    pub dtype: c_int,
    /// Bytes that every pointer is a multiple of.
    pub alignment: u32,
}

/// The alignment that all of them have, as far as an algorithm may care.
pub fn alignment_of(pointers: &[*const u8]) -> u32 {
    let bits = pointers.iter().fold(256, |bits, p| bits | *p as usize);
    1 << bits.trailing_zeros()
}

/// A described product.
#[derive(Clone, Copy)]
struct Described {
    desc: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    d: Handle,
    algorithm: Algorithm,
}

pub struct Library {
    table: Table,
    handle: Handle,
    /// Or why the library does not do it.
    known: Mutex<HashMap<Shape, std::result::Result<Described, String>>>,
    /// Held from the setting of scale pointers to the call that reads them.
    pointers: Mutex<()>,
}

// SAFETY: a cuBLASLt handle may be used from any thread; what it describes is never changed after it was made.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// With the device's context current, or why there is none.
    pub fn load() -> std::result::Result<Library, String> {
        let open = |flags| {
            NAMES
                .iter()
                // SAFETY: NUL-terminated names; loading runs the library's own initializers only.
                .map(|name| unsafe { libc::dlopen(name.as_ptr(), flags) })
                .find(|library| !library.is_null())
        };
        let library = open(libc::RTLD_NOLOAD | libc::RTLD_LAZY)
            .or_else(|| open(libc::RTLD_LAZY | libc::RTLD_LOCAL))
            .ok_or("neither libcublasLt.so.13 nor .12 is in the process or on the loader's path")?;
        // SAFETY: cuBLASLt, see above. It stays loaded: other parts of the process may use it.
        let table = unsafe { Table::load(library)? };
        // SAFETY: plain calls with a valid out pointer.
        unsafe {
            let version = (table.version)();
            if version < NEEDED {
                return Err(format!(
                    "cuBLASLt is version {version}, want {NEEDED} or newer"
                ));
            }
            let mut handle = null_mut();
            match (table.create)(&mut handle) {
                0 => Ok(Library {
                    table,
                    handle,
                    known: Mutex::default(),
                    pointers: Mutex::default(),
                }),
                status => Err(format!("cublasLtCreate gives status {status}")),
            }
        }
    }

    /// Whether there is an algorithm, or why not; asks the heuristic once a shape. `scales`: of A and B, if they have any.
    pub fn has(&self, shape: &Shape, scales: [*const u8; 2]) -> std::result::Result<(), String> {
        self.described(shape, scales).map(|_| ())
    }

    fn described(
        &self,
        shape: &Shape,
        scales: [*const u8; 2],
    ) -> std::result::Result<Described, String> {
        let mut known = self.known.lock().unwrap_or_else(|p| p.into_inner());
        known
            .entry(*shape)
            .or_insert_with(|| self.describe(shape, scales))
            .clone()
    }

    fn describe(
        &self,
        s: &Shape,
        scales: [*const u8; 2],
    ) -> std::result::Result<Described, String> {
        let mut out = Described {
            desc: null_mut(),
            a: null_mut(),
            b: null_mut(),
            c: null_mut(),
            d: null_mut(),
            algorithm: Algorithm([0; 8]),
        };
        let mut preference = null_mut();
        let found = self.ask(s, scales, &mut out, &mut preference);
        if !preference.is_null() {
            // SAFETY: made by `ask`, used by nobody now.
            unsafe { (self.table.preference_destroy)(preference) };
        }
        if let Err(why) = found {
            self.forget(&out);
            return Err(why);
        }
        Ok(out)
    }

    /// Row-major D is column-major D^T = B A^T: the library's first operand is B, transposed.
    fn ask(
        &self,
        s: &Shape,
        scales: [*const u8; 2],
        out: &mut Described,
        preference: &mut Handle,
    ) -> std::result::Result<(), String> {
        let t = &self.table;
        let check = |what: &str, status: c_int| match status {
            0 => Ok(()),
            _ => Err(format!("cuBLASLt gives status {status} to {what}")),
        };
        let elements = s.elements.code();
        // SAFETY: documented calls with valid pointers and the sizes of what they point to.
        unsafe {
            // COMPUTE_32F, R_32F.
            check(
                "a product in f32",
                (t.desc_create)(&raw mut out.desc, 68, 0),
            )?;
            let set = |name: &str, attribute, value: c_int| {
                check(
                    name,
                    (t.desc_set)(out.desc, attribute, (&raw const value).cast(), 4),
                )
            };
            set("POINTER_MODE", 2, DEVICE_POINTERS)?;
            set("TRANSA", 3, TRANSPOSED)?;
            if let Some(mode) = s.elements.scale_mode() {
                set("A_SCALE_MODE", 31, mode)?;
                set("B_SCALE_MODE", 32, mode)?;
                check("its scale pointers", self.point(out.desc, scales))?;
            }
            let layout = |name: &str, to: *mut Handle, kind, rows, cols, ld| {
                check(name, (t.layout_create)(to, kind, rows, cols, ld))
            };
            layout("the layout of B", &raw mut out.b, elements, s.k, s.n, s.ldb)?;
            layout("the layout of A", &raw mut out.a, elements, s.k, s.m, s.lda)?;
            layout("the layout of C", &raw mut out.c, s.dtype, s.n, s.m, s.ldc)?;
            layout("the layout of D", &raw mut out.d, s.dtype, s.n, s.m, s.ldd)?;
            check("a preference", (t.preference_create)(preference))?;
            let room = WORKSPACE as u64;
            let status = (t.preference_set)(*preference, 1, (&raw const room).cast(), 8);
            check("MAX_WORKSPACE_BYTES", status)?;
            // MIN_ALIGNMENT_A_BYTES to _D_: an algorithm may rely on 256 otherwise.
            for attribute in 5..=8 {
                let status =
                    (t.preference_set)(*preference, attribute, (&raw const s.alignment).cast(), 4);
                check("MIN_ALIGNMENT", status)?;
            }
            let mut result = std::mem::zeroed::<Heuristic>();
            let mut count = 0;
            let status = (t.heuristic)(
                self.handle,
                out.desc,
                out.b,
                out.a,
                out.c,
                out.d,
                *preference,
                1,
                &mut result,
                &mut count,
            );
            if status != 0 || count == 0 || result.state != 0 {
                return Err(format!(
                    "cuBLASLt's heuristic has no algorithm for it (status {status}, {count} found)"
                ));
            }
            out.algorithm = result.algorithm;
        }
        Ok(())
    }

    /// Scale pointers of A and B; the library's first operand is B.
    ///
    /// SAFETY: `desc` is a matmul descriptor.
    unsafe fn point(&self, desc: Handle, [a, b]: [*const u8; 2]) -> c_int {
        // SAFETY: the caller's promise; attributes A_SCALE_POINTER and B_SCALE_POINTER hold a pointer each.
        unsafe {
            let size = size_of::<*const u8>();
            match (self.table.desc_set)(desc, 17, (&raw const b).cast(), size) {
                0 => (self.table.desc_set)(desc, 18, (&raw const a).cast(), size),
                status => status,
            }
        }
    }

    fn forget(&self, d: &Described) {
        // SAFETY: made by `describe`, used by nobody now.
        unsafe {
            for layout in [d.a, d.b, d.c, d.d].into_iter().filter(|l| !l.is_null()) {
                (self.table.layout_destroy)(layout);
            }
            if !d.desc.is_null() {
                (self.table.desc_destroy)(d.desc);
            }
        }
    }

    /// `scalars`: alpha and beta in device memory. C is D where beta is 0.
    pub fn run(
        &self,
        shape: &Shape,
        scalars: *const f32,
        [a, b, c]: [*const u8; 3],
        scales: [*const u8; 2],
        d: *mut u8,
        workspace: *mut u8,
        stream: Stream,
    ) -> Result<()> {
        let x = self
            .described(shape, scales)
            .map_err(|why| Error::Internal(format!("{shape:?}: {why}")))?;
        let has_scales = shape.elements.scale_mode().is_some();
        let _pointers = has_scales.then(|| self.pointers.lock().unwrap_or_else(|p| p.into_inner()));
        // SAFETY: a descriptor of this library; nobody else points it elsewhere while the lock is held.
        if has_scales && unsafe { self.point(x.desc, scales) } != 0 {
            return Err(Error::Driver(format!(
                "{shape:?}: cuBLASLt refuses its scale pointers"
            )));
        }
        // SAFETY: the plan checked the operands; layouts describe them.
        let status = unsafe {
            (self.table.matmul)(
                self.handle,
                x.desc,
                scalars,
                b,
                x.b,
                a,
                x.a,
                scalars.wrapping_add(1),
                c,
                x.c,
                d,
                x.d,
                &x.algorithm,
                workspace,
                WORKSPACE,
                stream.raw(),
            )
        };
        match status {
            0 => Ok(()),
            _ => Err(Error::Driver(format!(
                "cublasLtMatmul of {shape:?} gives status {status}"
            ))),
        }
    }
}

/// Values of attributes.
const DEVICE_POINTERS: c_int = 1;
const TRANSPOSED: c_int = 1;

impl Drop for Library {
    fn drop(&mut self) {
        let known = std::mem::take(&mut *self.known.lock().unwrap_or_else(|p| p.into_inner()));
        for d in known.into_values().flatten() {
            self.forget(&d);
        }
        // SAFETY: made by `load`; no call is running.
        unsafe { (self.table.destroy)(self.handle) };
    }
}
