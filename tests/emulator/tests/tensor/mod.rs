//! Problems, layouts and maps shared by the matrix tests.
#![allow(dead_code)]

use crate::support::{self, Arg, Gpu};
use nvfp4_emulator::driver::tensor_map::cuTensorMapEncodeTiled;
use nvfp4_emulator::mma::{hardware_gemm_step, ScaleType};
use std::ffi::c_void;
use std::path::{Path, PathBuf};

/// Where the test kernels are: `NVFP4_EMU_KERNELS` lets the mutation check name another copy.
fn kernel_dir() -> PathBuf {
    std::env::var_os("NVFP4_EMU_KERNELS").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels"), PathBuf::from)
}

/// PTX of a kernel file. Its one include is put in place, so that the text is the cache key.
pub fn kernel(file: &str, target: &str) -> Option<String> {
    let read = |f: &str| std::fs::read_to_string(kernel_dir().join(f)).unwrap();
    let source = read(file).replace("#include \"sm100.cuh\"", &read("sm100.cuh").replace("#pragma once", ""));
    support::compile(file.trim_end_matches(".cu"), &source, target)
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32
    }
}

/// Packed rows and linear scale bytes: all 16 codes, all 127 scales.
pub struct Fp4Problem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Vec<u8>,
    pub b: Vec<u8>,
    pub sa: Vec<u8>,
    pub sb: Vec<u8>,
}

impl Fp4Problem {
    pub fn random(m: usize, n: usize, k: usize, seed: u64) -> Fp4Problem {
        let mut r = Random(seed);
        let mut codes = |rows: usize| (0..rows * k / 2).map(|_| r.next() as u8).collect::<Vec<_>>();
        let (a, b) = (codes(m), codes(n));
        let mut scales = |rows: usize| (0..rows * k / 16).map(|_| (r.next() % 127) as u8).collect::<Vec<_>>();
        let (sa, sb) = (scales(m), scales(n));
        Fp4Problem { m, n, k, a, b, sa, sb }
    }

    /// Bits of D[row][column] on the hardware.
    pub fn expected(&self, row: usize, column: usize) -> u32 {
        let k = self.k;
        let (mut acc, a, b) = (0, &self.a[row * k / 2..], &self.b[column * k / 2..]);
        let (sa, sb) = (&self.sa[row * k / 16..], &self.sb[column * k / 16..]);
        for s in 0..k / 64 {
            let (bytes, scales) = (32 * s..32 * s + 32, 4 * s..4 * s + 4);
            acc = hardware_gemm_step(&a[bytes.clone()], &b[bytes], &sa[scales.clone()], &sb[scales], ScaleType::Ue4m3, acc);
        }
        acc
    }

    pub fn check(&self, d: &[u32], what: &str) {
        let mut nonzero = 0;
        for row in 0..self.m {
            for column in 0..self.n {
                let want = self.expected(row, column);
                assert_eq!(d[row * self.n + column], want, "{what}: row {row} column {column}");
                nonzero += (want << 1 != 0) as usize;
            }
        }
        assert!(nonzero * 10 > self.m * self.n * 9, "{what}: {nonzero} results are not zero");
    }
}

/// Linear scales `[rows, k/16]` to 128x4 tiles, rows padded to 128 with zeros.
pub fn tiled_scales(linear: &[u8], rows: usize, k: usize) -> Vec<u8> {
    let kb = k / 16;
    let mut out = vec![0; rows.div_ceil(128) * 128 * kb];
    for m in 0..rows {
        for b in 0..kb {
            let at = m / 128 * 128 * kb + b / 4 * 512 + m % 32 * 16 + m % 128 / 32 * 4 + b % 4;
            out[at] = linear[m * kb + b];
        }
    }
    out
}

/// A 2-D tensor map of `rows` lines of `line` elements.
#[allow(clippy::too_many_arguments)]
pub fn map_2d(data_type: u32, address: u64, line: usize, rows: usize, pitch: usize, boxes: [u32; 2], swizzle: u32) -> Arg {
    #[repr(align(64))]
    struct Map([u8; 128]);
    let mut map = Map([0; 128]);
    let (dims, strides, ones) = ([line as u64, rows as u64], [pitch as u64], [1u32, 1]);
    // SAFETY: the arrays have the lengths that rank 2 needs.
    let r = unsafe {
        cuTensorMapEncodeTiled(
            map.0.as_mut_ptr() as *mut c_void,
            data_type,
            2,
            address as *mut c_void,
            dims.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            ones.as_ptr(),
            0,
            swizzle,
            2,
            0,
        )
    };
    assert_eq!(r, 0);
    Arg::Bytes(map.0.to_vec())
}

/// Uploads packed FP4 rows; a U8 map with boxes of 128 bytes x `box_rows`, 128-byte swizzle.
pub fn packed_map(g: &Gpu, rows: &[u8], count: usize, k: usize, box_rows: u32) -> (Arg, u64) {
    let p = g.upload(rows);
    (map_2d(0, p, k / 2, count, k / 2, [128, box_rows], 3), p)
}
