//! Faults that other libraries had, with memory (kinds G, I and J: swizzled layout and padding, strides and alignment,
//! large indices), through the C ABI.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::*;
use std::ptr::{null, null_mut};

fn mx() -> Options {
    Options {
        format: Format::Mxfp4,
        ..Options::default()
    }
}

/// A product of two quantized matrices, D in f32.
#[track_caller]
fn product(ctx: &Ctx, a: &mut Packed, b: &mut Packed) -> Dense {
    let d = Dense::filled(Dtype::F32, a.q.rows as usize, b.q.rows as usize, || {
        f32::NAN
    });
    let view = d.c();
    // SAFETY: valid operands and room for D.
    ok(unsafe { nvfp4_gemm(ctx.0, null(), a.c(), b.c(), null(), &view, null_mut()) });
    d
}

/// The swizzled buffer is written whole, and its padding is not read.
#[test]
fn g1_g2_padding_of_swizzled_scales() {
    let ctx = Ctx::new(2);
    let mut random = Random::new(2);
    let swizzled = |o: Options| Options {
        scale_layout: ScaleLayout::Swizzled,
        ..o
    };
    for (o, rows, cols) in [
        (swizzled(Options::default()), 1, 16),
        (swizzled(Options::default()), 5, 48),
        (swizzled(Options::default()), 33, 80),
        (swizzled(Options::default()), 129, 1008),
        (swizzled(Options::default()), 255, 48),
        (swizzled(mx()), 3, 1504),
        (swizzled(mx()), 7, 32),
    ] {
        let x = Dense::filled(Dtype::F32, rows, cols, || random.normal());
        let desc = {
            let mut desc: nvfp4_quantize_desc = zero();
            desc.rowwise = c_options(&o);
            desc
        };
        let [mut clean, ones] = [0x00, 0xFF].map(|poison| {
            let mut copy = Packed::room(&o, rows, cols, poison, 0);
            quantize(&ctx, &desc, &x, Some(&mut copy), None);
            copy
        });
        let used = clean.q.scales_bytes;
        assert_eq!(
            clean.scales[..used],
            ones.scales[..used],
            "{rows} x {cols}: padding is defined"
        );
        let blocks = layout::scale_cols(o.format, cols);
        assert_eq!(
            clean.scales[..used].iter().filter(|s| **s != 0).count(),
            rows * blocks
        );
        // Dirty padding, as another library may leave it.
        let mut dirty = clean.clone();
        let mut real = vec![false; used];
        (0..rows).for_each(|r| {
            (0..blocks).for_each(|b| real[layout::swizzled_offset(r, b, blocks)] = true)
        });
        dirty.scales[..used]
            .iter_mut()
            .zip(&real)
            .for_each(|(s, real)| {
                if !real {
                    *s = 0xFF
                }
            });
        let mut other = clean.clone();
        let want = product(&ctx, &mut clean, &mut other);
        assert!(
            want.values().iter().all(|v| v.is_finite()) && want.values().iter().any(|v| *v != 0.0)
        );
        let mut other = dirty.clone();
        let have = product(&ctx, &mut dirty, &mut other);
        assert_eq!(
            have.bits(),
            want.bits(),
            "{rows} x {cols}: padding was read"
        );
    }
}

/// The offsets of the 128x4 layout, and the way back.
#[test]
fn g3_g5_swizzle() {
    let ctx = Ctx::new(1);
    for (row, col, cols, offset) in [
        (33usize, 5usize, 8usize, 533usize),
        (129, 0, 2, 528),
        (127, 3, 4, 511),
    ] {
        let rows = row + 1;
        let mut linear = vec![0u8; rows * cols];
        linear[row * cols + col] = 0xAB;
        let bytes = layout::scale_bytes(ScaleLayout::Swizzled, rows, cols);
        let mut out = vec![0xFF; bytes];
        let (r, c) = (rows as i64, cols as i64);
        // SAFETY: valid buffers.
        ok(unsafe {
            nvfp4_swizzle_scales(
                ctx.0,
                r,
                c,
                linear.as_ptr(),
                0,
                out.as_mut_ptr(),
                bytes,
                null_mut(),
            )
        });
        assert_eq!(out[offset], 0xAB, "({row}, {col}) of {cols}");
        assert_eq!(out.iter().filter(|b| **b != 0).count(), 1, "padding is 0");
    }
    let mut bytes = 0;
    // SAFETY: valid pointer.
    ok(unsafe { nvfp4_scales_bytes(130, 2, NVFP4_SCALES_SWIZZLED, &mut bytes) });
    assert_eq!(bytes, 1024);
    for (rows, cols) in [
        (1usize, 1usize),
        (33, 2),
        (128, 4),
        (130, 2),
        (300, 7),
        (100, 3),
    ] {
        let linear: Vec<u8> = (0..rows * cols).map(|i| (i % 255) as u8 + 1).collect();
        let bytes = layout::scale_bytes(ScaleLayout::Swizzled, rows, cols);
        let (mut out, mut back) = (vec![0xFF; bytes], vec![0; rows * cols]);
        let (r, c) = (rows as i64, cols as i64);
        // SAFETY: valid buffers.
        unsafe {
            ok(nvfp4_swizzle_scales(
                ctx.0,
                r,
                c,
                linear.as_ptr(),
                0,
                out.as_mut_ptr(),
                bytes,
                null_mut(),
            ));
            assert_eq!(
                out.iter().filter(|b| **b != 0).count(),
                rows * cols,
                "only real bytes are copied"
            );
            ok(nvfp4_unswizzle_scales(
                ctx.0,
                r,
                c,
                out.as_ptr(),
                bytes,
                back.as_mut_ptr(),
                0,
                null_mut(),
            ));
        }
        assert_eq!(back, linear);
    }
}

