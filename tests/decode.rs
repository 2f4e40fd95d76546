//! Dequantize, requantize, transpose, hadamard, swizzle and unswizzle through the C ABI equal the scalar contract.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::dequantize::dequantize as reference;
use nvfp4::numerics::hadamard::{forward, inverse, sign_words};
use nvfp4::numerics::quantize::{quantize as quantize_reference, Call};
use nvfp4::numerics::rounding::round_to;
use nvfp4::numerics::*;
use std::ptr::{null, null_mut};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

fn options(random: &mut Random) -> Options {
    let format = random.pick(&[Format::Nvfp4, Format::Nvfp4, Format::Mxfp4, Format::Bf16]);
    let mut o = Options {
        format,
        scale_layout: random.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]),
        hadamard: random.pick(&[0, 0, 0, 32]),
        ..Options::default()
    };
    match format {
        Format::Nvfp4 => {
            o.block = random.pick(&[Block::OneD, Block::TwoD]);
            o.chain = random.pick(&[Chain::Te, Chain::Div6, Chain::Single]);
            o.domain_rows = random.pick(&[0, 0, 16]);
            o.range_16_17 = random.below(4) == 0;
        }
        Format::Mxfp4 => {
            o.block = random.pick(&[Block::OneD, Block::TwoD]);
            o.scale_rule = random.pick(&[ScaleRule::Floor, ScaleRule::EncodeCentric]);
        }
        Format::Bf16 => {}
    }
    o
}

fn side(random: &mut Random) -> usize {
    match random.below(3) {
        0 => random.below(4),
        1 => random.pick(&[16, 31, 32, 33, 127, 128, 129, 256]),
        _ => random.below(300),
    }
}

fn same_value(have: f32, want: f32) -> bool {
    have.to_bits() == want.to_bits() || (have.is_nan() && want.is_nan())
}

#[test]
fn dequantize_equals_the_contract_in_both_orientations() {
    let contexts = [1, 2, 3, 8].map(Ctx::new);
    let mut random = Random::new(21);
    for case in 0..600 {
        let (rows, cols) = (side(&mut random), side(&mut random));
        let kind = random.pick(&KINDS);
        let o = options(&mut random);
        let ctx = &contexts[case % 4];
        let x = Dense::filled(random.pick(&DTYPES), rows, cols, || kind.value(&mut random));
        let mut q = quantize_one(ctx, &o, &x, random.below(2) == 1, None);
        let owned = q.owned(&o);
        let dtype = random.pick(&DTYPES);
        let want = reference(&owned, dtype);
        let transpose = random.below(2) == 1;
        // All columns, or without the transform's padding.
        let width = random.pick(&[owned.cols, owned.source_cols]);
        let (r, c) = if transpose {
            (width, owned.rows)
        } else {
            (owned.rows, width)
        };
        let out = Dense::new(dtype, r, c, c + random.pick(&[0, 3]), 1);
        let view = out.c();
        // SAFETY: valid operand and room.
        ok(unsafe { nvfp4_dequantize(ctx.0, q.c(), transpose as u32, &view, null_mut()) });
        for i in 0..owned.rows {
            for j in 0..width {
                let have = if transpose {
                    out.get(j, i)
                } else {
                    out.get(i, j)
                };
                let want = want[i * owned.cols + j];
                assert!(
                    same_value(have, want),
                    "case {case}: {rows} x {cols} {kind:?} {o:?} transpose {transpose}: [{i}][{j}] is {have:e}, want {want:e}"
                );
            }
        }
    }
}

#[test]
fn requantize_is_dequantize_then_quantize() {
    let contexts = [1, 3].map(Ctx::new);
    let mut random = Random::new(22);
    for case in 0..200 {
        let (rows, cols) = (side(&mut random), side(&mut random));
        let from = Options {
            hadamard: 0,
            ..options(&mut random)
        };
        let (ro, co) = (options(&mut random), options(&mut random));
        let ctx = &contexts[case % 2];
        let kind = random.pick(&KINDS);
        let x = Dense::filled(Dtype::F32, rows, cols, || kind.value(&mut random));
        let mut q = quantize_one(ctx, &from, &x, false, None);
        let values = reference(&q.owned(&from), Dtype::F32);
        let call = |options, columnwise| Call {
            options,
            columnwise,
            seed: 1,
            ..Call::default()
        };
        let values = matrix::Matrix::f32(&values, rows, cols);
        let want_row = quantize_reference(&values, &call(ro, false)).unwrap();
        let want_col = quantize_reference(&values, &call(co, true)).unwrap();
        let mut desc = desc_of(&call(ro, false));
        desc.columnwise = c_options(&co);
        let (mut r, mut c) = (
            Packed::room(&ro, rows, cols, 0xFF, 0),
            Packed::room(&co, cols, rows, 0xFF, 1),
        );
        // SAFETY: valid operand and room.
        ok(unsafe { nvfp4_requantize(ctx.0, &desc, q.c(), r.c(), c.c(), null_mut()) });
        let what = format!("case {case}: {rows} x {cols} {from:?}");
        r.expect(&want_row, 0xFF, &what);
        c.expect(&want_col, 0xFF, &what);
    }
}

