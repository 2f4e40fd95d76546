//! Two threads with two streams each against the same calls one after the other, and what a call leaves behind.

use std::ptr::null_mut;

use cudarc::driver::sys;
use nvfp4::cpu::Cpu;
use nvfp4::cuda::Cuda;
use nvfp4::numerics::*;
use nvfp4::plan::Source;

use super::config::{Config, Copy};
use super::device::{self, ok, Stream};
use super::side::{Arena, Both, Laid, Region};

/// 512 x 2048, both copies with transform and stochastic rounding: four calls in flight at a time, each with its own
/// data and buffers, `rounds` times without waiting in between.
pub fn two_by_two(cuda: &Cuda, rounds: usize) -> Result<String, String> {
    let results: Vec<Result<(), String>> = std::thread::scope(|s| {
        let work = |thread: usize| {
            move || -> Result<(), String> {
                device::enter()?;
                let o = Options {
                    hadamard: 16,
                    rounding: Rounding::Stochastic,
                    ..Options::default()
                };
                let mut calls = Vec::new();
                for lane in 0..2 {
                    let c = Config {
                        rowwise: Some(Copy::new(Options { hadamard: 0, ..o })),
                        columnwise: Some(Copy::new(o)),
                        key: (2 * thread + lane) as u64 + 1,
                        ..Config::new(512, 2048, Dtype::Bf16)
                    };
                    let mut arena = Arena::new(16 << 20);
                    let laid = Laid::new(&mut arena, &c);
                    arena.upload();
                    let both = Both {
                        cpu: Cpu::new(1),
                        cuda,
                        stream: Stream::new(),
                    };
                    let x = laid.matrix(&mut arena, false);
                    let host = laid
                        .plan(&mut arena, false, Source::Matrix(x))
                        .map_err(|e| e.to_string())?;
                    both.cpu.quantize(&host).map_err(|e| e.to_string())?;
                    let x = laid.matrix(&mut arena, true);
                    let plan = laid
                        .plan(&mut arena, true, Source::Matrix(x))
                        .map_err(|e| e.to_string())?;
                    calls.push((both, plan, arena));
                }
                for _ in 0..rounds {
                    for (both, plan, _) in &calls {
                        both.cuda
                            .quantize(plan, both.stream.raw())
                            .map_err(|e| e.to_string())?;
                    }
                }
                for (both, _, arena) in &calls {
                    both.compare(arena, Region::default(), &[])?;
                }
                Ok(())
            }
        };
        let handles: Vec<_> = (0..2).map(|t| s.spawn(work(t))).collect();
        handles
            .into_iter()
            .map(|h| h.join().unwrap_or_else(|_| Err("a panic".into())))
            .collect()
    });
    results.into_iter().collect::<Result<Vec<()>, String>>()?;
    Ok(format!("4 streams x {rounds} calls equal the serial ones"))
}

/// A call needs no current context and leaves the one that was there.
pub fn context_is_kept(cuda: &Cuda) -> Result<String, String> {
    let c = Config {
        rowwise: Some(Copy::new(Options::default())),
        ..Config::new(64, 64, Dtype::Bf16)
    };
    let mut arena = Arena::new(1 << 20);
    let laid = Laid::new(&mut arena, &c);
    arena.upload();
    let x = laid.matrix(&mut arena, true);
    let plan = laid
        .plan(&mut arena, true, Source::Matrix(x))
        .map_err(|e| e.to_string())?;
    let mut mine = null_mut();
    let current = || {
        let mut now = null_mut();
        // SAFETY: valid out pointer.
        ok("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut now) });
        now
    };
    // SAFETY: valid out pointer; no context at all is a state that threads start in.
    unsafe {
        ok("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut mine));
        ok("cuCtxSetCurrent", sys::cuCtxSetCurrent(null_mut()));
    }
    let result = cuda.quantize(&plan, null_mut());
    let none = current();
    // SAFETY: the context that was current before.
    ok("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(mine) });
    result.map_err(|e| e.to_string())?;
    cuda.quantize(&plan, null_mut())
        .map_err(|e| e.to_string())?;
    if !none.is_null() || current() != mine {
        return Err("the current context was changed".into());
    }
    // SAFETY: plain call.
    ok("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() });
    match Cuda::new(99) {
        Err(e @ nvfp4::Error::NoDevice(_)) => Ok(format!("kept; device 99: \"{e}\"")),
        Err(e) => Err(format!("device 99 gives {e:?}")),
        Ok(_) => Err("device 99 exists".into()),
    }
}
