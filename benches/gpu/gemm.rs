//! Products: each candidate beside cuBLASLt on bf16 matrices of the same shape (candidate 2 with BF16 operands) in the same
//! run, few-row products against rotating weights, and a whole linear layer.

use nvfp4::cuda::Cuda;
use nvfp4::linear::{self, LinearRequest};
use nvfp4::numerics::*;
use nvfp4::plan::{
    self, quantize::described, quantize::Sizes, Buffers, GemmPlan, GemmRequest, Seed,
};
use nvfp4::{Context, Recipe};

use super::device::{time, Memory, Stream};

const CUBLASLT: u32 = 2;
const WGMMA: u32 = 3;

/// An operand's memory: codes and scales that mean something, an amax.
struct Operand {
    shape: plan::Quantized,
    codes: Memory,
    scales: Memory,
    amax: Memory,
}

fn fill(to: &Memory, tile: &[u8]) {
    let mut at = 0;
    while at < to.bytes {
        let part = tile.len().min(to.bytes - at);
        to.write(at, &tile[..part]);
        at += part;
    }
}

impl Operand {
    fn new(format: Format, rows: usize, cols: usize, normal: &[u8]) -> Operand {
        let o = Options {
            format,
            ..Options::default()
        };
        let o = plan::options::check("operand", &o).expect("legal");
        let shape = described(&o, rows, cols, false);
        let sizes = Sizes::of(&shape);
        let made = Operand {
            shape,
            codes: Memory::new(sizes.codes_bytes),
            scales: Memory::new(sizes.scales_bytes),
            amax: Memory::new(256),
        };
        match format {
            Format::Bf16 => fill(&made.codes, normal),
            _ => {
                // Low bytes of random numbers serve as codes, 0x30 to 0x3F as scales.
                let codes: Vec<u8> = normal
                    .chunks_exact(2)
                    .map(|v| v[0].wrapping_mul(29) ^ v[1])
                    .collect();
                let scales: Vec<u8> = codes.iter().map(|c| 0x30 | c >> 4).collect();
                fill(&made.codes, &codes);
                fill(&made.scales, &scales);
            }
        }
        made.amax.write(0, &3.5f32.to_le_bytes());
        made
    }

    fn bound(&self) -> plan::Quantized {
        let buffers = Buffers {
            codes: self.codes.at(0),
            codes_bytes: self.codes.bytes,
            scales: self.scales.at(0),
            scales_bytes: self.scales.bytes,
            amax: self.amax.at(0).cast(),
            amax_count: 1,
            code_stride: 0,
            scale_stride: 0,
        };
        self.shape.bind("operand", &buffers).expect("it fits")
    }
}

fn matrix(at: &Memory, dtype: Dtype, rows: usize, cols: usize) -> plan::Matrix {
    plan::Matrix::new("x", at.at(0), dtype, rows as i64, cols as i64, 0).expect("legal")
}

fn product(
    a: &Operand,
    b: &Operand,
    d: &Memory,
    workspace: &Memory,
    accumulate: Accumulate,
    provider: u32,
) -> GemmPlan {
    let request = GemmRequest {
        accumulate,
        provider,
        workspace: workspace.at(0),
        workspace_bytes: workspace.bytes,
        ..GemmRequest::default()
    };
    let d = matrix(d, Dtype::Bf16, a.shape.rows, b.shape.rows);
    plan::gemm::plan(
        &request,
        plan::Device::Cuda,
        a.bound(),
        b.bound(),
        None,
        Some(d),
    )
    .expect("legal")
}

/// Microseconds of a product, or why it does not run.
fn timed(cuda: &Cuda, stream: &Stream, plans: &[GemmPlan], repeats: usize) -> Result<f64, String> {
    cuda.supports_gemm(&plans[0]).map_err(|e| e.to_string())?;
    cuda.gemm(&plans[0], stream.raw())
        .map_err(|e| e.to_string())?;
    let mut turn = 0;
    Ok(time(stream, repeats, || {
        turn = (turn + 1) % plans.len();
        cuda.gemm(&plans[turn], stream.raw())
            .expect("it ran before");
    }))
}

pub fn measure(cuda: &Cuda, normal: &[u8]) {
    let stream = Stream::new();
    for (m, n, k) in [(8192, 8192, 8192), (8192, 14336, 4096), (4096, 4096, 4096)] {
        let tera = 2.0 * m as f64 * n as f64 * k as f64 / 1e6;
        let d = Memory::new(2 * m * n);
        let workspace = Memory::new(2 * (m + n) * k + (64 << 20));
        let dense = [
            Operand::new(Format::Bf16, m, k, normal),
            Operand::new(Format::Bf16, n, k, normal),
        ];
        let fast = Accumulate::Fast;
        let cublas = timed(
            cuda,
            &stream,
            &[product(
                &dense[0], &dense[1], &d, &workspace, fast, CUBLASLT,
            )],
            3,
        );
        drop(dense);
        match &cublas {
            Ok(us) => println!(
                "{m} x {n} x {k}: cuBLASLt bf16 {us:.1} us, {:.0} TFLOP/s",
                tera / us
            ),
            Err(why) => println!("{m} x {n} x {k}: no cuBLASLt: {why}"),
        }
        let (a, b) = (
            Operand::new(Format::Nvfp4, m, k, normal),
            Operand::new(Format::Nvfp4, n, k, normal),
        );
        for (name, accumulate, provider) in [
            ("FAST, chosen", fast, 0),
            ("FAST, cublaslt", fast, CUBLASLT),
            ("FAST, wgmma", fast, WGMMA),
            ("BLOCK, wgmma", Accumulate::Block, WGMMA),
        ] {
            match timed(
                cuda,
                &stream,
                &[product(&a, &b, &d, &workspace, accumulate, provider)],
                3,
            ) {
                Ok(us) => println!(
                    "  {name:34} {us:7.1} us  {:5.0} TFLOP/s  {:.3} of cuBLASLt bf16",
                    tera / us,
                    cublas.as_ref().map_or(f64::NAN, |c| c / us)
                ),
                Err(why) => println!("  {name:34} does not run: {why}"),
            }
        }
    }
    decode(cuda, &stream, normal);
    layer(cuda, &stream, normal);
}

