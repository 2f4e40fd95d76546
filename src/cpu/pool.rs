//! The threads of a context. They start at the first call that has work for more than one, and sleep between calls.
//!
//! - The caller works too, so a context with one thread starts none.
//! - Calls from several threads at once: one has the crew, the others work alone. No call waits for another.
//! - After fork() the child has no crew: it starts its own at the first call (or works alone, if the fork happened in
//!   the middle of another thread's call).
//! - Every tile runs in the default floating-point environment, whatever the caller's is: with flush-to-zero on, as
//!   some programs have it, subnormal inputs would give other bytes.

use std::any::Any;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use crate::log;

/// Threads that work on one call at a time.
pub struct Pool {
    threads: usize,
    crew: Mutex<Option<Crew>>,
}

struct Crew {
    /// Process that started them: after fork() they are gone.
    process: u32,
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    start: Condvar,
    done: Condvar,
}

#[derive(Default)]
struct State {
    /// Counts calls, so that a worker takes part in each once.
    call: u64,
    work: Option<Work>,
    running: usize,
    stop: bool,
    panic: Option<Box<dyn Any + Send>>,
}

/// The caller's closure. It lives until `running` is 0 again, for which the caller waits.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn() + Sync));

// SAFETY: the closure is Sync, and `Pool::run` keeps it alive while workers use it.
unsafe impl Send for Work {}

impl Pool {
    /// `threads` 0 = as many as the process may use.
    pub fn new(threads: usize) -> Pool {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n.min(4096),
        };
        Pool {
            threads,
            crew: Mutex::new(None),
        }
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `job` with each of 0..jobs once, on any thread and in any order; a panic in one ends up here.
    pub fn run(&self, jobs: usize, job: impl Fn(usize) + Sync) {
        self.run_with(jobs, || (), |(), j| job(j));
    }

    /// The same with scratch memory of each thread's own.
    pub fn run_with<S>(
        &self,
        jobs: usize,
        scratch: impl Fn() -> S + Sync,
        job: impl Fn(&mut S, usize) + Sync,
    ) {
        let next = AtomicUsize::new(0);
        let work = || {
            let _environment = FloatEnvironment::default_rounding();
            let mut own = None;
            loop {
                let j = next.fetch_add(1, Ordering::Relaxed);
                if j >= jobs {
                    break;
                }
                job(own.get_or_insert_with(&scratch), j);
            }
        };
        if self.threads > 1 && jobs > 1 {
            if let Ok(mut crew) = self.crew.try_lock() {
                return self.run_together(&mut crew, &work);
            }
        }
        work();
    }

    fn run_together(&self, crew: &mut MutexGuard<Option<Crew>>, work: &(dyn Fn() + Sync)) {
        let process = std::process::id();
        if crew.as_ref().is_some_and(|c| c.process != process) {
            // The parent's crew: its threads do not exist here, and its locks may be held by them. Leave it be.
            std::mem::forget(crew.take());
        }
        let crew = crew.get_or_insert_with(|| Crew::start(self.threads - 1, process));
        // SAFETY: only the lifetime changes; this function waits below until no worker uses the closure.
        let work_pointer: *const (dyn Fn() + Sync) = unsafe {
            std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync + 'static)>(
                work,
            )
        };
        {
            let mut state = lock(&crew.shared.state);
            state.work = Some(Work(work_pointer));
            state.call += 1;
            state.running = crew.handles.len();
        }
        crew.shared.start.notify_all();
        let own = catch_unwind(AssertUnwindSafe(work));
        let mut state = lock(&crew.shared.state);
        while state.running > 0 {
            state = crew
                .shared
                .done
                .wait(state)
                .unwrap_or_else(|p| p.into_inner());
        }
        state.work = None;
        let other = state.panic.take();
        drop(state);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        if let Some(panic) = other {
            resume_unwind(panic);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

impl Crew {
    fn start(count: usize, process: u32) -> Crew {
        let shared = Arc::new(Shared::default());
        let _signals = SignalsBlocked::new();
        let mut handles = Vec::with_capacity(count);
        for i in 0..count {
            let shared = Arc::clone(&shared);
            let spawned = std::thread::Builder::new()
                .name(format!("nvfp4-{}", i + 1))
                .spawn(move || worker(&shared));
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    log::message(
                        crate::abi::NVFP4_LOG_WARN,
                        &format!(
                            "{} of {count} threads could be started: {error}",
                            handles.len()
                        ),
                    );
                    break;
                }
            }
        }
        Crew {
            process,
            shared,
            handles,
        }
    }
}

