//! The lines of the table.

use super::data::{mxfp4, quantize_plan, Dense, Packed};
use super::{Bench, Line};
use nvfp4::cpu::{Cpu, Kernels};
use nvfp4::numerics::{Accumulate, Dtype, Format, Options, Rounding};
use nvfp4::plan::{self, GemmRequest, Matrix};

pub fn all(b: &mut Bench) {
    let counts = if b.threads > 1 {
        vec![1, b.threads]
    } else {
        vec![1]
    };
    for threads in counts {
        let cpu = Cpu::new(threads);
        println!("-- {} thread(s), {}", threads, cpu.isa());
        quantize(b, &cpu);
        columns(b, &cpu);
        amax(b, &cpu);
        dequantize(b, &cpu);
        products(b, &cpu);
        linear(b, threads);
    }
    for kernels in Kernels::all() {
        let name = format!("gemm NVFP4 512x4096x4096, {} only", kernels.name);
        if b.wants(&name) {
            let cpu = Cpu::with_kernels(1, kernels);
            let shape = if kernels.name == "scalar" {
                (32, 256, 4096)
            } else {
                (512, 4096, 4096)
            };
            product(b, &cpu, &name, Options::default(), shape, Weights::Plain);
        }
    }
}

/// Index into the roofline's pairs.
fn column(threads: usize) -> usize {
    (threads > 1) as usize
}

fn quantize(b: &mut Bench, cpu: &Cpu) {
    let base = Options::default();
    let rht = Options {
        hadamard: 16,
        ..base
    };
    let sr = Options {
        rounding: Rounding::Stochastic,
        ..base
    };
    let cases: [(&str, Dtype, Options, &[&str]); 7] = [
        ("quantize f32 rowwise", Dtype::F32, base, &QUANTIZERS),
        ("quantize bf16 rowwise", Dtype::Bf16, base, &QUANTIZERS),
        ("quantize f16 rowwise", Dtype::F16, base, &[]),
        ("quantize f32 rowwise SR", Dtype::F32, sr, &[]),
        ("RHT16 + quantize f32 rowwise", Dtype::F32, rht, &[]),
        ("quantize f32 rowwise MXFP4", Dtype::F32, mxfp4(), &[]),
        (
            "quantize f32 16x16 tiles",
            Dtype::F32,
            Options {
                block: nvfp4::numerics::Block::TwoD,
                ..base
            },
            &[],
        ),
    ];
    for (name, dtype, o, peers) in cases {
        for (place, rows) in [("in cache", 64), ("DRAM", 32768)] {
            let name = format!("{name}, {place}");
            if !b.wants(&name) {
                continue;
            }
            let x = Dense::new(dtype, rows, 2048);
            let mut out = Packed::empty(&o, rows, 2048, false);
            let plan = quantize_plan(&x, Some((&o, &mut out)), None, true);
            // A call of a small matrix is short: several a measurement.
            let calls = if rows < 1000 { 64 } else { 1 };
            let t = b.best(|| (0..calls).for_each(|_| cpu.quantize(&plan).expect("runs")));
            let rate = x.elements() * calls as f64 / t * 1e-9;
            let read = b.roofline.read[column(cpu.threads())];
            let bound = (place == "DRAM").then(|| ("DRAM read", read / (x.bytes() / x.elements())));
            b.add(Line {
                name,
                threads: cpu.threads(),
                rate,
                unit: "Gelem/s",
                bound,
                peers: peers.iter().map(|p| format!("{p}, {place}")).collect(),
            });
        }
    }
}

