//! Kernels that use instructions of some chips' own, and whether this chip does with them what the contract says.
//!
//! Where a kernel has been shown to be right on an architecture it is used from the start. Elsewhere the first context of
//! a process on the device runs it on small adversarial inputs against the CPU backend, whose bytes the portable kernels
//! give. One that differs is not used again in the process: a sentence goes to the log, and its calls take the portable
//! kernels (products in mode HARDWARE, which only it could make, are refused).
//!
//! Trials allocate and wait. Where a context is made while a stream is captured they are put off to the first call that
//! is not, and until then everything is portable.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::driver::{Relaxed, Stream};
use super::gemm::{self, NATIVE};
use super::trial::Twin;
use super::{quantize_trial, Cuda};
use crate::abi::{NVFP4_LOG_INFO, NVFP4_LOG_WARN};
use crate::{log, Result};

/// Kernels of this table: the quantizers that use conversion instructions, then the products of `gemm::NATIVE`.
pub const CONVERSIONS: usize = 0;
const COUNT: usize = 1 + NATIVE.len();
const CONVERSIONS_CERTIFIED: &[i32] = &[90];
/// E4M3 conversions came with 8.9; before it there is nothing to differ.
const CONVERSIONS_FROM: i32 = 89;

/// Both images of a trial.
const MEMORY: usize = 2 << 20;

/// What is known of a kernel here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Shown to be right on this architecture.
    Certified,
    /// Its trial gave the CPU's bytes.
    Agrees,
    Differs(String),
    /// This device or build has no such kernel.
    Absent,
}

/// What a context knows.
pub struct Natives {
    /// Bit i: kernel i may run.
    allowed: AtomicU32,
    settled: AtomicBool,
    states: Mutex<Arc<[State]>>,
}

thread_local! {
    /// The kernel that this thread tries.
    static TRIAL: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// By device: trials are made once a process.
static KNOWN: Mutex<Vec<(i32, Arc<[State]>)>> = Mutex::new(Vec::new());

impl Natives {
    pub fn new() -> Natives {
        Natives {
            allowed: AtomicU32::new(0),
            settled: AtomicBool::new(false),
            states: Mutex::new(Arc::new([])),
        }
    }

    pub fn allows(&self, kernel: usize) -> bool {
        self.allowed.load(Ordering::Relaxed) & (1 << kernel) != 0 || TRIAL.get() == kernel
    }

    /// Whether a candidate for products may run, or why not.
    pub fn allows_product(&self, provider: u32) -> std::result::Result<(), String> {
        match NATIVE.iter().position(|n| n.provider == provider) {
            Some(i) if !self.allows(i + 1) => Err(match self.states().get(i + 1) {
                Some(State::Differs(how)) => {
                    format!("it is disabled, its trial on this device differed: {how}")
                }
                Some(_) => "this device or build does not have it".into(),
                None => {
                    "it has not been tried on this device yet, and a capture is under way".into()
                }
            }),
            _ => Ok(()),
        }
    }

    fn states(&self) -> Arc<[State]> {
        self.states
            .lock()
            .unwrap_or_else(|p| p.into_inner())
            .clone()
    }

    fn apply(&self, states: Arc<[State]>) {
        let allowed = states
            .iter()
            .enumerate()
            .filter(|(i, s)| match s {
                State::Certified | State::Agrees => true,
                State::Differs(_) => false,
                // The quantizers are there all the same, with nothing of the chip's own in them.
                State::Absent => *i == CONVERSIONS,
            })
            .map(|(i, _)| 1 << i)
            .sum();
        *self.states.lock().unwrap_or_else(|p| p.into_inner()) = states;
        self.allowed.store(allowed, Ordering::Relaxed);
        self.settled.store(true, Ordering::Release);
    }
}

pub fn name(kernel: usize) -> &'static str {
    match kernel {
        CONVERSIONS => "quantize by conversion instructions",
        product => NATIVE[product - 1].name,
    }
}

/// The kernels and what is known of them; empty before the trials.
pub fn report(cuda: &Cuda) -> Vec<(&'static str, State)> {
    let states = cuda.natives.states();
    states
        .iter()
        .enumerate()
        .map(|(i, s)| (name(i), s.clone()))
        .collect()
}

/// Before a call on `stream`: makes the trials if they are still to be made and can be. Costs a load where they are done.
pub fn settle(cuda: &Cuda, stream: Stream) -> Result<()> {
    if cuda.natives.settled.load(Ordering::Acquire)
        || TRIAL.get() != usize::MAX
        || stream.is_captured()
        || Stream::new(std::ptr::null_mut()).is_captured()
    {
        return Ok(());
    }
    let mut known = KNOWN.lock().unwrap_or_else(|p| p.into_inner());
    let device = cuda.device.handle;
    let states = match known.iter().find(|(d, _)| *d == device) {
        Some((_, states)) => states.clone(),
        None => {
            let states: Arc<[State]> = all(cuda, false)?.into();
            known.push((device, states.clone()));
            states
        }
    };
    cuda.natives.apply(states);
    Ok(())
}

/// The state of every kernel; `certified`: of those too that need no trial here.
pub fn all(cuda: &Cuda, certified: bool) -> Result<Vec<State>> {
    let _relaxed = Relaxed::new();
    let mut twin = None;
    let mut states = Vec::new();
    for kernel in 0..COUNT {
        let (exists, on) = match kernel {
            CONVERSIONS => (cuda.device.arch >= CONVERSIONS_FROM, CONVERSIONS_CERTIFIED),
            product => {
                let n = &NATIVE[product - 1];
                ((n.exists)(cuda), n.certified)
            }
        };
        states.push(if !exists {
            State::Absent
        } else if on.contains(&cuda.device.arch) && !certified {
            State::Certified
        } else {
            if twin.is_none() {
                twin = Some(Twin::new(MEMORY)?);
            }
            try_one(cuda, kernel, twin.as_mut().expect("just made"))
        });
    }
    Ok(states)
}

fn try_one(cuda: &Cuda, kernel: usize, twin: &mut Twin) -> State {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            TRIAL.set(usize::MAX);
        }
    }
    TRIAL.set(kernel);
    let _restore = Restore;
    let outcome = match kernel {
        CONVERSIONS => quantize_trial::conversions(cuda, twin).map(Some),
        product => gemm::trial::run(cuda, twin, NATIVE[product - 1].provider),
    };
    // One that cannot be run is none, and no reason for having no context.
    let outcome = outcome.unwrap_or_else(|e| Some(Some(format!("it fails: {e}"))));
    let (name, device) = (name(kernel), &cuda.device.name);
    match outcome {
        None => State::Absent,
        Some(None) => {
            log::message(
                NVFP4_LOG_INFO,
                &format!("{name} on {device}: its trial gave the CPU's bytes"),
            );
            State::Agrees
        }
        Some(Some(how)) => {
            log::message(
                NVFP4_LOG_WARN,
                &format!(
                    "{name} is disabled on {device}, its calls take the portable kernels: {how}"
                ),
            );
            State::Differs(how)
        }
    }
}