/// The layout travels with the matrix: linear and swizzled operands meet, and give the same product.
#[test]
fn g4_layouts_meet() {
    let ctx = Ctx::new(1);
    let mut random = Random::new(3);
    let x = Dense::filled(Dtype::F32, 128, 64, || random.normal());
    let w = Dense::filled(Dtype::F32, 96, 64, || random.normal());
    let mut results = Vec::new();
    for a in [ScaleLayout::Linear, ScaleLayout::Swizzled] {
        for b in [ScaleLayout::Linear, ScaleLayout::Swizzled] {
            let o = |scale_layout| Options {
                scale_layout,
                ..Options::default()
            };
            let (mut a, mut b) = (
                quantize_one(&ctx, &o(a), &x, false, None),
                quantize_one(&ctx, &o(b), &w, false, None),
            );
            results.push(product(&ctx, &mut a, &mut b).bits());
        }
    }
    assert!(results.iter().all(|r| *r == results[0]));
    assert!(results[0].iter().any(|v| *v != 0));
}

/// A view of columns, of every second row, a repeated row: as their packed copies.
#[test]
fn i1_strided_views() {
    let ctx = Ctx::new(2);
    let mut random = Random::new(4);
    let o = Options::default();
    let base = Dense::filled(Dtype::Bf16, 64, 256, || random.normal());
    let run = |view: nvfp4_matrix, packed: &Dense| {
        let want = quantize_one(&ctx, &o, packed, false, None);
        let mut copy = Packed::room(&o, packed.rows, packed.cols, 0xFF, 0);
        // SAFETY: a view inside `base`.
        ok(unsafe { nvfp4_quantize(ctx.0, null(), &view, copy.c(), null_mut(), null_mut()) });
        assert_eq!((copy.codes, copy.scales), (want.codes, want.scales));
    };
    let mut columns = base.c();
    columns.data = base.u16s[64..].as_ptr().cast_mut().cast();
    columns.cols = 64;
    run(columns, &base.slice(0..64, 64..128));
    let mut second = base.c();
    (second.rows, second.stride) = (32, 512);
    let mut packed = Dense::filled(Dtype::Bf16, 32, 256, || 0.0);
    (0..32).for_each(|r| (0..256).for_each(|c| packed.set(r, c, base.get(2 * r, c))));
    run(second, &packed);
    let mut short = base.c();
    short.stride = 255;
    let mut copy = Packed::room(&o, 64, 256, 0xFF, 0);
    // SAFETY: a stride below the columns is what is tested.
    let status = unsafe { nvfp4_quantize(ctx.0, null(), &short, copy.c(), null_mut(), null_mut()) };
    fails(status, NVFP4_ERR_SHAPE, &["255", "256"]);
}

/// Addresses that are aligned to an element and to nothing else.
#[test]
fn i2_odd_addresses() {
    let ctx = Ctx::new(1);
    let mut random = Random::new(5);
    let o = Options::default();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let values: Vec<f32> = (0..4 * 1024).map(|_| random.normal()).collect();
        let at = |shift: usize| {
            let mut values = values.iter().copied();
            Dense::new(dtype, 4, 1024, 1024, shift).fill(|| values.next().unwrap())
        };
        let want = quantize_one(&ctx, &o, &at(0), false, None);
        for shift in 1..9usize {
            let x = at(shift);
            let (mut codes, mut scales) = (vec![0u8; 2048 + 16], vec![0u8; 256 + 16]);
            let mut amax = [0f32; 10];
            let mut q: nvfp4_quantized = zero();
            (q.codes, q.codes_bytes) = (codes[shift..].as_mut_ptr().cast(), 2048);
            (q.scales, q.scales_bytes) = (scales[shift..].as_mut_ptr().cast(), 256);
            (q.amax, q.amax_count) = (amax[shift..].as_mut_ptr(), 1);
            let view = x.c();
            // SAFETY: valid buffers.
            ok(unsafe { nvfp4_quantize(ctx.0, null(), &view, &mut q, null_mut(), null_mut()) });
            assert_eq!(codes[shift..][..2048], want.codes[..2048], "shift {shift}");
            assert_eq!(scales[shift..][..256], want.scales[..256], "shift {shift}");
            let d = Dense::new(dtype, 4, 4, 4, shift);
            let mut other = want.clone();
            let dv = d.c();
            // SAFETY: valid operands and room.
            ok(unsafe { nvfp4_gemm(ctx.0, null(), &q, other.c(), null(), &dv, null_mut()) });
            assert!(d.values().iter().all(|v| v.is_finite()));
        }
        // Half an element off is an error, not a fault.
        let x = at(0);
        let mut view = x.c();
        view.data = view.data.cast::<u8>().wrapping_add(1).cast();
        view.rows = 3;
        let mut copy = Packed::room(&o, 3, 1024, 0, 0);
        // SAFETY: a misaligned pointer is what is tested; it is not read.
        let status =
            unsafe { nvfp4_quantize(ctx.0, null(), &view, copy.c(), null_mut(), null_mut()) };
        fails(status, NVFP4_ERR_ALIGNMENT, &["x"]);
    }
}

