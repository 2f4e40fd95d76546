//! A quantize call captured into a graph as the very first call of a process, replayed with new data, seed and offset
//! in the same memory: each replay must equal the CPU. Runs in a child process, so that it is the first.

use std::process::Command;

use nvfp4::cpu::Cpu;
use nvfp4::cuda::Cuda;
use nvfp4::numerics::*;
use nvfp4::plan::Source;

use super::config::{Config, Copy};
use super::device::Stream;
use super::side::{Arena, Both, Laid, Region};

pub fn run() -> Result<String, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = Command::new(me)
        .arg("--graph-child")
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_string();
    match out.status.success() {
        true => Ok(text),
        false => Err(format!(
            "{text} {}",
            String::from_utf8_lossy(&out.stderr).trim()
        )),
    }
}

pub fn child() {
    let o = Options {
        rounding: Rounding::Stochastic,
        ..Options::default()
    };
    let both_sides = [
        // The fast kernels, then the general one with its amax.
        (Options { hadamard: 16, ..o }, Dtype::Bf16),
        (
            Options {
                hadamard: 64,
                domain_rows: 16,
                scale_layout: ScaleLayout::Swizzled,
                ..o
            },
            Dtype::F32,
        ),
    ];
    let cuda = Cuda::new(0).expect("a context");
    let mut replays = 0;
    for (columnwise, dtype) in both_sides {
        let config = |round: u64| Config {
            rowwise: Some(Copy::new(o)),
            columnwise: Some(Copy::new(columnwise)),
            device_seed: true,
            seed: 1000 + round,
            offset: 5 * round,
            key: round + 1,
            ..Config::new(272, 400, dtype)
        };
        let both = Both {
            cpu: Cpu::new(1),
            cuda: &cuda,
            stream: Stream::new(),
        };
        let mut arena = Arena::new(8 << 20);
        let laid = Laid::new(&mut arena, &config(0));
        let x = laid.matrix(&mut arena, true);
        let plan = laid
            .plan(&mut arena, true, Source::Matrix(x))
            .expect("a legal call");
        let graph = both.stream.capture(|| {
            both.cuda
                .quantize(&plan, both.stream.raw())
                .expect("capture works")
        });
        for round in 0..3 {
            let laid = Laid::new(&mut arena, &config(round));
            arena.upload();
            let x = laid.matrix(&mut arena, false);
            let host = laid
                .plan(&mut arena, false, Source::Matrix(x))
                .expect("a legal call");
            both.cpu.quantize(&host).expect("the CPU quantizes");
            graph.launch(&both.stream);
            if let Err(text) = both.compare(&arena, Region::default(), &[]) {
                println!("replay {round} of {columnwise:?}: {text}");
                std::process::exit(1);
            }
            replays += 1;
        }
    }
    println!("captured as the first call, {replays} replays with new data, seeds and offsets");
}
