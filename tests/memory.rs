//! What calls on the CPU allocate: quantize nothing, a product only a thread's packing buffers, once.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Counts what is allocated, by any thread, while `COUNTING`.
struct Counter;

static COUNTING: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

fn count(bytes: usize) {
    if COUNTING.load(SeqCst) {
        CALLS.fetch_add(1, SeqCst);
        BYTES.fetch_add(bytes, SeqCst);
    }
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise, here and below.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as above.
        unsafe { System.realloc(p, layout, size) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static COUNTER: Counter = Counter;

/// Allocations and their bytes during a call.
fn allocated(call: impl FnOnce() -> nvfp4_status) -> (usize, usize) {
    CALLS.store(0, SeqCst);
    BYTES.store(0, SeqCst);
    COUNTING.store(true, SeqCst);
    let status = call();
    COUNTING.store(false, SeqCst);
    ok(status);
    (CALLS.load(SeqCst), BYTES.load(SeqCst))
}

fn quantize_allocates_nothing(ctx: &Ctx) {
    let mut random = Random::new(5);
    let base = Options::default();
    let gradient = Options {
        hadamard: 16,
        rounding: Rounding::Stochastic,
        ..base
    };
    let weight = Options {
        block: Block::TwoD,
        ..base
    };
    let mx = Options {
        format: Format::Mxfp4,
        ..base
    };
    let searching = Options {
        select: Select::FourOverSixMse,
        ..base
    };
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let x = Dense::filled(dtype, 300, 1100, || random.normal());
        for o in [base, gradient, weight, mx, searching] {
            let mut row = Packed::room(&o, x.rows, x.cols, 0xFF, 0);
            let mut col = Packed::room(&o, x.cols, x.rows, 0xFF, 0);
            let mut desc: nvfp4_quantize_desc = zero();
            desc.rowwise = c_options(&o);
            desc.columnwise = c_options(&o);
            let (x, row, col) = (x.c(), row.c(), col.c());
            // SAFETY: valid descriptors and room for both copies.
            let call = || unsafe { nvfp4_quantize(ctx.0, &desc, &x, row, col, null_mut()) };
            ok(call());
            assert_eq!(allocated(call), (0, 0), "{dtype:?} {o:?}");
        }
    }
}

/// The first product of a context may allocate a thread's buffers, later ones no more than a few words.
fn products_allocate_their_buffers_once(threads: u32) {
    let ctx = Ctx::new(threads);
    let mut random = Random::new(6);
    for format in [Format::Nvfp4, Format::Mxfp4, Format::Bf16] {
        let o = Options {
            format,
            ..Options::default()
        };
        // Several tiles a thread, and a K at which a tile's rows are large.
        let x = Dense::filled(Dtype::F32, 300, 5000, || random.normal());
        let w = Dense::filled(Dtype::F32, 400, 5000, || random.normal());
        let mut a = quantize_one(&ctx, &o, &x, false, None);
        let mut b = quantize_one(&ctx, &o, &w, false, None);
        let d = Dense::filled(Dtype::F32, 300, 400, || f32::NAN);
        let (a, b, d) = (a.c(), b.c(), d.c());
        // SAFETY: valid operands and room for D.
        let call = || unsafe { nvfp4_gemm(ctx.0, null(), a, b, null(), &d, null_mut()) };
        let (_, bytes) = allocated(call);
        // A tile of D in f32 besides what is packed.
        let most = threads as usize * ((2 << 20) + (128 * 128 * 4) + 4096);
        assert!(
            bytes <= most,
            "{bytes} bytes of {most} for {threads} threads, {format:?}"
        );
        for _ in 0..20 {
            ok(call());
        }
        let (_, bytes) = allocated(call);
        assert!(bytes < 256, "{bytes} bytes, {format:?}");
    }
}

/// One test, so that nothing else allocates meanwhile.
#[test]
fn calls_allocate_what_they_may() {
    for threads in [1, 2] {
        quantize_allocates_nothing(&Ctx::new(threads));
        products_allocate_their_buffers_once(threads);
    }
}
