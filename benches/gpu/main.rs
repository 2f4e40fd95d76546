//! What the CUDA backend reaches on the GPU of this machine, beside the rate of a device copy measured in the same run.
//! `gpu_bench [--size ROWS COLS] [--only NAME]` (`gemm`: products alone); benches/gpu/peers.py measures what others do of the same.
//!
//! Each line: median microseconds, bytes moved at the least (read once, written once) a second, and that as a share of
//! the copy's rate. Buffers rotate, so that nothing is found in the L2 cache that a real step would not find there.

#[path = "../../tests/gpu/device.rs"]
mod device;
mod gemm;

use device::{time, Memory, Stream};
use nvfp4::cuda::Cuda;
use nvfp4::numerics::*;
use nvfp4::plan::{
    self, quantize::described, quantize::Sizes, Buffers, DequantizePlan, QuantizePlan,
    QuantizeRequest, Seed, Source,
};

/// Buffer sets that take turns.
const SETS: usize = 3;

fn numbers(name: &str) -> Option<Vec<usize>> {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|a| a == name)?;
    Some(
        args[at + 1..]
            .iter()
            .map_while(|a| a.parse().ok())
            .collect(),
    )
}

/// One set of buffers: the input, and both copies.
struct Set {
    x: Memory,
    codes: [Memory; 2],
    scales: [Memory; 2],
    amax: Memory,
    out: Memory,
}

impl Set {
    fn new(rows: usize, cols: usize, tile: &[u8]) -> Set {
        let n = rows * cols;
        let x = Memory::new(2 * n);
        let mut at = 0;
        while at < 2 * n {
            let part = tile.len().min(2 * n - at);
            x.write(at, &tile[..part]);
            at += part;
        }
        let set = Set {
            x,
            codes: [Memory::new(n / 2), Memory::new(n / 2)],
            scales: [Memory::new(n / 16), Memory::new(n / 16)],
            amax: Memory::new(256),
            out: Memory::new(2 * n),
        };
        for i in 0..2 {
            set.amax.write(4 * i, &5.5f32.to_le_bytes());
        }
        set
    }

    fn buffers(&self, i: usize) -> Buffers {
        Buffers {
            codes: self.codes[i].at(0),
            codes_bytes: self.codes[i].bytes,
            scales: self.scales[i].at(0),
            scales_bytes: self.scales[i].bytes,
            amax: self.amax.at(4 * i).cast(),
            amax_count: 1,
            code_stride: 0,
            scale_stride: 0,
        }
    }

    fn matrix(&self, at: &Memory, rows: usize, cols: usize) -> plan::Matrix {
        plan::Matrix::new("x", at.at(0), Dtype::Bf16, rows as i64, cols as i64, 0)
            .expect("a legal matrix")
    }

    /// A call that makes the copies that have options; `given`: with the amax that is there, so without its pass.
    fn plan(
        &self,
        rows: usize,
        cols: usize,
        row: Option<Options>,
        col: Option<Options>,
        given: bool,
    ) -> QuantizePlan {
        let amax = |i: usize| {
            if given {
                self.amax.at(4 * i).cast::<f32>().cast_const()
            } else {
                std::ptr::null()
            }
        };
        let request = QuantizeRequest {
            rowwise: row.unwrap_or_default(),
            columnwise: col.unwrap_or_default(),
            seed: Seed::Host(1, 2),
            rowwise_amax: amax(0),
            columnwise_amax: amax(1),
            ..Default::default()
        };
        let x = Source::Matrix(self.matrix(&self.x, rows, cols));
        let (a, b) = (self.buffers(0), self.buffers(1));
        plan::quantize::plan(
            &request,
            plan::Device::Cuda,
            x,
            row.map(|_| &a),
            col.map(|_| &b),
        )
        .expect("a legal call")
    }

    fn dequantize(&self, rows: usize, cols: usize) -> DequantizePlan {
        let o = plan::options::check("copy", &Options::default()).expect("legal");
        let shape = described(&o, rows, cols, false);
        assert_eq!(Sizes::of(&shape).codes_bytes, self.codes[0].bytes);
        let x = shape.bind("x", &self.buffers(0)).expect("it fits");
        plan::dequantize::plan(x, false, self.matrix(&self.out, rows, cols)).expect("a legal call")
    }
}

/// bf16 values of about N(0, 1), as bytes.
fn normal(count: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 24) as f32
    };
    (0..count)
        .flat_map(|_| {
            let v = (next() + next() + next() + next() + next() + next() - 3.0)
                * std::f32::consts::SQRT_2;
            half::bf16::from_f32(v).to_bits().to_le_bytes()
        })
        .collect()
}

fn main() {
    // `cargo bench` passes --bench; nothing else is expected of it here.
    if let Err(why) = device::enter() {
        println!("gpu bench skipped: {why}");
        return;
    }
    let cuda = Cuda::new(0).expect("a CUDA context");
    println!("{}", cuda.name());
    let shapes = match numbers("--size") {
        Some(s) => vec![(s[0], s[1])],
        None => vec![(8192, 8192), (4096, 4096), (16384, 8192)],
    };
    let only: Option<String> = std::env::args().skip_while(|a| a != "--only").nth(1);
    let tile = normal(1 << 22);
    if only.as_deref().is_none_or(|o| o == "gemm") {
        gemm::measure(&cuda, &tile);
    }
    if only.as_deref() == Some("gemm") {
        return;
    }
    for (rows, cols) in shapes {
        measure(&cuda, rows, cols, &tile, only.as_deref());
    }
}

