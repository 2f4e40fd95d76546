//! Kernels that use instructions of some chips' own: what is known of them on this device, what the log says, and what
//! a context does that is made while a stream is captured. On the emulated GPU with a planted difference
//! (NVFP4_EMU_PLANT) the kernels that have to be found out are named by `--differs`.

use std::process::Command;
use std::ptr::null_mut;

use cudarc::driver::sys;
use nvfp4::cpu::Cpu;
use nvfp4::cuda::{Cuda, NativeState};
use nvfp4::numerics::*;
use nvfp4::plan::Source;

use super::config::{Config, Copy};
use super::device::{self, Stream};
use super::side::{Arena, Both, Laid, Region};

pub fn run(cuda: &Cuda, differs: Option<&str>) -> Result<String, String> {
    let found = cuda.native_kernels();
    if found.is_empty() {
        return Err("nothing is known of any kernel".into());
    }
    let wrong = |name: &str| differs.is_some_and(|d| d.split(',').any(|d| name.contains(d)));
    for (name, state) in &found {
        if matches!(state, NativeState::Differs(_)) != wrong(name) {
            return Err(format!("{name} is {state:?}"));
        }
    }
    let disabled = found.iter().filter(|(name, _)| wrong(name)).count();
    if differs.is_some() && disabled == 0 {
        return Err(format!("no kernel is named so: {found:?}"));
    }
    let checks = cuda.selftest().map_err(|e| e.to_string())?;
    for (name, result) in &checks {
        if result.is_err() != wrong(name) {
            return Err(format!("self test, {name}: {result:?}"));
        }
    }
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = Command::new(me)
        .arg("--certification-child")
        .env("NVFP4_LOG", "warn")
        .output()
        .map_err(|e| e.to_string())?;
    let log = String::from_utf8_lossy(&out.stderr);
    let sentences = log.lines().filter(|l| l.contains("is disabled on")).count();
    let text = String::from_utf8_lossy(&out.stdout).trim().to_string();
    if !out.status.success() || sentences != disabled {
        return Err(format!(
            "{text}; {sentences} kernels logged as disabled, want {disabled}: {log}"
        ));
    }
    let states: Vec<String> = found.iter().map(|(n, s)| format!("{n} {s:?}")).collect();
    Ok(format!(
        "{}; {} checks of the self test; {text}",
        states.join(", "),
        checks.len()
    ))
}

/// A context made while a stream is captured: no trials, portable kernels, the CPU's bytes; trials at the first call that
/// is not captured, and the CPU's bytes again.
pub fn child() {
    drop(nvfp4::Context::cpu(1)); // reads NVFP4_LOG
    let mut raw = null_mut();
    // SAFETY: valid out pointer; 0 = waits for the default stream, and is waited for by it.
    device::ok("cuStreamCreate", unsafe {
        sys::cuStreamCreate(&mut raw, 0)
    });
    let stream = Stream(raw);
    let mut arena = Arena::new(4 << 20);
    let o = Options {
        rounding: Rounding::Stochastic,
        ..Options::default()
    };
    let config = Config {
        rowwise: Some(Copy::new(o)),
        columnwise: Some(Copy::new(Options { hadamard: 16, ..o })),
        ..Config::new(144, 272, Dtype::Bf16)
    };
    let laid = Laid::new(&mut arena, &config);
    let x = laid.matrix(&mut arena, true);
    let plan = laid
        .plan(&mut arena, true, Source::Matrix(x))
        .expect("a legal call");
    arena.upload();
    let mut made = None;
    let graph = stream.capture(|| {
        let cuda = Cuda::new(0).expect("a context during a capture");
        cuda.quantize(&plan, stream.raw()).expect("capture works");
        made = Some(cuda);
    });
    let cuda = made.expect("just made");
    if !cuda.native_kernels().is_empty() {
        println!("trials were made during a capture");
        std::process::exit(1);
    }
    let x = laid.matrix(&mut arena, false);
    let host = laid
        .plan(&mut arena, false, Source::Matrix(x))
        .expect("a legal call");
    let before = arena.host[..arena.used()].to_vec();
    let both = Both {
        cpu: Cpu::new(1),
        cuda: &cuda,
        stream,
    };
    both.cpu.quantize(&host).expect("the CPU quantizes");
    let check = |what: &str| {
        if let Err(text) = both.compare(&arena, Region::default(), &[]) {
            println!("{what}: {text}");
            std::process::exit(1);
        }
    };
    graph.launch(&both.stream);
    check("captured before the trials");
    arena.device.write(0, &before);
    cuda.quantize(&plan, both.stream.raw()).expect("it works");
    check("after the trials");
    if cuda.native_kernels().is_empty() {
        println!("no trials were made after the capture");
        std::process::exit(1);
    }
    println!("a context made during a capture waits with its trials");
}
