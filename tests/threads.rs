//! One context from many threads, and after fork().

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::*;
use std::ptr::{null, null_mut};

struct Work {
    x: Dense,
    w: Dense,
    o: Options,
}

impl Work {
    fn new(seed: u64) -> Work {
        let mut random = Random::new(seed);
        Work {
            x: Dense::filled(Dtype::Bf16, 200, 512, || random.normal()),
            w: Dense::filled(Dtype::Bf16, 150, 512, || random.normal()),
            o: Options {
                rounding: Rounding::Stochastic,
                hadamard: 16,
                ..Options::default()
            },
        }
    }

    /// Codes of both operands and the bits of their product.
    fn run(&self, ctx: &Ctx) -> (Vec<u8>, Vec<u8>, Vec<u32>) {
        let mut a = quantize_one(ctx, &self.o, &self.x, false, None);
        let mut b = quantize_one(ctx, &self.o, &self.w, false, None);
        let d = Dense::filled(Dtype::F32, 200, 150, || f32::NAN);
        let view = d.c();
        // SAFETY: valid operands and room for D.
        ok(unsafe { nvfp4_gemm(ctx.0, null(), a.c(), b.c(), null(), &view, null_mut()) });
        (a.codes, b.codes, d.bits())
    }
}

#[test]
fn many_threads_on_one_context_get_the_serial_results() {
    let works: Vec<Work> = (0..6).map(Work::new).collect();
    let serial: Vec<_> = works.iter().map(|w| w.run(&Ctx::new(1))).collect();
    let ctx = Ctx::new(3);
    std::thread::scope(|s| {
        for (work, want) in works.iter().zip(&serial) {
            let ctx = &ctx;
            s.spawn(move || {
                for round in 0..20 {
                    assert!(work.run(ctx) == *want, "round {round} differs");
                    // This thread's own error, while the others go on.
                    // SAFETY: NULL is what is tested.
                    let status = unsafe {
                        nvfp4_quantize(ctx.0, null(), null(), null_mut(), null_mut(), null_mut())
                    };
                    fails(status, NVFP4_ERR_NULL_POINTER, &["x"]);
                }
            });
        }
    });
}

#[test]
fn contexts_come_and_go_while_others_work() {
    let work = Work::new(7);
    let want = work.run(&Ctx::new(1));
    std::thread::scope(|s| {
        for threads in 1..5 {
            let (work, want) = (&work, &want);
            s.spawn(move || {
                for _ in 0..8 {
                    assert!(work.run(&Ctx::new(threads)) == *want);
                }
            });
        }
    });
}

/// After fork() the child's context works, with threads of its own, and so does the parent's.
#[test]
fn a_context_works_after_fork() {
    let work = Work::new(8);
    let ctx = Ctx::new(3);
    let want = work.run(&ctx);
    // SAFETY: the child only runs library code and exits without unwinding.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let same = std::panic::catch_unwind(|| (0..3).all(|_| work.run(&ctx) == want));
        // The context is destroyed in the child too: it must not wait for the parent's threads.
        let gone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(ctx)));
        let code = if same.unwrap_or(false) && gone.is_ok() {
            0
        } else {
            1
        };
        // SAFETY: ends the child without running the test harness's exit handlers.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    let start = std::time::Instant::now();
    loop {
        // SAFETY: waits for our own child.
        let done = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if done == child {
            break;
        }
        if start.elapsed().as_secs() > 60 {
            // SAFETY: our own child.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "the child ended with {status:#x}"
    );
    assert!(work.run(&ctx) == want, "the parent after its child");
}

/// The log: off by default, levels, and quiet again.
#[test]
fn the_log_passes_lines_up_to_its_level() {
    use std::ffi::{c_char, c_void, CStr};
    use std::sync::Mutex;
    unsafe extern "C" fn sink(user: *mut c_void, level: u32, message: *const c_char) {
        // SAFETY: `user` is the list below, `message` a string for the time of the call.
        unsafe {
            let lines = &*user.cast::<Mutex<Vec<(u32, String)>>>();
            lines
                .lock()
                .unwrap()
                .push((level, CStr::from_ptr(message).to_str().unwrap().to_owned()));
        }
    }
    // Leaked: other tests of this process may log while the callback is set.
    let lines: &'static Mutex<Vec<(u32, String)>> = Box::leak(Box::default());
    let user = (lines as *const Mutex<_>).cast_mut().cast::<c_void>();
    let fail = || {
        // SAFETY: NULL is what is tested.
        unsafe { nvfp4_hadamard(null_mut(), null(), null(), null(), null_mut()) }
    };
    let count = |what: &str| {
        lines
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, l)| l.contains(what))
            .count()
    };
    // SAFETY: the callback and its list live for the whole process.
    unsafe {
        fail();
        assert_eq!(lines.lock().unwrap().len(), 0, "off by default");
        ok(nvfp4_set_log(Some(sink), user, NVFP4_LOG_PLAN));
        let before = lines.lock().unwrap().len();
        assert_ne!(fail(), NVFP4_OK);
        drop(Ctx::new(2));
        let seen = lines.lock().unwrap()[before..].to_vec();
        assert!(
            seen.iter()
                .any(|(level, l)| *level == NVFP4_LOG_ERROR && l.contains("NULL")),
            "{seen:?}"
        );
        assert!(
            seen.iter()
                .any(|(level, l)| *level == NVFP4_LOG_PLAN && l.contains("cpu")),
            "{seen:?}"
        );
        ok(nvfp4_set_log(Some(sink), user, NVFP4_LOG_ERROR));
        let plans = count("context: cpu");
        drop(Ctx::new(2));
        assert_eq!(count("context: cpu"), plans);
        fails(
            nvfp4_set_log(Some(sink), user, 9),
            NVFP4_ERR_INVALID_ARGUMENT,
            &["9"],
        );
        ok(nvfp4_set_log(None, null_mut(), NVFP4_LOG_PLAN));
        let all = lines.lock().unwrap().len();
        fail();
        drop(Ctx::new(2));
        assert_eq!(lines.lock().unwrap().len(), all);
    }
}
