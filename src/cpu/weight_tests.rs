//! Packed weights: right values from every table's, or an error that says what is wrong; nothing in between.

use super::{Cpu, Kernels, SCALAR};
use crate::numerics::{Dtype, Format, Options, ScaleLayout};
use crate::plan::quantize::{described, Sizes};
use crate::plan::{self, Buffers, Device, GemmRequest, Matrix, QuantizeRequest, Quantized, Source};
use crate::Error;

const M: usize = 3;

/// A quantized matrix with its memory.
struct Owned {
    q: Quantized,
    codes: Vec<u8>,
    _scales: Vec<u8>,
    _amax: Vec<f32>,
}

fn matrix(rows: usize, cols: usize, format: Format, layout: ScaleLayout, seed: u32) -> Owned {
    let o = Options {
        format,
        scale_layout: layout,
        ..Options::default()
    };
    let checked = plan::options::check("o", &o).expect("legal");
    let mut state = seed;
    let mut x: Vec<f32> = (0..rows * cols)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 4_194_304.0 - 2.0
        })
        .collect();
    let shape = described(&checked, rows, cols, false);
    let s = Sizes::of(&shape);
    let mut codes = vec![0u8; s.codes_bytes + 2 * rows];
    let (mut scales, mut amax) = (
        vec![0u8; s.scales_bytes.max(1)],
        vec![0f32; s.amax_count.max(1)],
    );
    let out = Buffers {
        codes: codes.as_mut_ptr(),
        codes_bytes: codes.len(),
        scales: scales.as_mut_ptr(),
        scales_bytes: scales.len(),
        amax: amax.as_mut_ptr(),
        amax_count: amax.len(),
        code_stride: (shape.code_row_bytes() + 2) as i64,
        scale_stride: 0,
    };
    let input = Matrix::new(
        "x",
        x.as_mut_ptr().cast(),
        Dtype::F32,
        rows as i64,
        cols as i64,
        0,
    )
    .expect("a matrix");
    let request = QuantizeRequest {
        rowwise: o,
        ..QuantizeRequest::default()
    };
    let plan = plan::quantize::plan(
        &request,
        Device::Cpu,
        Source::Matrix(input),
        Some(&out),
        None,
    )
    .expect("legal");
    Cpu::with_kernels(1, SCALAR).quantize(&plan).expect("runs");
    Owned {
        q: shape.bind("q", &out).expect("fits"),
        codes,
        _scales: scales,
        _amax: amax,
    }
}

/// A B^T, or why not; D is as it was then.
fn product(
    cpu: &Cpu,
    a: &Quantized,
    b: &Quantized,
    packed: Option<&[u8]>,
) -> Result<Vec<u32>, Error> {
    let mut d = vec![f32::from_bits(0xA5A5_A5A5); M * b.rows];
    let request = GemmRequest {
        b_packed: packed.map_or(std::ptr::null(), |p| p.as_ptr()),
        b_packed_bytes: packed.map_or(0, |p| p.len()),
        ..GemmRequest::default()
    };
    let out = Matrix::new(
        "d",
        d.as_mut_ptr().cast(),
        Dtype::F32,
        M as i64,
        b.rows as i64,
        0,
    )
    .expect("a matrix");
    let plan = plan::gemm::plan(&request, Device::Cpu, *a, *b, None, Some(out)).expect("legal");
    let result = cpu.supports_gemm(&plan).and_then(|()| cpu.gemm(&plan));
    let bits: Vec<u32> = d.iter().map(|v| v.to_bits()).collect();
    match result {
        Ok(()) => Ok(bits),
        Err(e) => {
            assert!(
                bits.iter().all(|b| *b == 0xA5A5_A5A5),
                "written on failure: {e}"
            );
            Err(e)
        }
    }
}

fn pack(cpu: &Cpu, b: &Quantized) -> Vec<u8> {
    let mut packed = vec![0xEE; cpu.weight_bytes(b)];
    let bytes = packed.len();
    cpu.pack_weight(b, packed.as_mut_ptr(), bytes)
        .expect("packs");
    packed
}

/// Asserts that it is a mismatch whose sentence has these words.
fn mismatch(result: Result<Vec<u32>, Error>, words: &[&str]) {
    match result {
        Err(Error::Mismatch(text)) => {
            assert!(
                words.iter().all(|w| text.contains(w)),
                "{text}: want {words:?}"
            );
        }
        other => panic!("{other:?}, want a mismatch with {words:?}"),
    }
}