fn columns(b: &mut Bench, cpu: &Cpu) {
    let base = Options::default();
    let rht = Options {
        hadamard: 16,
        ..base
    };
    let sr = Rounding::Stochastic;
    let rht_sr = Options {
        rounding: sr,
        ..rht
    };
    let row_sr = Options {
        rounding: sr,
        ..base
    };
    let cases = [
        ("columnwise bf16", None, base),
        ("columnwise bf16 RHT", None, rht),
        ("columnwise bf16 RHT + SR", None, rht_sr),
        ("both copies bf16, nvfp4 activation", Some(base), rht),
        ("both copies bf16, nvfp4 gradient", Some(row_sr), rht_sr),
        (
            "both copies bf16, nvfp4 weight",
            Some(Options {
                block: nvfp4::numerics::Block::TwoD,
                ..base
            }),
            Options {
                block: nvfp4::numerics::Block::TwoD,
                ..base
            },
        ),
    ];
    for ((case, rowwise, columnwise), n) in cases.into_iter().flat_map(|c| [(c, 512), (c, 4096)]) {
        let place = if n == 512 { "in cache" } else { "4096x4096" };
        let name = format!("{case}, {place}");
        if !b.wants(&name) {
            continue;
        }
        let x = Dense::new(Dtype::Bf16, n, n);
        let mut col = Packed::empty(&columnwise, n, n, true);
        let mut row = rowwise.map(|o| (o, Packed::empty(&o, n, n, false)));
        for (suffix, given) in [("", true), (", amax included", false)] {
            let row = row.as_mut().map(|(o, p)| (&*o, p));
            let plan = quantize_plan(&x, row, Some((&columnwise, &mut col)), given);
            let calls = if n == 512 { 16 } else { 1 };
            let t = b.best(|| (0..calls).for_each(|_| cpu.quantize(&plan).expect("runs")));
            b.add(Line {
                name: format!("{name}{suffix}"),
                threads: cpu.threads(),
                rate: x.elements() * calls as f64 / t * 1e-9,
                unit: "Gelem/s",
                bound: None,
                peers: Vec::new(),
            });
        }
    }
}

fn amax(b: &mut Bench, cpu: &Cpu) {
    for (place, rows) in [("in cache", 64), ("DRAM", 32768)] {
        let name = format!("amax f32, {place}");
        if !b.wants(&name) {
            continue;
        }
        let x = Dense::new(Dtype::F32, rows, 2048);
        let o = Options::default();
        let mut out = Packed::empty(&o, rows, 2048, false);
        let plan = quantize_plan(&x, Some((&o, &mut out)), None, false);
        let calls = if rows < 1000 { 64 } else { 1 };
        let t = b.best(|| (0..calls).for_each(|_| cpu.amax(&plan).expect("runs")));
        let bound =
            (place == "DRAM").then(|| ("DRAM read", b.roofline.read[column(cpu.threads())] / 4.0));
        let rate = x.elements() * calls as f64 / t * 1e-9;
        b.add(Line {
            name,
            threads: cpu.threads(),
            rate,
            unit: "Gelem/s",
            bound,
            peers: vec![format!("numpy amax f32, {place}")],
        });
    }
}

fn dequantize(b: &mut Bench, cpu: &Cpu) {
    let o = Options::default();
    for (place, rows) in [("in cache", 64), ("large", 32768)] {
        for (dtype, size) in [(Dtype::F32, 4.0), (Dtype::Bf16, 2.0)] {
            let name = format!(
                "dequantize to {}, {place}",
                if dtype == Dtype::F32 { "f32" } else { "bf16" }
            );
            if !b.wants(&name) {
                continue;
            }
            let x = Dense::new(Dtype::F32, rows, 2048);
            let q = Packed::new(cpu, &o, &x);
            let y = Dense::new(dtype, rows, 2048);
            let plan = plan::dequantize::plan(q.view, false, y.matrix).expect("legal");
            let calls = if rows < 1000 { 64 } else { 1 };
            let t = b.best(|| (0..calls).for_each(|_| cpu.dequantize(&plan).expect("runs")));
            let bound = (place == "large")
                .then(|| ("NT write", b.roofline.write[column(cpu.threads())] / size));
            let rate = x.elements() * calls as f64 / t * 1e-9;
            b.add(Line {
                name,
                threads: cpu.threads(),
                rate,
                unit: "Gelem/s",
                bound,
                peers: [
                    "ml_dtypes dequantize",
                    "torchao dequantize",
                    "torchao compiled dequantize",
                ]
                .map(|p| format!("{p}, {}", if place == "large" { "DRAM" } else { place }))
                .to_vec(),
            });
        }
    }
}

const QUANTIZERS: [&str; 3] = [
    "ml_dtypes quantize f32",
    "torchao quantize f32",
    "torchao compiled quantize f32",
];