/// More than 2^31 elements. The matrix is a hole in memory (pages nobody wrote read as zero), but its codes are 1 GiB,
/// so this runs only where NVFP4_TEST_LARGE is set; rows far apart, below, cover the index arithmetic everywhere.
#[test]
fn j1_more_than_two_to_the_31_elements() {
    if std::env::var_os("NVFP4_TEST_LARGE").is_none() {
        println!("SKIPPED j1_more_than_two_to_the_31_elements: set NVFP4_TEST_LARGE (takes 6 GiB)");
        return;
    }
    let (rows, cols) = (65537usize, 32768usize);
    let mut x = vec![0u16; rows * cols];
    for (i, v) in x[(rows - 1) * cols..].iter_mut().enumerate() {
        *v = rounding::bf16_bits((i % 16 + 1) as f32);
    }
    check_last_row(&x, rows, cols, cols);
}

/// A stride of 2^27 elements: row 31 starts beyond 2^32 elements, in memory that is reserved but mostly not there.
#[test]
fn j1_rows_far_apart() {
    let (rows, cols, stride) = (33usize, 64usize, 1usize << 27);
    let bytes = ((rows - 1) * stride + cols) * 2;
    // SAFETY: an anonymous mapping of our own; pages come as they are touched.
    let map = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if map == libc::MAP_FAILED {
        println!("SKIPPED j1_rows_far_apart: {bytes} bytes of address space are not to be had");
        return;
    }
    // SAFETY: the mapping has this length, is zero, and lives to the end of the test.
    let x = unsafe { std::slice::from_raw_parts_mut(map.cast::<u16>(), bytes / 2) };
    for (i, v) in x[(rows - 1) * stride..][..cols].iter_mut().enumerate() {
        *v = rounding::bf16_bits((i % 16 + 1) as f32);
    }
    check_last_row(x, rows, cols, stride);
    // SAFETY: our own mapping.
    unsafe { libc::munmap(map, bytes) };
}

fn check_last_row(x: &[u16], rows: usize, cols: usize, stride: usize) {
    let ctx = Ctx::new(2);
    let o = Options::default();
    let mut view: nvfp4_matrix = zero();
    view.data = x.as_ptr().cast_mut().cast();
    (view.dtype, view.rows, view.cols, view.stride) =
        (NVFP4_BF16, rows as i64, cols as i64, stride as i64);
    let mut copy = Packed::room(&o, rows, cols, 0xFF, 0);
    // SAFETY: valid buffers.
    ok(unsafe { nvfp4_quantize(ctx.0, null(), &view, copy.c(), null_mut(), null_mut()) });
    assert_eq!(copy.amax, [16.0]);
    let mut values = (0..cols).map(|i| (i % 16 + 1) as f32);
    let alone = quantize_one(
        &ctx,
        &o,
        &Dense::filled(Dtype::Bf16, 1, cols, || values.next().unwrap()),
        false,
        None,
    );
    let (codes, scales) = (cols / 2, cols / 16);
    assert!(copy.codes[..(rows - 1) * codes].iter().all(|c| *c == 0));
    assert!(copy.scales[..(rows - 1) * scales].iter().all(|s| *s == 0));
    assert_eq!(
        copy.codes[(rows - 1) * codes..][..codes],
        alone.codes[..codes]
    );
    assert_eq!(
        copy.scales[(rows - 1) * scales..][..scales],
        alone.scales[..scales]
    );
    let out = Dense::filled(Dtype::Bf16, 1, cols, || 0.0);
    let mut last = copy.q;
    last.rows = 1;
    last.codes = copy.codes[(rows - 1) * codes..].as_mut_ptr().cast();
    last.scales = copy.scales[(rows - 1) * scales..].as_mut_ptr().cast();
    (last.codes_bytes, last.scales_bytes) = (codes, scales);
    let out_view = out.c();
    // SAFETY: valid operand and room.
    ok(unsafe { nvfp4_dequantize(ctx.0, &last, 0, &out_view, null_mut()) });
    assert!(out
        .values()
        .iter()
        .enumerate()
        .all(|(i, v)| (*v - (i % 16 + 1) as f32).abs() <= 2.7));
}