#[test]
fn every_tables_weight_gives_right_values_or_a_clear_error_under_every_other() {
    let (mut right, mut refused) = (0, 0);
    for (a_format, b_format) in [
        (Format::Nvfp4, Format::Nvfp4),
        (Format::Mxfp4, Format::Mxfp4),
        (Format::Bf16, Format::Nvfp4),
        (Format::Bf16, Format::Bf16),
        (Format::Nvfp4, Format::Bf16),
    ] {
        for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled] {
            for k in [1, 47, 256] {
                let a = matrix(M, k, a_format, ScaleLayout::Linear, 1);
                let b = matrix(37, k, b_format, layout, 2);
                let want = product(&Cpu::with_kernels(1, SCALAR), &a.q, &b.q, None).expect("runs");
                assert!(want.iter().any(|w| *w != 0));
                for packer in Kernels::all() {
                    let packed = pack(&Cpu::with_kernels(2, packer), &b.q);
                    for user in Kernels::all() {
                        let got = product(&Cpu::with_kernels(2, user), &a.q, &b.q, Some(&packed));
                        match &got {
                            Ok(got) => {
                                assert_eq!(*got, want, "{} -> {}", packer.name, user.name);
                                right += 1;
                            }
                            Err(_) => {
                                assert_ne!(packer.name, user.name);
                                // AMX takes some of AVX-512's panels as they are, and the sentence names the panels.
                                let shared = packer.name == "amx" && b_format != Format::Mxfp4;
                                let panels = if shared { "avx512" } else { packer.name };
                                mismatch(got, &[panels, user.name]);
                                refused += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    println!("{right} products right, {refused} refused");
}

#[test]
fn foreign_bytes_are_refused() {
    let a = matrix(M, 96, Format::Nvfp4, ScaleLayout::Linear, 1);
    let b = matrix(40, 96, Format::Nvfp4, ScaleLayout::Linear, 2);
    for kernels in Kernels::all() {
        let cpu = Cpu::with_kernels(1, kernels);
        let good = pack(&cpu, &b.q);
        product(&cpu, &a.q, &b.q, Some(&good)).expect("is b's");
        for byte in [0, 0xFF] {
            let bytes = vec![byte; good.len()];
            mismatch(
                product(&cpu, &a.q, &b.q, Some(&bytes)),
                &["b_packed", "begin"],
            );
        }
        // Any bit of the header.
        for i in 0..64 {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[i] ^= 1 << bit;
                mismatch(product(&cpu, &a.q, &b.q, Some(&bytes)), &["b_packed"]);
            }
        }
        for n in [0, 1, 63, 64, good.len() - 1] {
            match product(&cpu, &a.q, &b.q, Some(&good[..n])) {
                Err(Error::BufferSize(text)) => {
                    assert!(text.contains(&format!("is {n},")), "{text}")
                }
                other => panic!("{n} bytes: {other:?}"),
            }
        }
        let mut few = vec![0x77u8; good.len() - 1];
        let bytes = few.len();
        match cpu.pack_weight(&b.q, few.as_mut_ptr(), bytes) {
            Err(Error::BufferSize(text)) => {
                assert!(
                    text.contains(&format!("{bytes}")) && text.contains(&format!("{}", good.len())),
                    "{text}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert!(few.iter().all(|b| *b == 0x77), "written on failure");
    }
}

#[test]
fn another_weight_is_refused() {
    let a = matrix(M, 96, Format::Nvfp4, ScaleLayout::Linear, 1);
    let b = matrix(40, 96, Format::Nvfp4, ScaleLayout::Linear, 2);
    let twin = matrix(40, 96, Format::Nvfp4, ScaleLayout::Linear, 3);
    let taller = matrix(41, 96, Format::Nvfp4, ScaleLayout::Linear, 2);
    let mx = matrix(40, 96, Format::Mxfp4, ScaleLayout::Linear, 2);
    let mx_a = matrix(M, 96, Format::Mxfp4, ScaleLayout::Linear, 1);
    for kernels in Kernels::all() {
        let cpu = Cpu::with_kernels(1, kernels);
        let packed = pack(&cpu, &b.q);
        mismatch(
            product(&cpu, &a.q, &twin.q, Some(&packed)),
            &["another matrix", "[40, 96]"],
        );
        mismatch(
            product(&cpu, &a.q, &taller.q, Some(&packed)),
            &["[40, 96]", "[41, 96]"],
        );
        mismatch(
            product(&cpu, &mx_a.q, &mx.q, Some(&packed)),
            &["NVFP4", "MXFP4"],
        );
    }
    // A weight after a step of training: one code in fifty has moved.
    let mut moved = matrix(256, 512, Format::Nvfp4, ScaleLayout::Linear, 2);
    let long = matrix(M, 512, Format::Nvfp4, ScaleLayout::Linear, 1);
    let cpu = Cpu::with_kernels(1, SCALAR);
    let packed = pack(&cpu, &moved.q);
    moved.codes.iter_mut().step_by(50).for_each(|c| *c ^= 1);
    mismatch(
        product(&cpu, &long.q, &moved.q, Some(&packed)),
        &["has changed"],
    );
}

#[test]
fn a_weight_serves_a_batch_only_if_the_batch_has_one_b() {
    let a = matrix(M, 32, Format::Nvfp4, ScaleLayout::Linear, 1);
    let b = matrix(40, 32, Format::Nvfp4, ScaleLayout::Linear, 2);
    let cpu = Cpu::with_kernels(1, Kernels::all().next().unwrap_or(SCALAR));
    let packed = pack(&cpu, &b.q);
    let mut d = vec![0f32; 2 * M * 40];
    let one = product(&cpu, &a.q, &b.q, None).expect("runs");
    for (stride, works) in [(0, true), (1, false)] {
        let request = GemmRequest {
            b_packed: packed.as_ptr(),
            b_packed_bytes: packed.len(),
            batch: 2,
            strides: plan::gemm::BatchStrides {
                b_codes: stride,
                d: (M * 40) as i64,
                ..Default::default()
            },
            ..GemmRequest::default()
        };
        let out =
            Matrix::new("d", d.as_mut_ptr().cast(), Dtype::F32, M as i64, 40, 0).expect("a matrix");
        let plan =
            plan::gemm::plan(&request, Device::Cpu, a.q, b.q, None, Some(out)).expect("legal");
        match cpu.supports_gemm(&plan) {
            Ok(()) if works => cpu.gemm(&plan).expect("runs"),
            Err(Error::Mismatch(text)) if !works => assert!(text.contains("has 2"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    let bits: Vec<u32> = d.iter().map(|v| v.to_bits()).collect();
    assert!(bits[..M * 40] == one && bits[M * 40..] == one);
}
