//! The packing and the walk over a tile of D, with the tile instructions replaced by plain code wherever the processor
//! lacks them; with them where it has them. `examples/amx.rs` checks the instructions by themselves.

use super::gemm::{whole, Bf16, Int8};
use super::{bf16, int8, missing};
use crate::cpu::avx512;
use crate::cpu::gemm_tests::{check, expected, Matrix};
use crate::cpu::isa_tests::Random;
use crate::cpu::operand::Operand;
use crate::cpu::packing::Packing;
use crate::cpu::walk::{tile, Kernel};

#[test]
fn asks_for_tiles() {
    let first = missing();
    assert_eq!(first, missing());
    match first {
        Some(why) => println!("skipped: {why}; where AMX is, run examples/amx.rs"),
        None => println!("AMX is here: run examples/amx.rs"),
    }
}

/// T with its instructions in plain code.
struct Plain<T>(T);

/// What `group` does, over values of any packing.
trait Model {
    unsafe fn plain(a: *const u8, b: *const u8, acc: *mut f32, ld: usize, steps: usize);
}

impl Model for Int8 {
    unsafe fn plain(a: *const u8, b: *const u8, acc: *mut f32, ld: usize, steps: usize) {
        for (step, (i, j)) in (0..steps).flat_map(|s| (0..256).map(move |i| (s, (i / 16, i % 16))))
        {
            // SAFETY: the kernel's contract.
            unsafe {
                let a = a.add(step * int8::a_bytes(2));
                let b = b.add(step * int8::b_bytes(2));
                let dot: i32 = (0..32)
                    .map(|k| {
                        let x = *a.add(32 * i + k).cast::<i8>() as i32;
                        x * *b.add(k / 4 * 64 + 4 * j + k % 4).cast::<i8>() as i32
                    })
                    .sum();
                let (sa, sb) = (
                    *a.add(512).cast::<f32>().add(i),
                    *b.add(512).cast::<f32>().add(j),
                );
                let acc = acc.add(i * ld + j);
                *acc = (dot as f32 * sb).mul_add(sa, *acc);
            }
        }
    }
}

impl<const S: usize> Model for Bf16<S> {
    /// The published order: even and odd elements of a step each in a chain of their own, then both, then the sum.
    unsafe fn plain(a: *const u8, b: *const u8, acc: *mut f32, ld: usize, steps: usize) {
        let value = |p: *const u8| f32::from_bits((unsafe { p.cast::<u16>().read() } as u32) << 16);
        for (step, (i, j)) in (0..steps).flat_map(|s| (0..1024).map(move |i| (s, (i / 32, i % 32))))
        {
            let mut chains = [0f32; 2];
            for k in 0..32 {
                let x = a.wrapping_add(step * bf16::STEP_BYTES + 64 * i + 2 * k);
                let y = step * bf16::STEP_BYTES + 1024 * (j / 16) + 64 * (k / 2) + 4 * (j % 16);
                let y = b.wrapping_add(y + 2 * (k % 2));
                chains[k % 2] = value(x).mul_add(value(y), chains[k % 2]);
            }
            // SAFETY: the kernel's contract.
            unsafe { *acc.add(i * ld + j) += chains[0] + chains[1] };
        }
    }
}

// SAFETY: T's packing, and a group that reads and writes what T's does.
unsafe impl<T: Kernel<Right = Operand> + Model> Kernel for Plain<T> {
    type Right = Operand;
    const ROWS: usize = T::ROWS;
    const COLS: usize = T::COLS;
    const STEP: usize = T::STEP;
    const A_BYTES: usize = T::A_BYTES;
    const B_BYTES: usize = T::B_BYTES;
    const PANEL: usize = T::PANEL;