#[test]
fn transpose_equals_quantizing_the_transposed_source() {
    let contexts = [1, 3].map(Ctx::new);
    let mut random = Random::new(23);
    for case in 0..150 {
        let (rows, cols) = (side(&mut random), side(&mut random));
        let mut o = Options {
            hadamard: 0,
            domain_rows: 0,
            ..options(&mut random)
        };
        if o.format != Format::Bf16 {
            o.block = Block::TwoD;
        }
        let to = Options {
            scale_layout: random.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]),
            ..o
        };
        let ctx = &contexts[case % 2];
        let kind = random.pick(&KINDS);
        let x = Dense::filled(random.pick(&DTYPES), rows, cols, || kind.value(&mut random));
        let mut q = quantize_one(ctx, &o, &x, false, None);
        let mut out = Packed::room(&to, cols, rows, 0xFF, random.pick(&[0, 2]));
        out.q.scale_layout = to.scale_layout as u32;
        // SAFETY: valid operand and room.
        ok(unsafe { nvfp4_transpose(ctx.0, q.c(), out.c(), null_mut()) });
        let mut want = quantize_reference(
            &x.transposed().reference(),
            &Call {
                options: to,
                ..Call::default()
            },
        )
        .unwrap();
        want.transposed = true;
        out.expect(&want, 0xFF, &format!("case {case}: {rows} x {cols} {o:?}"));
    }
}

#[test]
fn transpose_refuses_what_it_cannot_do() {
    let ctx = Ctx::new(1);
    let x = Dense::filled(Dtype::F32, 32, 32, || 1.0);
    let tiles = Options {
        block: Block::TwoD,
        ..Options::default()
    };
    for (o, words, want) in [
        (
            Options::default(),
            "square tiles",
            NVFP4_ERR_INVALID_ARGUMENT,
        ),
        (
            Options {
                hadamard: 16,
                ..tiles
            },
            "Hadamard transform of 16",
            NVFP4_ERR_MISMATCH,
        ),
        (
            Options {
                domain_rows: 16,
                ..tiles
            },
            "each 16 rows",
            NVFP4_ERR_MISMATCH,
        ),
    ] {
        let mut q = quantize_one(&ctx, &o, &x, false, None);
        let mut out = Packed::room(&tiles, 32, 32, 0xFF, 0);
        // SAFETY: valid operand and room.
        let status = unsafe { nvfp4_transpose(ctx.0, q.c(), out.c(), null_mut()) };
        fails(status, want, &[words]);
    }
}

#[test]
fn hadamard_equals_the_contract_along_both_axes() {
    let contexts = [1, 2, 3, 8].map(Ctx::new);
    let mut random = Random::new(24);
    for case in 0..400 {
        let n = random.pick(&[16usize, 32, 64, 128]);
        let (columns, backwards) = (random.below(2) == 1, random.below(2) == 1);
        let (along, across) = (side(&mut random), side(&mut random));
        let padded = along.next_multiple_of(n);
        let (x_along, y_along) = if backwards {
            (padded, along)
        } else {
            (along, padded)
        };
        let shape = |along| {
            if columns {
                (along, across)
            } else {
                (across, along)
            }
        };
        let (x_dtype, y_dtype) = (random.pick(&DTYPES), random.pick(&DTYPES));
        let kind = random.pick(&[Kind::Normal, Kind::Wide, Kind::Extremes, Kind::Nonfinite]);
        let (r, c) = shape(x_along);
        let x = Dense::new(x_dtype, r, c, c + 2, 1).fill(|| kind.value(&mut random));
        let (r, c) = shape(y_along);
        let y = Dense::new(y_dtype, r, c, c + 1, 0);
        let signs = random.pick(&[
            Signs::Default,
            Signs::Seeded,
            Signs::Mask16(5),
            Signs::Mask([1, 2, 3, 4]),
        ]);
        let o = c_options(&Options {
            signs,
            ..Options::default()
        });
        let mut desc: nvfp4_hadamard_desc = zero();
        desc.n = n as u32;
        desc.axis = columns as u32;
        desc.inverse = backwards as u32;
        (desc.signs, desc.sign_mask) = (o.signs, o.sign_mask);
        (desc.seed, desc.offset) = (8, 9);
        let before = y.bits();
        let (xv, yv) = (x.c(), y.c());
        // SAFETY: valid matrices.
        ok(unsafe { nvfp4_hadamard(contexts[case % 4].0, &desc, &xv, &yv, null_mut()) });
        let words = sign_words(signs, n, 8, 9);
        for line in 0..across {
            let at = |m: &Dense, i| {
                if columns {
                    m.get(i, line)
                } else {
                    m.get(line, i)
                }
            };
            for first in (0..padded).step_by(n) {
                let mut block: Vec<f32> = (first..first + n)
                    .map(|i| if i < x_along { at(&x, i) } else { 0.0 })
                    .collect();
                if backwards {
                    inverse(&mut block, &words);
                } else {
                    forward(&mut block, &words);
                }
                for i in first..(first + n).min(y_along) {
                    let (have, want) = (at(&y, i), round_to(y_dtype, block[i - first]));
                    assert!(
                        same_value(have, want),
                        "case {case}: n {n} columns {columns} inverse {backwards}: [{line}][{i}] {have:e} want {want:e}"
                    );
                }
            }
        }
        for (i, (a, b)) in y.bits().iter().zip(&before).enumerate() {
            assert!(
                i % y.stride.max(1) < y.cols || a == b,
                "element {i} outside y was written"
            );
        }
    }
}

