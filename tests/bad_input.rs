//! Bad input through the C ABI: the stated status, a sentence with the values in it, and outputs as they were.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::*;
use std::mem::{offset_of, size_of};
use std::ptr::{null, null_mut};

#[test]
fn struct_size_is_read_first() {
    let s = Setup::new();
    ok(s.run(|_, _, _| {}));
    let full = size_of::<nvfp4_quantize_desc>().to_string();
    for bad in [0, 1, 8, 24, usize::MAX, 1 << 20] {
        fails(
            s.run(|d, _, _| d.struct_size = bad),
            NVFP4_ERR_STRUCT_SIZE,
            &[&bad.to_string(), &full],
        );
        fails(
            s.run(|_, x, _| x.struct_size = bad),
            NVFP4_ERR_STRUCT_SIZE,
            &[&bad.to_string(), "nvfp4_matrix"],
        );
        fails(
            s.run(|_, _, q| q.struct_size = bad),
            NVFP4_ERR_STRUCT_SIZE,
            &[&bad.to_string(), "nvfp4_quantized"],
        );
    }
    // A shorter one reads as zero from there on.
    let short = offset_of!(nvfp4_quantize_desc, seed);
    ok(s.run(|d, _, _| {
        d.struct_size = short;
        d.rowwise_amax = 8 as *const f32;
        d.stats = std::ptr::dangling_mut::<nvfp4_stats>();
    }));
}

#[test]
fn a_longer_struct_is_accepted_when_its_tail_is_zero() {
    #[repr(C)]
    struct Newer {
        desc: nvfp4_quantize_desc,
        more: [u64; 4],
    }
    let s = Setup::new();
    let mut newer = Newer {
        desc: zero(),
        more: [0; 4],
    };
    newer.desc.struct_size = size_of::<Newer>();
    let call = |newer: &Newer| {
        let mut copy = Packed::room(&Options::default(), 32, 48, 0xA5, 0);
        let x = s.x.c();
        // SAFETY: valid pointers; the descriptor is as long as it says.
        unsafe { nvfp4_quantize(s.ctx.0, &newer.desc, &x, copy.c(), null_mut(), null_mut()) }
    };
    ok(call(&newer));
    newer.more[2] = 1 << 40;
    let size = size_of::<Newer>().to_string();
    let ours = size_of::<nvfp4_quantize_desc>().to_string();
    fails(
        call(&newer),
        NVFP4_ERR_STRUCT_SIZE,
        &[&size, &ours, "not zero"],
    );
}

#[test]
fn nested_options_know_their_size() {
    let s = Setup::new();
    ok(s.run(|d, _, _| {
        d.rowwise = nvfp4_options {
            struct_size: size_of::<nvfp4_options>(),
            ..d.rowwise
        }
    }));
    // Forgotten struct_size with a field set is no silent default.
    let status = s.run(|d, _, _| {
        d.rowwise.struct_size = 0;
        d.rowwise.format = NVFP4_FORMAT_MXFP4;
    });
    fails(
        status,
        NVFP4_ERR_STRUCT_SIZE,
        &["desc.rowwise.struct_size is 0"],
    );
    fails(
        s.run(|d, _, _| d.rowwise.struct_size = 88),
        NVFP4_ERR_STRUCT_SIZE,
        &["88", "80"],
    );
}

#[test]
fn pointers_are_checked() {
    let s = Setup::new();
    fails(
        s.run(|_, x, _| x.data = null_mut()),
        NVFP4_ERR_NULL_POINTER,
        &["x is NULL"],
    );
    fails(
        s.run(|_, _, q| q.codes = null_mut()),
        NVFP4_ERR_NULL_POINTER,
        &["codes"],
    );
    fails(
        s.run(|_, _, q| q.scales = null_mut()),
        NVFP4_ERR_NULL_POINTER,
        &["scales"],
    );
    fails(
        s.run(|_, _, q| q.amax = null_mut()),
        NVFP4_ERR_NULL_POINTER,
        &["amax"],
    );
    let shifted = |p: *mut std::ffi::c_void, by: usize| p.cast::<u8>().wrapping_add(by).cast();
    for by in [1, 2, 3] {
        fails(
            s.run(|_, x, _| x.data = shifted(x.data, by)),
            NVFP4_ERR_ALIGNMENT,
            &["x", "4 bytes"],
        );
        fails(
            s.run(|_, _, q| q.amax = shifted(q.amax.cast(), by).cast()),
            NVFP4_ERR_ALIGNMENT,
            &["amax"],
        );
        fails(
            s.run(|d, _, _| d.rowwise_amax = (64 + by) as *const f32),
            NVFP4_ERR_ALIGNMENT,
            &["amax"],
        );
        fails(
            s.run(|d, _, _| d.seed_offset = (64 + by) as *const u64),
            NVFP4_ERR_ALIGNMENT,
            &["seed_offset"],
        );
        fails(
            s.run(|d, _, _| d.stats = (64 + by) as *mut nvfp4_stats),
            NVFP4_ERR_ALIGNMENT,
            &["stats"],
        );
    }
    let x = s.x.c();
    let mut q = zero::<nvfp4_quantized>();
    // SAFETY: NULL where a pointer is wanted is what is tested.
    unsafe {
        let n = null_mut();
        fails(
            nvfp4_quantize(null_mut(), &s.desc, &x, &mut q, n, null_mut()),
            NVFP4_ERR_NULL_POINTER,
            &["ctx"],
        );
        fails(
            nvfp4_quantize(s.ctx.0, &s.desc, null(), &mut q, n, null_mut()),
            NVFP4_ERR_NULL_POINTER,
            &["x"],
        );
        fails(
            nvfp4_quantize(s.ctx.0, &s.desc, &x, n, n, null_mut()),
            NVFP4_ERR_NULL_POINTER,
            &["rowwise"],
        );
        fails(
            nvfp4_quantize(s.ctx.0, &s.desc, &x, &mut q, n, null_mut()),
            NVFP4_ERR_BUFFER_SIZE,
            &["codes_bytes"],
        );
    }
    let mut copy = Packed::room(&Options::default(), 32, 48, 0, 0);
    // SAFETY: a stream on the CPU is what is tested.
    let status =
        unsafe { nvfp4_quantize(s.ctx.0, &s.desc, &x, copy.c(), null_mut(), 64 as *mut _) };
    fails(status, NVFP4_ERR_INVALID_ARGUMENT, &["stream", "0x40"]);
}

