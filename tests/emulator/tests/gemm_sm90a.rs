//! The library's Hopper GEMM on the emulator: bulk copies with multicast over a
//! cluster of two, mbarrier rings, warp specialization, wgmma.

mod support;
use support::{library_kernel, Arg::*, Gpu};

const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

fn e4m3(b: u8) -> f32 {
    let (e, m) = (b >> 3 & 15, (b & 7) as f32);
    if e == 0 {
        m / 512.0
    } else {
        (8.0 + m) * 2f32.powi(e as i32 - 10)
    }
}

struct Matrix {
    codes: Vec<u8>,
    scales: Vec<u8>,
    k: usize,
}

impl Matrix {
    fn new(rows: usize, k: usize, seed: u64) -> Matrix {
        let mut s = seed;
        let mut next = || {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (s >> 56) as u8
        };
        let codes = (0..rows * k / 2).map(|_| next()).collect();
        let scales = (0..rows * k / 16).map(|_| 0x20 + next() % 0x30).collect();
        Matrix { codes, scales, k }
    }
    fn code(&self, r: usize, c: usize) -> f32 {
        let x = self.codes[(r * self.k + c) / 2] >> (4 * (c % 2)) & 15;
        E2M1[(x & 7) as usize] * if x & 8 != 0 { -1.0 } else { 1.0 }
    }
    fn scale(&self, r: usize, c: usize) -> f32 {
        e4m3(self.scales[r * self.k / 16 + c / 16])
    }
}

fn words(v: &[u64]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}
fn pair(a: i32, b: i32) -> u64 {
    a as u32 as u64 | (b as u32 as u64) << 32
}

fn operand(codes: u64, scales: u64, k: usize) -> Vec<u8> {
    words(&[codes, scales, k as u64 / 2, k as u64 / 16, pair(8, 4), pair(0, 0)])
}

/// Runs expand and GEMM; returns D as f32.
fn run(g: &Gpu, ptx: &str, a: &Matrix, b: &Matrix, m: usize, n: usize, block: bool) -> Vec<f32> {
    let k = a.k;
    let module = g.module(ptx);
    let (ac, asc, bc, bsc) = (g.upload(&a.codes), g.upload(&a.scales), g.upload(&b.codes), g.upload(&b.scales));
    let groups = k / 128;
    let tiles = g.alloc(n / 128 * 2 * groups * 16384);
    let d = g.filled(m * n * 4, 0xff);
    let mut expand = operand(bc, bsc, k);
    expand.extend(words(&[tiles, pair(0, n as i32), pair(n as i32, groups as i32)]));
    let (e, f) = if block { ("gemm_expand_block", "gemm_sm90a_block") } else { ("gemm_expand_fast", "gemm_sm90a_fast") };
    let grid = [groups.div_ceil(4) as u32, n as u32 / 16, 1];
    assert_eq!(module.get(e).try_launch(grid, [256, 1, 1], [1, 1, 1], 0, &[Bytes(expand)]), 0);
    let tile_n = if block { 128 } else { 256 };
    let mut args = operand(ac, asc, k);
    args.extend(words(&[tiles, pair(m as i32, 0), pair(n as i32, groups as i32), pair(m.div_ceil(256) as i32, n.div_ceil(tile_n) as i32)]));
    let one = |f: f32| f.to_bits() as i32;
    let outer = [0, pair(0, one(1.0)), pair(one(1.0), one(1.0))];
    args.extend(words(&[0, 0]));
    args.extend(words(&outer));
    args.extend(words(&outer));
    args.extend(words(&[0, 0, d, n as u64, n as u64, pair(0, 0), pair(0, 0), 0, 0, pair(one(16384.0), 0)]));
    let shared = if block { 5 * (16384 + 16384 + 2048) } else { 1024 + 6 * 32768 } + 8 * 4096 + 1024;
    let begin = std::time::Instant::now();
    assert_eq!(module.get(f).try_launch([2, 1, 1], [384, 1, 1], [2, 1, 1], shared, &[Bytes(args)]), 0);
    println!("{f} {m}x{n}x{k}: {:.2} s", begin.elapsed().as_secs_f64());
    g.download(d, m * n)
}

#[test]
fn fast_is_within_its_bound() {
    let Some(ptx) = library_kernel("gemm_sm90a.cu", "90a") else { return };
    let g = Gpu::new("sm_90");
    let (m, n, k) = (256, 256, 1024);
    let (a, b) = (Matrix::new(m, k, 5), Matrix::new(n, k, 6));
    let d = run(&g, &ptx, &a, &b, m, n, false);
    for r in 0..m {
        for c in 0..n {
            let (mut sum, mut size) = (0f64, 0f64);
            for i in 0..k {
                let x = (a.code(r, i) * a.scale(r, i)) as f64 * (b.code(c, i) * b.scale(c, i)) as f64;
                sum += x;
                size += x.abs();
            }
            let e = (d[r * n + c] as f64 - sum).abs();
            assert!(e <= size * 2f64.powi(-18), "({r},{c}): {} against {sum}", d[r * n + c]);
        }
    }
}

#[test]
fn block_has_the_contracts_bits() {
    let Some(ptx) = library_kernel("gemm_sm90a.cu", "90a") else { return };
    let g = Gpu::new("sm_90");
    let (m, n, k) = (200, 256, 384);
    let (a, b) = (Matrix::new(m, k, 7), Matrix::new(n, k, 8));
    let d = run(&g, &ptx, &a, &b, m, n, true);
    for r in 0..m {
        for c in 0..n {
            let mut acc = 0f32;
            for block in (0..k).step_by(16) {
                let dot: f32 = (block..block + 16).map(|i| a.code(r, i) * b.code(c, i)).sum();
                acc = (a.scale(r, block) * b.scale(c, block)).mul_add(dot, acc);
            }
            assert_eq!(d[r * n + c].to_bits(), acc.to_bits(), "({r},{c}): {} against {acc}", d[r * n + c]);
        }
    }
}
