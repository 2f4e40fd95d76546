//! Exact traffic of the memory-bound kernels, as the emulated GPU counts it: each pass reads each input byte once and
//! each output byte is written once, within 2 %. On a chip there is nothing to count with.

use std::ffi::c_void;

use nvfp4::cuda::Cuda;
use nvfp4::numerics::*;
use nvfp4::plan::Source;

use super::config::{Config, Copy};
use super::gemm::{self, has_fp4_units, Bench, Tally};
use super::products;
use super::side::{Arena, Laid};

/// Gives launches, bytes read, bytes written, matrix instructions and instructions since its last call.
type Take = unsafe extern "C" fn(*mut u64);

fn counters() -> Option<Take> {
    // SAFETY: only asks for the driver that is loaded already, and for a symbol of it.
    let found = unsafe {
        let driver = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if driver.is_null() {
            return None;
        }
        libc::dlsym(driver, c"nvfp4_emu_take_counters".as_ptr())
    };
    // SAFETY: the symbol has this signature.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Take>(found) })
}

pub fn run(cuda: &Cuda) -> Result<String, String> {
    let Some(take) = counters() else {
        return Ok("not run: only the emulated GPU counts bytes".into());
    };
    let (rows, cols) = (1024, 2048);
    let input = (rows * cols * 2) as f64;
    let output = (rows * cols / 2 + rows * cols / 16) as f64;
    let mut report = Vec::new();
    for (name, row, col, passes) in [
        ("rowwise", true, false, 2.0),
        ("columnwise", false, true, 2.0),
        ("both", true, true, 2.0),
    ] {
        let copy = |on: bool| on.then(|| Copy::new(Options::default()));
        let c = Config {
            rowwise: copy(row),
            columnwise: copy(col),
            ..Config::new(rows, cols, Dtype::Bf16)
        };
        let mut arena = Arena::new(16 << 20);
        let laid = Laid::new(&mut arena, &c);
        arena.upload();
        let x = laid.matrix(&mut arena, true);
        let plan = laid
            .plan(&mut arena, true, Source::Matrix(x))
            .map_err(|e| e.to_string())?;
        let mut v = [0u64; 5];
        // SAFETY: room for the five counts.
        unsafe { take(v.as_mut_ptr()) };
        cuda.quantize(&plan, std::ptr::null_mut())
            .map_err(|e| e.to_string())?;
        // SAFETY: as above.
        unsafe { take(v.as_mut_ptr()) };
        // The amax of the tensor is a pass of its own before the codes.
        let read = v[1] as f64 / (passes * input);
        let written = v[2] as f64 / (output * (row as u32 + col as u32) as f64);
        report.push(format!("{name} {read:.4} {written:.4}"));
        if !(1.0..=1.02).contains(&read) || !(1.0..=1.02).contains(&written) {
            return Err(format!(
                "{name}: {} bytes read and {} written in {} launches; {passes} passes over {input} bytes and {output} a copy are enough",
                v[1], v[2], v[0]
            ));
        }
    }
    if has_fp4_units(cuda) {
        // Candidate, rows and columns of its tiles.
        let ways: &[(u32, usize, usize)] = match cuda.name().contains("sm_12") {
            true => &[(5, 128, 128)],
            false => &[(7, 128, 128), (8, 256, 256), (9, 128, 64)],
        };
        for way in ways {
            report.push(fp4_product(cuda, take, *way, false)?);
            // These quantize D themselves: nothing of it is written in f32.
            if matches!(way.0, 7..=9) {
                report.push(fp4_product(cuda, take, *way, true)?);
            }
        }
    }
    Ok(format!(
        "bytes read a pass and written, against the floor: {}",
        report.join(", ")
    ))
}

/// Operand traffic of a product on FP4 units: each tile of D reads its rows of A and B once.
fn fp4_product(
    cuda: &Cuda,
    take: Take,
    (provider, rows, columns): (u32, usize, usize),
    quantized: bool,
) -> Result<String, String> {
    let mut p = products::fp4(512, 768, 1024);
    p.d_options = quantized.then(Options::default);
    let mut t = Bench::new(cuda, 4 << 20, 4 << 20);
    let mut tally = Tally::default();
    let mut v = [0u64; 5];
    // SAFETY: room for the five counts.
    unsafe { take(v.as_mut_ptr()) };
    gemm::run_by(&mut t, &p, &mut tally, &[provider])?;
    // SAFETY: as above.
    unsafe { take(v.as_mut_ptr()) };
    let tiles = (p.m.div_ceil(rows) * p.n.div_ceil(columns)) as f64;
    let operands =
        tally.hardware as f64 * tiles * (rows + columns) as f64 * (p.k / 2 + p.k / 16) as f64;
    let bytes = match quantized {
        true => p.m * p.n / 2 + p.m * p.n / 16,
        false => 4 * p.m * p.n,
    };
    let output = tally.hardware as f64 * bytes as f64;
    let (read, written) = (v[1] as f64 / operands, v[2] as f64 / output);
    if !(1.0..=1.05).contains(&read) || written != 1.0 {
        return Err(format!("a product by provider {provider} in {} launches: {} bytes read, {operands} are its tiles' operands; {} written", v[0], v[1], v[2]));
    }
    let kind = if quantized { ", D quantized," } else { "" };
    Ok(format!(
        "FP4 product by {provider}{kind} {read:.4} {written:.4}"
    ))
}
