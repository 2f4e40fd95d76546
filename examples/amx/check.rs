//! The tile kernels by themselves.

use nvfp4::cpu::amx::{bf16, int8};
use nvfp4::cpu::avx512::gemm::kernel as avx512;
use std::alloc::{alloc_zeroed, Layout};
use std::time::Instant;

const HALVES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Memory aligned to a page; never given back.
fn memory(bytes: usize) -> *mut u8 {
    let layout = Layout::from_size_align(bytes.max(1), 4096).expect("a legal layout");
    // SAFETY: the size is not 0.
    let p = unsafe { alloc_zeroed(layout) };
    assert!(!p.is_null());
    p
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn u32(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }
}

/// Twice the code values, rows of `blocks * block`, and a scale a block.
struct Side {
    halves: Vec<i8>,
    scales: Vec<f32>,
    k: usize,
    block: usize,
}

impl Side {
    fn random(r: &mut Random, rows: usize, blocks: usize, block: usize) -> Side {
        let k = blocks * block;
        let scale = |r: &mut Random| match block {
            // All finite E4M3 values.
            16 => {
                let b = r.u32() % 127;
                let (e, m) = (b >> 3, (b & 7) as f32);
                match e {
                    0 => m * 2f32.powi(-9),
                    _ => (8.0 + m) * 2f32.powi(e as i32 - 10),
                }
            }
            _ => 2f32.powi((r.u32() % 60) as i32 - 30),
        };
        Side {
            halves: (0..rows * k)
                .map(|_| HALVES[r.u32() as usize % 16])
                .collect(),
            scales: (0..rows * blocks).map(|_| scale(r)).collect(),
            k,
            block,
        }
    }
    fn half(&self, row: usize, k: usize) -> i8 {
        self.halves[row * self.k + k]
    }
    fn scale(&self, row: usize, block: usize) -> f32 {
        self.scales[row * (self.k / self.block) + block]
    }
    fn value(&self, row: usize, k: usize) -> f32 {
        self.half(row, k) as f32 * 0.5 * self.scale(row, k / self.block)
    }
}

/// Mode BLOCK as docs/format.md has it.
fn block_sum(a: &Side, b: &Side, i: usize, j: usize) -> f32 {
    let mut acc = 0f32;
    for k in 0..a.k / a.block {
        let range = k * a.block..(k + 1) * a.block;
        let dot: i32 = range
            .map(|l| a.half(i, l) as i32 * b.half(j, l) as i32)
            .sum();
        acc += (dot as f64 * 0.25 * a.scale(i, k) as f64 * b.scale(j, k) as f64) as f32;
    }
    acc
}

fn check_int8<const S: usize>(r: &mut Random, blocks: usize) -> bool {
    let block = 16 * S;
    let (a, b) = (
        Side::random(r, 16, blocks, block),
        Side::random(r, 16, blocks, block),
    );
    let (pa, pb) = (
        memory(blocks * int8::a_bytes(S)),
        memory(blocks * int8::b_bytes(S)),
    );
    let mut acc = [0f32; 16 * 20];
    acc[16..20].fill(7.0);
    // SAFETY: writes stay inside the two packed buffers, which the kernel's contract sizes.
    unsafe {
        for k in 0..blocks {
            let (x, y) = (pa.add(k * int8::a_bytes(S)), pb.add(k * int8::b_bytes(S)));
            for row in 0..16 {
                for l in 0..block {
                    *x.add(row * block + l).cast::<i8>() = a.half(row, k * block + l);
                    *y.add(l / 4 * 64 + 4 * row + l % 4).cast::<i8>() = b.half(row, k * block + l);
                }
                *x.add(256 * S).cast::<f32>().add(row) = a.scale(row, k);
                *y.add(256 * S).cast::<f32>().add(row) = 0.25 * b.scale(row, k);
            }
        }
        int8::group::<S>(pa, pb, acc.as_mut_ptr(), 20, blocks);
    }
    let wrong = (0..256)
        .filter(|i| {
            acc[i / 16 * 20 + i % 16].to_bits() != block_sum(&a, &b, i / 16, i % 16).to_bits()
        })
        .count();
    let kept = acc[16..20].iter().all(|v| *v == 7.0);
    println!("int8 blocks of {block}, K {}: {wrong} of 256 differ from mode BLOCK, bytes beside kept: {kept}", blocks * block);
    wrong == 0 && kept
}