#[test]
fn shapes_are_checked_without_overflow() {
    let s = Setup::new();
    fails(
        s.run(|_, x, _| x.rows = -3),
        NVFP4_ERR_SHAPE,
        &["x.rows is -3"],
    );
    fails(
        s.run(|_, x, _| x.cols = i64::MIN),
        NVFP4_ERR_SHAPE,
        &["x.cols"],
    );
    fails(
        s.run(|_, x, _| x.stride = 47),
        NVFP4_ERR_SHAPE,
        &["47", "48"],
    );
    fails(
        s.run(|_, x, _| x.stride = i64::MAX),
        NVFP4_ERR_SHAPE,
        &["x.stride"],
    );
    fails(
        s.run(|_, x, _| x.stride = 1 << 56),
        NVFP4_ERR_SHAPE,
        &["address space"],
    );
    fails(
        s.run(|_, x, _| x.rows = 1 << 56),
        NVFP4_ERR_SHAPE,
        &["address space"],
    );
    let both = s.run(|_, x, _| {
        x.rows = 1 << 40;
        x.cols = 1 << 40;
        x.stride = 0;
    });
    fails(both, NVFP4_ERR_SHAPE, &["address space"]);
    fails(
        s.run(|_, _, q| q.code_stride = 23),
        NVFP4_ERR_SHAPE,
        &["23", "24"],
    );
    fails(
        s.run(|_, _, q| q.scale_stride = 2),
        NVFP4_ERR_SHAPE,
        &["2", "3"],
    );
    fails(
        s.run(|_, _, q| q.code_stride = -1),
        NVFP4_ERR_SHAPE,
        &["-1"],
    );
    fails(
        s.run(|_, _, q| q.code_stride = 1 << 55),
        NVFP4_ERR_SHAPE,
        &["address space"],
    );
    fails(
        s.run(|_, _, q| q.codes_bytes -= 1),
        NVFP4_ERR_BUFFER_SIZE,
        &["767", "768"],
    );
    fails(
        s.run(|_, _, q| q.scales_bytes -= 1),
        NVFP4_ERR_BUFFER_SIZE,
        &["95", "96"],
    );
    fails(
        s.run(|_, _, q| q.amax_count = 0),
        NVFP4_ERR_BUFFER_SIZE,
        &["amax_count is 0"],
    );
    let mut sizes = nvfp4_sizes::default();
    // SAFETY: valid pointers.
    let status =
        unsafe { nvfp4_quantize_sizes(s.ctx.0, null(), 1 << 33, 1 << 33, 0, 3, &mut sizes) };
    fails(status, NVFP4_ERR_SHAPE, &["address space"]);
}

/// Nothing to do is done at once, however many empty rows there are.
#[test]
fn endless_empty_matrices() {
    let ctx = Ctx::new(2);
    let many = 1i64 << 56;
    let tiles = nvfp4_options {
        block: NVFP4_BLOCK_2D,
        scale_layout: NVFP4_SCALES_SWIZZLED,
        ..zero()
    };
    for (rows, cols) in [(many, 0), (0, many)] {
        let mut stats = nvfp4_stats {
            nonfinite: 7,
            ..Default::default()
        };
        let mut desc: nvfp4_quantize_desc = zero();
        (desc.rowwise, desc.columnwise, desc.stats) = (tiles, tiles, &mut stats);
        let mut x: nvfp4_matrix = zero();
        (x.rows, x.cols) = (rows, cols);
        let mut amax = [7f32; 2];
        let mut r: nvfp4_quantized = zero();
        (r.amax, r.amax_count) = (&mut amax[0], 1);
        let mut c = nvfp4_quantized {
            amax: &mut amax[1],
            ..r
        };
        let mut out: nvfp4_matrix = zero();
        (out.rows, out.cols) = (rows, cols);
        let n = null_mut();
        // SAFETY: empty matrices need no memory but the amax.
        unsafe {
            ok(nvfp4_quantize(ctx.0, &desc, &x, &mut r, &mut c, n));
            ok(nvfp4_dequantize(ctx.0, &r, 0, &out, n));
            ok(nvfp4_hadamard(ctx.0, null(), &x, &out, n));
            let mut turned = c;
            ok(nvfp4_transpose(ctx.0, &r, &mut turned, n));
            assert_eq!((turned.rows, turned.cols), (cols, rows));
            ok(nvfp4_swizzle_scales(
                ctx.0,
                rows,
                0,
                null(),
                0,
                n.cast(),
                0,
                n,
            ));
            ok(nvfp4_unswizzle_scales(
                ctx.0,
                rows,
                0,
                null(),
                0,
                n.cast(),
                0,
                n,
            ));
        }
        assert_eq!(amax, [0.0; 2]);
        assert_eq!((stats.nonfinite, stats.sum_squares), (0, 0.0));
    }
}