    unsafe fn pack_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: the caller's promise, here and below.
        unsafe { T::pack_a(m, row, first, steps, out) }
    }
    unsafe fn pack_b(m: &Operand, col: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: as above.
        unsafe { T::pack_b(m, col, first, steps, out) }
    }
    unsafe fn group(
        rows: usize,
        a: *const u8,
        b: *const u8,
        acc: *mut f32,
        ld: usize,
        steps: usize,
    ) {
        // SAFETY: as above; the instructions where the processor has them.
        unsafe {
            match missing() {
                None => T::group(rows, a, b, acc, ld, steps),
                Some(_) => whole::<T>(rows, acc, ld, |acc, ld| T::plain(a, b, acc, ld, steps)),
            }
        }
    }
}

/// False, and one line, where not even the packing runs.
fn packs() -> bool {
    if !avx512::available() {
        println!("skipped: the packing for tiles needs AVX-512 with VBMI and VNNI");
    }
    avx512::available()
}

#[test]
fn int8_products_equal_mode_block() {
    if !packs() {
        return;
    }
    let mut scratch = Packing::default();
    check(32, &mut |a, b, _, rows, cols, acc, ld| {
        scratch.forget();
        // SAFETY: the test's matrices are in memory, acc has room for the tile.
        unsafe { tile::<Plain<Int8>>(a, b, rows, cols, &mut scratch, acc, ld) };
    });
    assert!(scratch.bytes() < 2 << 20, "{} bytes", scratch.bytes());
}

/// The products of a random pair under mode FAST: the largest error as a share of the bound, and NaN where BLOCK has it.
fn worst<T: Kernel<Right = Operand> + Model>(
    m: usize,
    n: usize,
    k: usize,
    block: usize,
    nan: bool,
    scratch: &mut Packing,
) -> f64 {
    let mut r = Random((m * n * k) as u64);
    let a = Matrix::random(&mut r, m, k, block, nan, nan);
    let b = Matrix::random(&mut r, n, k, block, false, nan);
    let ld = n.next_multiple_of(32);
    let mut acc = vec![f32::NAN; m * ld + 1];
    scratch.forget();
    // Two tiles of columns where there are enough, to use kept rows of A.
    let cut = if n > 64 { 64 } else { n };
    for cols in [0..cut, cut..n] {
        // SAFETY: as above.
        unsafe {
            let p = acc.as_mut_ptr().add(cols.start);
            tile::<Plain<T>>(&a.operand(), &b.operand(), 0..m, cols, scratch, p, ld);
        }
    }
    assert!(acc[m * ld].is_nan(), "written past the tile");
    let mut worst = 0f64;
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let (sum, size) = a.exact(&b, i, j);
        let got = acc[i * ld + j] as f64;
        assert_eq!(got.is_nan(), expected(&a, &b, i, j).is_nan(), "({i}, {j})");
        if !got.is_nan() {
            worst = worst.max((got - sum).abs() / (k.div_ceil(16) as f64 * 2f64.powi(-22) * size));
        }
    }
    worst
}

#[test]
fn bf16_products_keep_the_bound_of_mode_fast() {
    if !packs() {
        return;
    }
    let mut scratch = Packing::default();
    for (m, n, k) in [
        (16, 32, 128),
        (17, 1, 129),
        (33, 70, 1000),
        (100, 96, 400),
        (128, 33, 4096 + 16),
        (128, 65, 8192 + 32),
    ] {
        for nan in [false, true] {
            let share = worst::<Bf16<1>>(m, n, k, 16, nan, &mut scratch);
            assert!(
                (nan || share > 0.0) && share <= 1.0,
                "[{m}, {n}, {k}] NVFP4: {share}"
            );
            let share = worst::<Bf16<2>>(m, n, k, 32, nan, &mut scratch);
            assert!(
                (nan || share > 0.0) && share <= 1.0,
                "[{m}, {n}, {k}] MXFP4: {share}"
            );
        }
    }
    assert!(scratch.bytes() < 2 << 20, "{} bytes", scratch.bytes());
}