fn check_bf16(r: &mut Random, steps: usize) -> bool {
    let k = steps * bf16::DEPTH;
    let (a, b) = (
        Side::random(r, 32, k / 16, 16),
        Side::random(r, 32, k / 16, 16),
    );
    let (pa, pb) = (
        memory(steps * bf16::STEP_BYTES),
        memory(steps * bf16::STEP_BYTES),
    );
    let bits = |v: f32| -> u16 {
        assert_eq!(v.to_bits() & 0xFFFF, 0, "code times scale is exact in bf16");
        (v.to_bits() >> 16) as u16
    };
    let mut out = vec![0f32; 32 * 32];
    // SAFETY: as above.
    unsafe {
        for (row, l) in (0..32).flat_map(|row| (0..k).map(move |l| (row, l))) {
            let step = l / 32 * bf16::STEP_BYTES + row / 16 * 1024;
            let in_a = step + row % 16 * 64 + 2 * (l % 32);
            let in_b = step + l % 32 / 2 * 64 + 4 * (row % 16) + 2 * (l % 2);
            *pa.add(in_a).cast::<u16>() = bits(a.value(row, l));
            *pb.add(in_b).cast::<u16>() = bits(b.value(row, l));
        }
        bf16::group(pa, pb, out.as_mut_ptr(), 32, steps);
    }
    // The promise of mode FAST (docs/format.md, section 10), and the tighter bound of the library's tests.
    let bound =
        ((k / 16) as f64 * 2f64.powi(-22)).min(2f64.powi(-18).max(k as f64 * 2f64.powi(-28)));
    let mut worst = 0f64;
    for (i, got) in out.iter().enumerate() {
        let products = (0..k).map(|l| a.value(i / 32, l) as f64 * b.value(i % 32, l) as f64);
        // Exact products; their f64 sum errs by far less than the bound.
        let (sum, size) = products.fold((0.0, 0.0), |(s, t), p| (s + p, t + p.abs()));
        let error = (*got as f64 - sum).abs() / size.max(f64::MIN_POSITIVE);
        worst = if error.is_nan() {
            f64::INFINITY
        } else {
            worst.max(error / bound)
        };
    }
    println!("bf16 K {k}: largest error {worst:.3} of the bound of mode FAST");
    worst <= 1.0
}

fn time(name: &str, flops: f64, mut f: impl FnMut()) -> f64 {
    let mut best = 0f64;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.5 {
        let start = Instant::now();
        f();
        best = best.max(flops / start.elapsed().as_secs_f64() * 1e-9);
    }
    println!("{name}: {best:.0} GFLOP/s on one core");
    best
}

/// Of the kernels with operands in cache.
pub fn times() {
    // Panels of B that L1 holds, 1 MiB of A.
    let (a, b, blocks) = (memory(1 << 20), memory(1 << 16), 32usize);
    let mut acc = vec![0f32; 32 * 32];
    let reps = 512;
    let flops = |rows: usize, cols: usize, k: usize| (2 * rows * cols * k * reps) as f64;
    let c = acc.as_mut_ptr();
    // SAFETY: buffers are larger than what the kernels read at these offsets.
    unsafe {
        let at = |g: usize, bytes: usize| a.add(g % 32 * blocks * bytes);
        let vnni = time(
            "NVFP4 AVX-512 VNNI kernel, 8 x 32",
            flops(8, 32, 16 * blocks),
            || {
                (0..reps).for_each(|g| {
                    avx512::block16::<8>(at(g, avx512::a_bytes(1)), b, c, 32, blocks)
                });
            },
        );
        let tile = time(
            "NVFP4 AMX int8 kernel, mode BLOCK, 16 x 16",
            flops(16, 16, 16 * blocks),
            || {
                (0..reps).for_each(|g| int8::group::<1>(at(g, int8::a_bytes(1)), b, c, 32, blocks));
            },
        );
        let half = blocks / 2;
        time(
            "MXFP4 AMX int8 kernel, mode BLOCK, 16 x 16",
            flops(16, 16, 32 * half),
            || {
                (0..reps).for_each(|g| int8::group::<2>(at(g, int8::a_bytes(2)), b, c, 32, half));
            },
        );
        let fast = time(
            "AMX bf16 kernel, mode FAST, 32 x 32",
            flops(32, 32, 32 * 16),
            || {
                (0..reps).for_each(|g| bf16::group(a.add(g % 32 * 32768), b, c, 32, 16));
            },
        );
        println!(
            "against AVX-512 VNNI: int8 {:.2}x, bf16 {:.2}x",
            tile / vnni,
            fast / vnni
        );
    }
}

/// True if all are right.
pub fn kernels() -> bool {
    let mut r = Random(1);
    let mut right = true;
    for blocks in [0, 1, 2, 5, 64, 257] {
        right &= check_int8::<1>(&mut r, blocks);
        right &= check_int8::<2>(&mut r, blocks);
    }
    for steps in [4, 7, 64, 256] {
        right &= check_bf16(&mut r, steps);
    }
    right
}