fn measure(cuda: &Cuda, rows: usize, cols: usize, tile: &[u8], only: Option<&str>) {
    let stream = Stream::new();
    let sets: Vec<Set> = (0..SETS).map(|_| Set::new(rows, cols, tile)).collect();
    let n = (rows * cols) as f64;
    let mut turn = 0;
    let mut rotate = || {
        turn = (turn + 1) % SETS;
        turn
    };
    let copy = time(&stream, 30, || {
        let s = &sets[rotate()];
        // SAFETY: both hold as many bytes.
        device::ok("cuMemcpyDtoDAsync", unsafe {
            cudarc::driver::sys::cuMemcpyDtoDAsync_v2(
                s.out.address,
                s.x.address,
                s.x.bytes,
                stream.0,
            )
        });
    });
    let rate = 4.0 * n / copy;
    println!(
        "{rows} x {cols} bf16: copy {copy:.1} us, {:.2} TB/s",
        rate / 1e6
    );
    let report = |name: &str, us: f64, bytes: f64| {
        println!(
            "  {name:34} {us:7.1} us  {:5.2} TB/s  {:5.1} % of copy",
            bytes * n / us / 1e6,
            100.0 * bytes * n / us / rate
        );
    };
    let sr = |o: Options| Options {
        rounding: Rounding::Stochastic,
        ..o
    };
    let d = Options::default();
    let rht = Options { hadamard: 16, ..d };
    let tiles = Options {
        block: Block::TwoD,
        ..d
    };
    let swizzled = Options {
        scale_layout: ScaleLayout::Swizzled,
        ..d
    };
    // (name, rowwise, columnwise, bytes an element)
    let quantize: [(&str, Option<Options>, Option<Options>, f64); 14] = [
        ("quantize row", Some(d), None, 2.5625),
        ("quantize row, SR", Some(sr(d)), None, 2.5625),
        (
            "quantize row, swizzled scales",
            Some(swizzled),
            None,
            2.5625,
        ),
        ("quantize column", None, Some(d), 2.5625),
        ("quantize RHT column", None, Some(rht), 2.5625),
        ("quantize RHT column, SR", None, Some(sr(rht)), 2.5625),
        ("quantize row + column", Some(d), Some(d), 3.125),
        (
            "quantize row + column, tiles",
            Some(tiles),
            Some(tiles),
            3.125,
        ),
        ("quantize row + RHT column", Some(d), Some(rht), 3.125),
        (
            "quantize row + RHT column SR",
            Some(d),
            Some(sr(rht)),
            3.125,
        ),
        (
            "quantize row SR + RHT column SR",
            Some(sr(d)),
            Some(sr(rht)),
            3.125,
        ),
        ("quantize RHT row", Some(rht), None, 2.5625),
        (
            "general: row, RHT 128",
            Some(Options { hadamard: 128, ..d }),
            None,
            2.5625,
        ),
        (
            "general: column, 4/6",
            None,
            Some(Options {
                select: Select::FourOverSixMae,
                ..d
            }),
            2.5625,
        ),
    ];
    let wanted = |name: &str| only.is_none_or(|o| name.contains(o));
    for (name, row, col) in [
        ("amax", Some(d), None),
        ("amax of row and RHT column", Some(d), Some(rht)),
    ] {
        if wanted(name) {
            let plans: Vec<_> = sets
                .iter()
                .map(|s| s.plan(rows, cols, row, col, false))
                .collect();
            report(
                name,
                time(&stream, 30, || {
                    cuda.amax(&plans[rotate()], stream.raw()).expect("amax")
                }),
                2.0,
            );
        }
    }
    for s in &sets {
        for i in 0..2 {
            s.amax.write(4 * i, &5.5f32.to_le_bytes());
        }
    }
    for (name, row, col, bytes) in quantize {
        if wanted(name) {
            let plans: Vec<_> = sets
                .iter()
                .map(|s| s.plan(rows, cols, row, col, true))
                .collect();
            let us = time(&stream, 30, || {
                cuda.quantize(&plans[rotate()], stream.raw())
                    .expect("quantize")
            });
            report(name, us, bytes);
        }
    }
    for (name, row, col) in [
        ("whole training quantize", d, rht),
        ("whole training quantize, SR", sr(d), sr(rht)),
    ] {
        if wanted(name) {
            let plans: Vec<_> = sets
                .iter()
                .map(|s| s.plan(rows, cols, Some(row), Some(col), false))
                .collect();
            let us = time(&stream, 30, || {
                cuda.quantize(&plans[rotate()], stream.raw())
                    .expect("quantize")
            });
            report(name, us, 5.125);
        }
    }
    if wanted("dequantize") {
        for s in &sets {
            cuda.quantize(&s.plan(rows, cols, Some(d), None, true), stream.raw())
                .expect("quantize");
        }
        let plans: Vec<_> = sets.iter().map(|s| s.dequantize(rows, cols)).collect();
        let us = time(&stream, 30, || {
            cuda.dequantize(&plans[rotate()], stream.raw())
                .expect("dequantize")
        });
        report("dequantize", us, 2.5625);
    }
}