fn worker(shared: &Shared) {
    let mut seen = 0;
    let mut state = lock(&shared.state);
    loop {
        if state.stop {
            return;
        }
        match state.work {
            Some(work) if state.call != seen => {
                seen = state.call;
                drop(state);
                // SAFETY: the caller in run_together waits for `running` to be 0 before it lets the closure go.
                let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*work.0)() }));
                state = lock(&shared.state);
                if let Err(panic) = result {
                    state.panic.get_or_insert(panic);
                }
                state.running -= 1;
                if state.running == 0 {
                    shared.done.notify_all();
                }
            }
            _ => state = shared.start.wait(state).unwrap_or_else(|p| p.into_inner()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let crew = self
            .crew
            .get_mut()
            .unwrap_or_else(|p| p.into_inner())
            .take();
        let Some(mut crew) = crew else { return };
        if crew.process != std::process::id() {
            std::mem::forget(crew);
            return;
        }
        lock(&crew.shared.state).stop = true;
        crew.shared.start.notify_all();
        for handle in crew.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

/// Signals stay with the program's own threads: workers start with all of them blocked.
struct SignalsBlocked {
    former: libc::sigset_t,
}

impl SignalsBlocked {
    fn new() -> SignalsBlocked {
        // SAFETY: plain data, filled by the calls below; changing this thread's mask is always allowed.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut former: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut former);
            SignalsBlocked { former }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `former` came from pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.former, std::ptr::null_mut()) };
    }
}

/// Round to nearest even, subnormals kept, no traps; the former environment comes back on drop.
struct FloatEnvironment {
    former: u64,
}

impl FloatEnvironment {
    fn default_rounding() -> FloatEnvironment {
        let environment = FloatEnvironment {
            former: read_float_control(),
        };
        if environment.former & FLOAT_CONTROL_MASK != FLOAT_CONTROL_DEFAULT {
            write_float_control(FLOAT_CONTROL_DEFAULT);
        }
        environment
    }
}

impl Drop for FloatEnvironment {
    fn drop(&mut self) {
        if self.former & FLOAT_CONTROL_MASK != FLOAT_CONTROL_DEFAULT {
            write_float_control(self.former);
        }
    }
}

#[cfg(target_arch = "x86_64")]
const FLOAT_CONTROL_DEFAULT: u64 = 0x1F80;
/// All but the sticky exception flags.
#[cfg(target_arch = "x86_64")]
const FLOAT_CONTROL_MASK: u64 = 0xFFC0;

#[cfg(target_arch = "x86_64")]
fn read_float_control() -> u64 {
    let mut mxcsr = 0u32;
    // SAFETY: stores MXCSR to the four bytes of `mxcsr`.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &mut mxcsr, options(nostack, preserves_flags))
    };
    mxcsr as u64
}

#[cfg(target_arch = "x86_64")]
fn write_float_control(value: u64) {
    let mxcsr = value as u32;
    // SAFETY: `value` is the default, which Rust code expects, or what the register held before.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &mxcsr, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
const FLOAT_CONTROL_DEFAULT: u64 = 0;
#[cfg(target_arch = "aarch64")]
const FLOAT_CONTROL_MASK: u64 = !0;

#[cfg(target_arch = "aarch64")]
fn read_float_control() -> u64 {
    let value: u64;
    // SAFETY: reading FPCR has no effect.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) value, options(nomem, nostack)) };
    value
}

#[cfg(target_arch = "aarch64")]
fn write_float_control(value: u64) {
    // SAFETY: `value` is the default, which Rust code expects, or what the register held before.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) value, options(nostack)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FLOAT_CONTROL_DEFAULT: u64 = 0;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FLOAT_CONTROL_MASK: u64 = 0;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn read_float_control() -> u64 {
    0
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn write_float_control(_: u64) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_job_runs_once() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for jobs in [0, 1, 2, 7, 100] {
                let counts: Vec<AtomicU32> = (0..jobs).map(|_| AtomicU32::new(0)).collect();
                pool.run(jobs, |j| {
                    counts[j].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_panic_comes_back_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        for bad in [0, 50, 99] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(100, |j| {
                    if j == bad {
                        resume_unwind(Box::new(j));
                    }
                })
            }));
            assert_eq!(*result.unwrap_err().downcast::<usize>().unwrap(), bad);
            let sum = AtomicUsize::new(0);
            pool.run(10, |j| {
                sum.fetch_add(j, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 45);
        }
    }

    #[test]
    fn many_threads_share_a_pool() {
        let pool = Pool::new(3);
        std::thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    for _ in 0..200 {
                        let sum = AtomicUsize::new(0);
                        pool.run(20, |j| {
                            sum.fetch_add(j, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 190);
                    }
                });
            }
        });
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn jobs_keep_subnormals_and_the_callers_environment_comes_back() {
        const FLUSH: u64 = 0x9FC0;
        let pool = Pool::new(2);
        write_float_control(FLUSH);
        let kept = AtomicUsize::new(0);
        pool.run(64, |_| {
            let tiny = std::hint::black_box(1e-40f32) * std::hint::black_box(0.5);
            kept.fetch_add((tiny != 0.0) as usize, Ordering::Relaxed);
        });
        let after = read_float_control();
        write_float_control(FLOAT_CONTROL_DEFAULT);
        assert_eq!(after & FLOAT_CONTROL_MASK, FLUSH & FLOAT_CONTROL_MASK);
        assert_eq!(kept.into_inner(), 64);
    }
}
