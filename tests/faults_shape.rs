//! Faults that other libraries had, with shapes (kinds F and H: tails, batches, bytes taken for elements, empty
//! matrices), through the C ABI and the safe Rust API.

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

/// Any shape: a tail is quantized as if padded with zeros, which change nothing else.
#[test]
fn f1_f2_any_shape() {
    let mut random = Random::new(1);
    for o in [
        Options::default(),
        mx(),
        Options {
            block: Block::TwoD,
            ..Options::default()
        },
    ] {
        for (rows, cols) in [
            (1, 16),
            (33, 16),
            (3, 48),
            (5, 80),
            (2, 15),
            (2, 17),
            (3, 24),
            (2, 1000),
            (40, 24),
            (1, 5743),
        ] {
            let x = Dense::filled(Dtype::F32, rows, cols, || random.normal());
            let (up_rows, up_cols) = (rows.next_multiple_of(32), cols.next_multiple_of(32));
            let mut padded = Dense::filled(Dtype::F32, up_rows, up_cols, || 0.0);
            (0..rows).for_each(|r| (0..cols).for_each(|c| padded.set(r, c, x.get(r, c))));
            let whole = every_way(&o, &padded, None);
            for (way, whole) in every_way(&o, &x, None).iter().zip(&whole) {
                assert_eq!(way.q.amax, whole.q.amax, "{}", way.name);
                for r in 0..rows {
                    assert_eq!(
                        way.codes(r),
                        whole.codes(r)[..cols],
                        "{} {rows} x {cols}",
                        way.name
                    );
                    let blocks = way.scales(r).len();
                    assert_eq!(
                        way.scales(r),
                        whole.scales(r)[..blocks],
                        "{} {rows} x {cols}",
                        way.name
                    );
                }
            }
        }
    }
}

/// A batch whose neighbours are full of NaN scales: nothing of them comes over.
#[test]
fn f3_batched_products_stay_apart() {
    for threads in [1, 3] {
        let ctx = Ctx::new(threads);
        for k in [272usize, 528, 1040] {
            for m in [1usize, 3] {
                let (bytes, blocks) = (k / 2, k / 16);
                let mut q = Packed::room(&Options::default(), m, k, 0x22, 0);
                q.codes = vec![0xFF; 3 * m * bytes];
                q.scales = vec![0x7F; 3 * m * blocks];
                q.codes[m * bytes..2 * m * bytes].fill(0x22);
                q.scales[m * blocks..2 * m * blocks].fill(0x38);
                q.amax = vec![f32::NAN, 2688.0, f32::NAN];
                (q.q.rows, q.q.cols) = (m as i64, k as i64);
                (q.q.codes_bytes, q.q.scales_bytes, q.q.amax_count) =
                    (q.codes.len(), q.scales.len(), 3);
                let mut other = q.clone();
                let mut desc: nvfp4_gemm_desc = zero();
                desc.batch = 3;
                (desc.a_codes_batch_stride, desc.b_codes_batch_stride) =
                    ((m * bytes) as i64, (m * bytes) as i64);
                (desc.a_scales_batch_stride, desc.b_scales_batch_stride) =
                    ((m * blocks) as i64, (m * blocks) as i64);
                (desc.a_amax_batch_stride, desc.b_amax_batch_stride) = (1, 1);
                desc.d_batch_stride = (m * m) as i64;
                let d = Dense::filled(Dtype::F32, 3 * m, m, || 7.0);
                let mut view = d.c();
                view.rows = m as i64;
                // SAFETY: valid operands and room for every D.
                ok(unsafe {
                    nvfp4_gemm(ctx.0, &desc, q.c(), other.c(), null(), &view, null_mut())
                });
                let values = d.values();
                assert!(
                    values[m * m..2 * m * m].iter().all(|v| *v == k as f32),
                    "{k}: {values:?}"
                );
                assert!(
                    values[..m * m]
                        .iter()
                        .chain(&values[2 * m * m..])
                        .all(|v| v.is_nan()),
                    "{k}"
                );
            }
        }
    }
}