/// Weights of four times the L2 take turns.
fn decode(cuda: &Cuda, stream: &Stream, normal: &[u8]) {
    let (n, k) = (8192, 8192);
    let workspace = Memory::new(64 << 20);
    let packed: Vec<Operand> = (0..6)
        .map(|_| Operand::new(Format::Nvfp4, n, k, normal))
        .collect();
    let dense: Vec<Operand> = (0..2)
        .map(|_| Operand::new(Format::Bf16, n, k, normal))
        .collect();
    for m in [1, 4, 16] {
        let d = Memory::new(2 * m * n);
        let run = |x: Format, weights: &[Operand], provider| {
            let a = Operand::new(x, m, k, normal);
            let plans: Vec<_> = weights
                .iter()
                .map(|b| product(&a, b, &d, &workspace, Accumulate::Fast, provider))
                .collect();
            timed(cuda, stream, &plans, 10)
        };
        let show = |r: Result<f64, String>| r.map_or_else(|why| why, |us| format!("{us:.2} us"));
        println!(
            "M = {m}, N = K = 8192: NVFP4 {}, BF16 activations {}, cuBLASLt bf16 {}",
            show(run(Format::Nvfp4, &packed, 0)),
            show(run(Format::Bf16, &packed, 0)),
            show(run(Format::Bf16, &dense, CUBLASLT))
        );
    }
}

/// Forward and backward of a linear layer, quantization included, against its three products in bf16.
fn layer(cuda: &Cuda, stream: &Stream, normal: &[u8]) {
    let (tokens, inputs, outputs) = (8192, 4096, 14336);
    let ctx = Context::cuda(0).expect("a context");
    let recipe = Recipe::named("nvfp4").expect("known");
    let memory = |n: usize| {
        let m = Memory::new(2 * n);
        fill(&m, normal);
        m
    };
    let (x, w, dy) = (
        memory(tokens * inputs),
        memory(outputs * inputs),
        memory(tokens * outputs),
    );
    let (y, dx, dw) = (
        memory(tokens * outputs),
        memory(tokens * inputs),
        memory(2 * outputs * inputs),
    );
    let bytes = linear::workspace_bytes(
        &ctx,
        &recipe,
        tokens as i64,
        inputs as i64,
        outputs as i64,
        Dtype::Bf16,
    )
    .expect("a size");
    let workspace = Memory::new(bytes);
    let request = LinearRequest {
        recipe,
        seed: Seed::Host(1, 2),
        accumulate_wgrad: false,
        workspace: workspace.at(0),
        workspace_bytes: bytes,
    };
    let bf16 = |m: &Memory, rows, cols| matrix(m, Dtype::Bf16, rows, cols);
    let (mx, mw, mdy) = (
        bf16(&x, tokens, inputs),
        bf16(&w, outputs, inputs),
        bf16(&dy, tokens, outputs),
    );
    let s = stream.raw();
    let run = || {
        linear::fprop(&ctx, &request, mx, mw, None, bf16(&y, tokens, outputs), s).expect("fprop");
        linear::dgrad(&ctx, &request, mdy, mw, bf16(&dx, tokens, inputs), s).expect("dgrad");
        let dw = matrix(&dw, Dtype::F32, outputs, inputs);
        linear::wgrad(&ctx, &request, mdy, mx, dw, s).expect("wgrad");
    };
    let ours = time(stream, 3, run);
    let mut dense = 0.0;
    let scratch = Memory::new(64 << 20);
    for (m, n, k) in [
        (tokens, outputs, inputs),
        (tokens, inputs, outputs),
        (outputs, inputs, tokens),
    ] {
        let (a, b) = (
            Operand::new(Format::Bf16, m, k, normal),
            Operand::new(Format::Bf16, n, k, normal),
        );
        let d = Memory::new(2 * m * n);
        dense += timed(
            cuda,
            stream,
            &[product(&a, &b, &d, &scratch, Accumulate::Fast, CUBLASLT)],
            3,
        )
        .unwrap_or(f64::NAN);
    }
    println!(
        "linear, {tokens} tokens, {inputs} to {outputs}, fprop + dgrad + wgrad: nvfp4 {ours:.0} us, its products in bf16 by \
         cuBLASLt {dense:.0} us: {:.3} times, {} MiB of workspace",
        ours / dense,
        bytes >> 20
    );
}
