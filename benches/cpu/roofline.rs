//! What this machine can do: multiply-add rates and memory rates, measured beside everything else. Figures of the table
//! are shares of these, because absolute ones say more about the machine than about the library.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Rates of one thread, and of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline {
    /// f32 fused multiply-add, widest vectors, GFLOP/s.
    pub fma: [f64; 2],
    /// 8-bit dot products (VNNI), widest vectors, GOP/s; 0 where there are none.
    pub vnni: [f64; 2],
    /// Reading 8 MiB a thread again and again, GB/s: from the last-level cache, where it is larger than that.
    pub read_l3: [f64; 2],
    /// Reading 256 MiB a thread, GB/s.
    pub read: [f64; 2],
    /// Copying 128 MiB a thread with non-temporal stores, read plus written, GB/s.
    pub copy: [f64; 2],
    /// Writing 128 MiB a thread with non-temporal stores, GB/s.
    pub write: [f64; 2],
}

/// Best rate of seven, in 1e9 a second, on `threads` threads at once: `work` returns how much it did.
fn rate<S>(
    threads: usize,
    setup: impl Fn() -> S + Sync,
    work: impl Fn(&mut S) -> f64 + Sync,
) -> f64 {
    let barrier = Barrier::new(threads);
    std::thread::scope(|s| {
        let runs: Vec<_> = (0..threads)
            .map(|_| {
                s.spawn(|| {
                    let mut state = setup();
                    (0..7).fold(0f64, |best, _| {
                        barrier.wait();
                        let start = Instant::now();
                        let amount = work(&mut state);
                        best.max(amount / start.elapsed().as_secs_f64())
                    })
                })
            })
            .collect();
        runs.into_iter()
            .map(|r| r.join().expect("a rate"))
            .sum::<f64>()
            * 1e-9
    })
}

impl Roofline {
    pub fn measure(threads: usize) -> Roofline {
        let arithmetic = |work: fn() -> f64| [1, threads].map(|t| rate(t, || (), |()| work()));
        let memory = |bytes: usize, work: fn(&mut Memory) -> f64| {
            [1, threads].map(|t| rate(t, || Memory::new(bytes), work))
        };
        Roofline {
            fma: arithmetic(fma),
            vnni: arithmetic(vnni),
            read_l3: memory(8 << 20, |m| (0..32).map(|_| m.read()).sum()),
            read: memory(256 << 20, Memory::read),
            copy: memory(128 << 20, Memory::copy),
            write: memory(128 << 20, Memory::write),
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;

    macro_rules! twelve {
        ($instruction:literal, $a:literal, $b:literal, $($r:literal)*) => {
            concat!($($instruction, " ", $r, ", ", $a, ", ", $b, "\n"),*)
        };
    }

    pub fn fma512(n: usize) -> f64 {
        for _ in 0..n {
            // SAFETY: register arithmetic only.
            unsafe {
                asm!(twelve!("vfmadd231ps", "zmm14", "zmm15", "zmm0" "zmm1" "zmm2" "zmm3" "zmm4" "zmm5" "zmm6" "zmm7"
                    "zmm8" "zmm9" "zmm10" "zmm11"), out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                    out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _,
                    out("zmm10") _, out("zmm11") _, options(nomem, nostack));
            }
        }
        (n * 12 * 32) as f64
    }

    pub fn fma256(n: usize) -> f64 {
        for _ in 0..n {
            // SAFETY: register arithmetic only.
            unsafe {
                asm!(twelve!("vfmadd231ps", "ymm14", "ymm15", "ymm0" "ymm1" "ymm2" "ymm3" "ymm4" "ymm5" "ymm6" "ymm7"
                    "ymm8" "ymm9" "ymm10" "ymm11"), out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                    out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _, out("ymm8") _, out("ymm9") _,
                    out("ymm10") _, out("ymm11") _, options(nomem, nostack));
            }
        }
        (n * 12 * 16) as f64
    }

    pub fn vnni512(n: usize) -> f64 {
        for _ in 0..n {
            // SAFETY: register arithmetic only.
            unsafe {
                asm!(twelve!("vpdpbusd", "zmm14", "zmm15", "zmm0" "zmm1" "zmm2" "zmm3" "zmm4" "zmm5" "zmm6" "zmm7"
                    "zmm8" "zmm9" "zmm10" "zmm11"), out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                    out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _,
                    out("zmm10") _, out("zmm11") _, options(nomem, nostack));
            }
        }
        (n * 12 * 128) as f64
    }

    /// # Safety
    /// The processor must have AVX-512.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn or512(data: &[u64]) -> i64 {
        use std::arch::x86_64::*;
        let mut a = [_mm512_setzero_si512(); 8];
        for chunk in data.chunks_exact(64) {
            for (i, a) in a.iter_mut().enumerate() {
                // SAFETY: eight vectors of a chunk of 512 bytes.
                let v = unsafe { _mm512_loadu_si512(chunk.as_ptr().add(8 * i).cast()) };
                *a = _mm512_or_si512(*a, v);
            }
        }
        a.iter()
            .map(|a| _mm512_reduce_or_epi64(*a))
            .fold(0, |x, y| x | y)
    }

    /// Clears the registers that the loops read, so that no subnormal or NaN slows them.
    pub fn clear() {
        // SAFETY: clears two registers that nobody holds.
        unsafe {
            asm!("vpxor xmm14, xmm14, xmm14", "vpxor xmm15, xmm15, xmm15", out("xmm14") _, out("xmm15") _);
        }
    }
}

fn fma() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        x86::clear();
        if is_x86_feature_detected!("avx512f") {
            return x86::fma512(4_000_000);
        }
        if is_x86_feature_detected!("fma") {
            return x86::fma256(4_000_000);
        }
    }
    0.0
}

fn vnni() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        x86::clear();
        if is_x86_feature_detected!("avx512vnni") {
            return x86::vnni512(4_000_000);
        }
    }
    0.0
}

/// Two stretches of memory of one thread.
struct Memory {
    from: Vec<u64>,
    to: Vec<u64>,
}

impl Memory {
    fn new(bytes: usize) -> Memory {
        Memory {
            from: (0..bytes / 8).map(|i| i as u64).collect(),
            to: (0..bytes / 8).map(|i| !i as u64).collect(),
        }
    }

    fn read(&mut self) -> f64 {
        let data = black_box(&self.from[..]);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512; whole chunks of 512 bytes are read.
            black_box(unsafe { x86::or512(data) });
            return (8 * data.len()) as f64;
        }
        black_box(data.iter().fold(0, |a, b| a | b));
        (8 * data.len()) as f64
    }

    fn copy(&mut self) -> f64 {
        stream(Some(black_box(&self.from)), &mut self.to);
        (16 * self.from.len()) as f64
    }

    fn write(&mut self) -> f64 {
        stream(None, &mut self.to);
        (8 * self.to.len()) as f64
    }
}

/// Writes past the caches where the processor can.
fn stream(from: Option<&[u64]>, to: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is always there; 16-byte steps inside both slices, `to` aligned by skipping to a multiple of 16.
        unsafe {
            let skip = (to.as_ptr() as usize % 16) / 8;
            for i in (skip..to.len() - 1).step_by(2) {
                let v = match from {
                    Some(from) => _mm_loadu_si128(from.as_ptr().add(i).cast()),
                    None => _mm_setzero_si128(),
                };
                _mm_stream_si128(to.as_mut_ptr().add(i).cast(), v);
            }
            _mm_sfence();
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    match from {
        Some(from) => to.copy_from_slice(from),
        None => to.fill(0),
    }
    black_box(to);
}