fn products(b: &mut Bench, cpu: &Cpu) {
    let base = Options::default();
    let bf16 = Options {
        format: Format::Bf16,
        ..base
    };
    let large = (512, 4096, 4096);
    product(
        b,
        cpu,
        "gemm NVFP4 512x4096x4096",
        base,
        large,
        Weights::Plain,
    );
    product(
        b,
        cpu,
        "gemm NVFP4 512x4096x4096, packed weight",
        base,
        large,
        Weights::Packed(1),
    );
    product(
        b,
        cpu,
        "gemm MXFP4 512x4096x4096",
        mxfp4(),
        large,
        Weights::Plain,
    );
    for (name, o) in [("NVFP4", base), ("MXFP4", mxfp4())] {
        let name = format!("gemm {name} 512x4096x4096, FAST");
        product(b, cpu, &name, o, large, Weights::Plain);
    }
    product(
        b,
        cpu,
        "gemm BF16 512x4096x4096",
        bf16,
        large,
        Weights::Plain,
    );
    product(
        b,
        cpu,
        "gemm NVFP4 128x1024x1024",
        base,
        (128, 1024, 1024),
        Weights::Plain,
    );
    for m in [1, 4, 8, 32] {
        let shape = (m, 4096, 4096);
        let name = |weights: &str| format!("gemm NVFP4 {m}x4096x4096, {weights}");
        product(b, cpu, &name("plain"), base, shape, Weights::Plain);
        product(
            b,
            cpu,
            &name("packed weight in L3"),
            base,
            shape,
            Weights::Packed(1),
        );
        product(
            b,
            cpu,
            &name("packed weights in DRAM"),
            base,
            shape,
            Weights::Packed(16),
        );
    }
}

/// B of the products measured.
#[derive(Clone, Copy, PartialEq)]
enum Weights {
    /// As quantize wrote it.
    Plain,
    /// Packed before; that many of them in turn.
    Packed(usize),
}

/// Products with one A.
fn product(
    b: &mut Bench,
    cpu: &Cpu,
    name: &str,
    o: Options,
    (m, n, k): (usize, usize, usize),
    weights: Weights,
) {
    if !b.wants(name) {
        return;
    }
    let x = Packed::new(cpu, &o, &Dense::new(Dtype::F32, m, k));
    let w = Packed::new(cpu, &o, &Dense::new(Dtype::F32, n, k));
    let mut packed: Vec<Vec<u8>> = Vec::new();
    if let Weights::Packed(count) = weights {
        let bytes = cpu.weight_bytes(&w.view);
        for _ in 0..count {
            let mut p = vec![0; bytes];
            cpu.pack_weight(&w.view, p.as_mut_ptr(), bytes)
                .expect("packs");
            packed.push(p);
        }
    }
    let mut d = vec![0f32; m * n];
    let p = d.as_mut_ptr().cast();
    let out = Matrix::new("d", p, Dtype::F32, m as i64, n as i64, 0).expect("a matrix");
    let plan = |weight: Option<&Vec<u8>>| {
        let request = GemmRequest {
            accumulate: match name.ends_with("FAST") {
                true => Accumulate::Fast,
                false => Accumulate::Default,
            },
            b_packed: weight.map_or(std::ptr::null(), |w| w.as_ptr()),
            b_packed_bytes: weight.map_or(0, Vec::len),
            ..GemmRequest::default()
        };
        plan::gemm::plan(&request, plan::Device::Cpu, x.view, w.view, None, Some(out))
            .expect("legal")
    };
    let plans: Vec<_> = match packed.is_empty() {
        true => vec![plan(None)],
        false => packed.iter().map(|w| plan(Some(w))).collect(),
    };
    let t = b.best(|| plans.iter().for_each(|p| cpu.gemm(p).expect("runs"))) / plans.len() as f64;
    let flops = 2.0 * (m * n * k) as f64;
    let column = column(cpu.threads());
    // One row reads each weight once and does next to nothing with it.
    let bound = match (m, weights) {
        (1, Weights::Packed(count)) => {
            let (name, read) = match count {
                1 => ("L3 read", b.roofline.read_l3[column]),
                _ => ("DRAM read", b.roofline.read[column]),
            };
            (name, read * flops / packed[0].len() as f64)
        }
        _ => ("f32 FMA", b.roofline.fma[column]),
    };
    let mut peers = vec![
        format!("MKL sgemm {m}x{n}x{k}"),
        format!("OpenBLAS sgemm {m}x{n}x{k}"),
    ];
    if m == 512 {
        peers.push(format!("torch int8 {m}x{n}x{k}"));
    }
    b.add(Line {
        name: name.to_string(),
        threads: cpu.threads(),
        rate: flops / t * 1e-9,
        unit: "GFLOP/s",
        bound: Some(bound),
        peers,
    });
}