#[test]
fn hadamard_in_place_and_back() {
    let ctx = Ctx::new(2);
    let mut random = Random::new(25);
    let x = Dense::filled(Dtype::F32, 48, 160, || random.normal());
    let before = x.values();
    let view = x.c();
    for axis in [0, 1] {
        let mut desc: nvfp4_hadamard_desc = zero();
        desc.axis = axis;
        for inverse in [0, 1] {
            desc.inverse = inverse;
            // SAFETY: valid matrix, in place.
            ok(unsafe { nvfp4_hadamard(ctx.0, &desc, &view, &view, null_mut()) });
            let far = x
                .values()
                .iter()
                .zip(&before)
                .any(|(a, b)| (a - b).abs() > 0.1);
            assert_eq!(far, inverse == 0, "axis {axis} inverse {inverse}");
        }
    }
    for (a, b) in x.values().iter().zip(&before) {
        assert!((a - b).abs() < 1e-5);
    }
}

#[test]
fn swizzle_and_back_equals_the_contract() {
    let contexts = [1, 3].map(Ctx::new);
    let mut random = Random::new(26);
    for case in 0..200 {
        let (rows, cols) = (side(&mut random), side(&mut random) / 8);
        let stride = cols + random.pick(&[0, 3]);
        let ctx = &contexts[case % 2];
        let linear: Vec<u8> = (0..rows * stride + 1)
            .map(|_| random.bits() as u8)
            .collect();
        let packed: Vec<u8> = (0..rows)
            .flat_map(|r| linear[r * stride..][..cols].to_vec())
            .collect();
        let want = layout::swizzle(&packed, rows, cols);
        let mut bytes = 0;
        // SAFETY: valid pointers.
        unsafe {
            ok(nvfp4_scales_bytes(
                rows as i64,
                cols as i64,
                NVFP4_SCALES_SWIZZLED,
                &mut bytes,
            ));
            assert_eq!(bytes, want.len());
            let mut swizzled = vec![0xFFu8; bytes + 7];
            let (r, c, s) = (rows as i64, cols as i64, stride as i64);
            ok(nvfp4_swizzle_scales(
                ctx.0,
                r,
                c,
                linear.as_ptr(),
                s,
                swizzled.as_mut_ptr(),
                bytes,
                null_mut(),
            ));
            assert_eq!(swizzled[..bytes], want);
            assert_eq!(swizzled[bytes..], [0xFF; 7]);
            let mut back = vec![0xEEu8; linear.len()];
            ok(nvfp4_unswizzle_scales(
                ctx.0,
                r,
                c,
                swizzled.as_ptr(),
                bytes,
                back.as_mut_ptr(),
                s,
                null_mut(),
            ));
            for (i, byte) in back.iter().enumerate() {
                let inside = stride > 0 && i % stride < cols && i / stride < rows;
                assert_eq!(*byte, if inside { linear[i] } else { 0xEE });
            }
            if bytes > 0 {
                let short = nvfp4_swizzle_scales(
                    ctx.0,
                    r,
                    c,
                    linear.as_ptr(),
                    s,
                    swizzled.as_mut_ptr(),
                    bytes - 1,
                    null_mut(),
                );
                fails(
                    short,
                    NVFP4_ERR_BUFFER_SIZE,
                    &[&(bytes - 1).to_string(), &bytes.to_string()],
                );
                let none = nvfp4_swizzle_scales(
                    ctx.0,
                    r,
                    c,
                    null(),
                    s,
                    swizzled.as_mut_ptr(),
                    bytes,
                    null_mut(),
                );
                fails(none, NVFP4_ERR_NULL_POINTER, &["linear"]);
            }
        }
    }
}

#[test]
fn scalar_kernels_too() {
    again_in_scalar("dequantize_equals_the_contract_in_both_orientations");
    again_in_scalar("hadamard_equals_the_contract_along_both_axes");
}
