//! The lines of the table.

use super::data::{mxfp4, quantize_plan, Dense, Packed};
use super::{Bench, Line};
use nvfp4::cpu::{Cpu, Kernels};
use nvfp4::numerics::{Dtype, Format, Options, Rounding};
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
            product(b, &cpu, &name, Options::default(), shape, &[]);
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
        (
            "quantize f32 rowwise",
            Dtype::F32,
            base,
            &["ml_dtypes quantize f32"],
        ),
        (
            "quantize bf16 rowwise",
            Dtype::Bf16,
            base,
            &["ml_dtypes quantize f32"],
        ),
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
                peers,
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
        ("columnwise bf16 4096x4096", None, base),
        ("columnwise bf16 4096x4096 RHT", None, rht),
        ("columnwise bf16 4096x4096 RHT + SR", None, rht_sr),
        (
            "both copies bf16 4096x4096, nvfp4 activation",
            Some(base),
            rht,
        ),
        (
            "both copies bf16 4096x4096, nvfp4 gradient",
            Some(row_sr),
            rht_sr,
        ),
        (
            "both copies bf16 4096x4096, nvfp4 weight",
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
    for (name, rowwise, columnwise) in cases {
        if !b.wants(name) {
            continue;
        }
        let x = Dense::new(Dtype::Bf16, 4096, 4096);
        let mut col = Packed::empty(&columnwise, 4096, 4096, true);
        let mut row = rowwise.map(|o| (o, Packed::empty(&o, 4096, 4096, false)));
        for (suffix, given) in [("", true), (", amax included", false)] {
            let row = row.as_mut().map(|(o, p)| (&*o, p));
            let plan = quantize_plan(&x, row, Some((&columnwise, &mut col)), given);
            let t = b.best(|| cpu.quantize(&plan).expect("runs"));
            b.add(Line {
                name: format!("{name}{suffix}"),
                threads: cpu.threads(),
                rate: x.elements() / t * 1e-9,
                unit: "Gelem/s",
                bound: None,
                peers: &[],
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
            peers: &["numpy amax f32"],
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
                peers: &["ml_dtypes dequantize"],
            });
        }
    }
}

fn products(b: &mut Bench, cpu: &Cpu) {
    let base = Options::default();
    let bf16 = Options {
        format: Format::Bf16,
        ..base
    };
    product(
        b,
        cpu,
        "gemm NVFP4 512x4096x4096",
        base,
        (512, 4096, 4096),
        &["numpy sgemm 512"],
    );
    product(
        b,
        cpu,
        "gemm MXFP4 512x4096x4096",
        mxfp4(),
        (512, 4096, 4096),
        &["numpy sgemm 512"],
    );
    product(
        b,
        cpu,
        "gemm BF16 512x4096x4096",
        bf16,
        (512, 4096, 4096),
        &["numpy sgemm 512"],
    );
    product(
        b,
        cpu,
        "gemm NVFP4 128x1024x1024",
        base,
        (128, 1024, 1024),
        &[],
    );
    product(
        b,
        cpu,
        "gemm NVFP4 32x4096x4096, plain",
        base,
        (32, 4096, 4096),
        &["numpy sgemm 32"],
    );
}

/// One product; A and B as they come from quantize.
fn product(
    b: &mut Bench,
    cpu: &Cpu,
    name: &str,
    o: Options,
    (m, n, k): (usize, usize, usize),
    peers: &'static [&'static str],
) {
    if !b.wants(name) {
        return;
    }
    let x = Packed::new(cpu, &o, &Dense::new(Dtype::F32, m, k));
    let w = Packed::new(cpu, &o, &Dense::new(Dtype::F32, n, k));
    let mut d = vec![0f32; m * n];
    let out = Matrix::new(
        "d",
        d.as_mut_ptr().cast(),
        Dtype::F32,
        m as i64,
        n as i64,
        0,
    )
    .expect("a matrix");
    let plan = plan::gemm::plan(
        &GemmRequest::default(),
        plan::Device::Cpu,
        x.view,
        w.view,
        None,
        Some(out),
    );
    let plan = plan.expect("legal");
    let t = b.best(|| cpu.gemm(&plan).expect("runs"));
    b.add(Line {
        name: name.to_string(),
        threads: cpu.threads(),
        rate: 2.0 * (m * n * k) as f64 / t * 1e-9,
        unit: "GFLOP/s",
        bound: Some(("f32 FMA", b.roofline.fma[column(cpu.threads())])),
        peers,
    });
}
