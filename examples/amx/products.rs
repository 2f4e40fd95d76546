//! Whole products: the table "amx" against the scalar one and against "avx512".

use crate::data::{mxfp4, Dense, Packed};
use nvfp4::cpu::{Cpu, Kernels, SCALAR};
use nvfp4::numerics::{Accumulate, Chain, Dtype, Options};
use nvfp4::plan::{self, GemmRequest, Matrix};
use std::time::Instant;

type Shape = (usize, usize, usize);

fn product(cpu: &Cpu, a: &Packed, b: &Packed, accumulate: Accumulate, d: &mut [f32]) {
    let (m, n) = (a.view.rows, b.view.rows);
    let out = Matrix::new(
        "d",
        d.as_mut_ptr().cast(),
        Dtype::F32,
        m as i64,
        n as i64,
        0,
    );
    let request = GemmRequest {
        accumulate,
        ..GemmRequest::default()
    };
    let out = Some(out.expect("a matrix"));
    let plan = plan::gemm::plan(&request, plan::Device::Cpu, a.view, b.view, None, out);
    cpu.gemm(&plan.expect("legal")).expect("runs");
}

fn operands(cpu: &Cpu, o: &Options, (m, n, k): Shape) -> (Packed, Packed) {
    let of = |rows| Packed::new(cpu, o, &Dense::new(Dtype::F32, rows, k));
    (of(m), of(n))
}

fn table(name: &str) -> Kernels {
    Kernels::by_name(name).expect("a table of a processor with AMX")
}

/// True if all are right.
pub fn check() -> bool {
    let mut right = true;
    // Chain SINGLE: decoded values are exact, and so the sum that FAST's bound is about.
    let single = Options {
        chain: Chain::Single,
        ..Options::default()
    };
    for (name, o) in [("NVFP4", single), ("MXFP4", mxfp4())] {
        for shape in [
            (16, 16, 128),
            (130, 260, 96),
            (257, 33, 1040),
            (64, 300, 8224),
            (31, 5, 17),
        ] {
            let slow = Cpu::with_kernels(2, SCALAR);
            let (a, b) = operands(&slow, &o, shape);
            let run = |cpu: &Cpu, accumulate| {
                let mut d = vec![f32::NAN; shape.0 * shape.1];
                product(cpu, &a, &b, accumulate, &mut d);
                d
            };
            let want = run(&slow, Accumulate::Block);
            let values = |q: &Packed| {
                let mut y = vec![0f32; q.view.rows * shape.2];
                let (p, rows) = (y.as_mut_ptr().cast(), q.view.rows as i64);
                let y_matrix = Matrix::new("y", p, Dtype::F32, rows, shape.2 as i64, 0);
                let plan = plan::dequantize::plan(q.view, false, y_matrix.expect("a matrix"));
                slow.dequantize(&plan.expect("legal")).expect("runs");
                y
            };
            let (x, w) = (values(&a), values(&b));
            let cpu = Cpu::with_kernels(2, table("amx"));
            let block = run(&cpu, Accumulate::Block);
            let differ = block
                .iter()
                .zip(&want)
                .filter(|(g, w)| g.to_bits() != w.to_bits())
                .count();
            let mut worst = 0f64;
            for (i, got) in run(&cpu, Accumulate::Fast).iter().enumerate() {
                let (row, col) = (&x[i / shape.1 * shape.2..], &w[i % shape.1 * shape.2..]);
                let terms = row[..shape.2]
                    .iter()
                    .zip(col)
                    .map(|(x, w)| *x as f64 * *w as f64);
                let (sum, size) = terms.fold((0.0, 0.0), |(s, t), p| (s + p, t + p.abs()));
                let bound = shape.2.div_ceil(16) as f64 * 2f64.powi(-22) * size;
                let error = (*got as f64 - sum).abs() / bound.max(f64::MIN_POSITIVE);
                worst = if error.is_nan() {
                    f64::INFINITY
                } else {
                    worst.max(error)
                };
            }
            println!(
                "{name} {shape:?}: BLOCK differs in {differ}, FAST at most {worst:.3} of its bound"
            );
            right &= differ == 0 && worst <= 1.0;
        }
    }
    right
}

/// GFLOP/s on one core, tables beside each other.
pub fn times() {
    for (format, o) in [("NVFP4", Options::default()), ("MXFP4", mxfp4())] {
        for shape in [(16, 4096, 4096), (512, 4096, 4096)] {
            for accumulate in [Accumulate::Block, Accumulate::Fast] {
                let mut line = format!("{format} {shape:?} {accumulate:?}:");
                for name in ["avx512", "amx"] {
                    let cpu = Cpu::with_kernels(1, table(name));
                    let (a, b) = operands(&cpu, &o, shape);
                    let mut d = vec![0f32; shape.0 * shape.1];
                    let (mut best, begin) = (f64::INFINITY, Instant::now());
                    while begin.elapsed().as_secs_f64() < 0.6 {
                        let start = Instant::now();
                        product(&cpu, &a, &b, accumulate, &mut d);
                        best = best.min(start.elapsed().as_secs_f64());
                    }
                    let flops = 2.0 * (shape.0 * shape.1 * shape.2) as f64;
                    line += &format!(" {name} {:.0}", flops / best * 1e-9);
                }
                println!("{line} GFLOP/s on one core");
            }
        }
    }
}