/// fprop, dgrad and wgrad of a linear layer through the C functions, everything included: 512 tokens, 1024 to 4096.
fn linear(b: &mut Bench, threads: usize) {
    use nvfp4::abi::*;
    use nvfp4::ffi;
    let (tokens, inputs, outputs) = (512i64, 1024i64, 4096i64);
    for recipe in ["nvfp4", "mxfp4", "bf16"] {
        let name = format!("linear step {recipe}, 512 tokens, 1024 to 4096");
        if !b.wants(&name) {
            continue;
        }
        // SAFETY: descriptors of plain data, zero means default; pointers to what they are said to point to.
        unsafe {
            let mut context_desc: nvfp4_context_desc = std::mem::zeroed();
            context_desc.struct_size = size_of::<nvfp4_context_desc>();
            context_desc.threads = threads as u32;
            let mut ctx = std::ptr::null_mut();
            assert_eq!(ffi::nvfp4_context_create(&context_desc, &mut ctx), NVFP4_OK);
            let mut r: nvfp4_recipe = std::mem::zeroed();
            r.struct_size = size_of::<nvfp4_recipe>();
            let c_name = std::ffi::CString::new(recipe).expect("no NUL");
            assert_eq!(ffi::nvfp4_recipe_init(c_name.as_ptr(), &mut r), NVFP4_OK);
            let mut desc: nvfp4_linear_desc = std::mem::zeroed();
            desc.struct_size = size_of::<nvfp4_linear_desc>();
            desc.recipe = &r;
            let mut bytes = 0;
            let status = ffi::nvfp4_linear_workspace(
                ctx, &desc, tokens, inputs, outputs, NVFP4_F32, &mut bytes,
            );
            assert_eq!(status, NVFP4_OK);
            let mut workspace = vec![0u64; bytes / 8 + 32];
            desc.workspace = workspace.as_mut_ptr().cast();
            desc.workspace_bytes = 8 * workspace.len();
            let matrix = |d: &Dense| nvfp4_matrix {
                struct_size: size_of::<nvfp4_matrix>(),
                data: d.matrix.data.cast(),
                dtype: NVFP4_F32,
                reserved: 0,
                rows: d.matrix.rows as i64,
                cols: d.matrix.cols as i64,
                stride: 0,
            };
            let dense = |rows: i64, cols: i64| Dense::new(Dtype::F32, rows as usize, cols as usize);
            let (x, w, dy) = (
                dense(tokens, inputs),
                dense(outputs, inputs),
                dense(tokens, outputs),
            );
            let (y, dx, dw) = (
                dense(tokens, outputs),
                dense(tokens, inputs),
                dense(outputs, inputs),
            );
            let null = std::ptr::null_mut();
            let mut step = || {
                desc.offset += 1;
                let (x, w, dy) = (matrix(&x), matrix(&w), matrix(&dy));
                let y = ffi::nvfp4_linear_fprop(
                    ctx,
                    &desc,
                    &x,
                    &w,
                    std::ptr::null(),
                    &matrix(&y),
                    null,
                );
                let dx = ffi::nvfp4_linear_dgrad(ctx, &desc, &dy, &w, &matrix(&dx), null);
                let dw = ffi::nvfp4_linear_wgrad(ctx, &desc, &dy, &x, &matrix(&dw), null);
                assert_eq!((y, dx, dw), (NVFP4_OK, NVFP4_OK, NVFP4_OK));
            };
            let t = b.best(&mut step);
            b.add(Line {
                name,
                threads,
                rate: (6 * tokens * inputs * outputs) as f64 / t * 1e-9,
                unit: "GFLOP/s",
                bound: Some(("f32 FMA", b.roofline.fma[column(threads)])),
                peers: vec!["torch f32 linear step".into()],
            });
            assert_eq!(ffi::nvfp4_context_destroy(ctx), NVFP4_OK);
        }
    }
}