/// K counts elements, not bytes; buffers that hold another number of scales are refused with both numbers.
#[test]
fn f4_logical_columns() {
    let ctx = Ctx::new(1);
    for o in [Options::default(), mx()] {
        let ones = Dense::filled(Dtype::F32, 4, 64, || 1.0);
        let (mut a, mut b) = (
            quantize_one(&ctx, &o, &ones, false, None),
            quantize_one(&ctx, &o, &ones, false, None),
        );
        assert!(product(&ctx, &mut a, &mut b)
            .values()
            .iter()
            .all(|v| *v == 64.0));
        let blocks = 64 / o.format.block();
        for wrong in [4 * blocks - 1, 4 * blocks / 2] {
            a.q.scales_bytes = wrong;
            let d = Dense::filled(Dtype::F32, 4, 4, || 7.0);
            let view = d.c();
            // SAFETY: a buffer too small is what is tested.
            let status =
                unsafe { nvfp4_gemm(ctx.0, null(), a.c(), b.c(), null(), &view, null_mut()) };
            fails(
                status,
                NVFP4_ERR_BUFFER_SIZE,
                &[&wrong.to_string(), &(4 * blocks).to_string()],
            );
            assert!(d.values().iter().all(|v| *v == 7.0));
        }
        let parts =
            nvfp4::QuantizedTensor::from_parts(&o, 4, 64, &a.codes[..128], &a.scales[..7], &a.amax);
        assert!(parts.unwrap_err().to_string().contains('7'));
    }
}

/// No rows, no columns, or neither.
#[test]
fn h1_empty_matrices() {
    let ctx = Ctx::new(2);
    for (rows, cols) in [(0, 64), (64, 0), (0, 0)] {
        for o in [
            Options::default(),
            mx(),
            Options {
                block: Block::TwoD,
                ..Options::default()
            },
            Options {
                hadamard: 16,
                rounding: Rounding::Stochastic,
                ..Options::default()
            },
            Options {
                scale_layout: ScaleLayout::Swizzled,
                ..Options::default()
            },
        ] {
            let x = Dense::filled(Dtype::Bf16, rows, cols, || 1.0);
            for way in every_way(&o, &x, None) {
                assert!(way.q.amax.iter().all(|a| *a == 0.0), "amax of nothing is 0");
                assert!(way.values.is_empty());
            }
            // NULL data is fine where there is none.
            let mut view = x.c();
            view.data = null_mut();
            let mut copy = Packed::room(&o, rows, cols, 0, 0);
            let mut desc: nvfp4_quantize_desc = zero();
            desc.rowwise = c_options(&o);
            // SAFETY: an empty matrix.
            ok(unsafe { nvfp4_quantize(ctx.0, &desc, &view, copy.c(), null_mut(), null_mut()) });
        }
        let x = Dense::filled(Dtype::F32, rows, cols, || 1.0);
        let (xv, yv) = (x.c(), x.c());
        // SAFETY: empty matrices.
        ok(unsafe { nvfp4_hadamard(ctx.0, null(), &xv, &yv, null_mut()) });
    }
    for (m, n, k) in [(0, 5, 32), (4, 0, 32), (4, 5, 0), (0, 0, 0)] {
        let o = Options::default();
        let x = Dense::filled(Dtype::F32, m, k, || 1.0);
        let w = Dense::filled(Dtype::F32, n, k, || 1.0);
        let (mut a, mut b) = (
            quantize_one(&ctx, &o, &x, false, None),
            quantize_one(&ctx, &o, &w, false, None),
        );
        let c = Dense::filled(Dtype::F32, m, n, || 3.0);
        let d = Dense::filled(Dtype::F32, m, n, || f32::NAN);
        let mut desc: nvfp4_gemm_desc = zero();
        desc.beta = &2.0;
        let (cv, dv) = (c.c(), d.c());
        // SAFETY: valid operands.
        ok(unsafe { nvfp4_gemm(ctx.0, &desc, a.c(), b.c(), &cv, &dv, null_mut()) });
        let want = if k == 0 { 6.0 } else { f32::NAN };
        assert!(d.values().iter().all(|v| *v == want), "{m} x {n} x {k}");
        assert!(product(&ctx, &mut a, &mut b)
            .values()
            .iter()
            .all(|v| *v == 0.0));
    }
}
