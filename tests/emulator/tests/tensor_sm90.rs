//! Hopper kernels (TMA, wgmma, TMA store), compiled by nvcc and run end to end.

mod support;
mod tensor;
use nvfp4_emulator::convert::{f32_to_bf16, fp8_from_f32, Cvt, Fp8};
use nvfp4_emulator::mma::arith::{decode_elem, dot_add, Num, Rule};
use nvfp4_emulator::mma::{Acc, Elem};
use support::Arg::*;
use tensor::*;

/// Result bits by chained instructions of depth `step`, cast to bf16.
fn expected(elem: Elem, a: &[Num], b: &[Num], step: usize) -> u16 {
    let rule = Rule::wgmma(elem);
    let acc = a.chunks(step).zip(b.chunks(step)).fold(0, |acc, (x, y)| dot_add(elem, x, elem, y, acc, Acc::F32, &rule));
    f32_to_bf16(acc, &Cvt::RN)
}

#[test]
fn bf16_and_fp8_gemms_with_a_ring_of_stages_and_tensor_stores() {
    let Some(ptx) = kernel("wgmma_sm90.cu", "90a") else {
        return;
    };
    let g = support::Gpu::new("sm_90");
    let f = g.module(&ptx);
    for (name, elem, transposed) in
        [("gemm_bf16", Elem::Bf16, false), ("gemm_bf16_regs", Elem::Bf16, true), ("gemm_e4m3", Elem::E4m3, false)]
    {
        for (m, n, k) in [(128, 64, 128), (200, 72, 640)] {
            let mut r = Random(5);
            let size = elem.container_bits() / 8;
            let mut element = || {
                let v = (r.next() as f32 / (1u64 << 31) as f32 - 0.5) * [1.0, 16.0, 0.01][r.next() as usize % 3];
                if size == 2 {
                    f32_to_bf16(v.to_bits(), &Cvt::RN) as u32
                } else {
                    fp8_from_f32(Fp8::E4m3, v.to_bits(), false) as u32
                }
            };
            let a: Vec<u32> = (0..m * k).map(|_| element()).collect();
            let b: Vec<u32> = (0..n * k).map(|_| element()).collect();
            let bytes = |v: &mut dyn Iterator<Item = u32>| v.flat_map(|x| x.to_le_bytes()[..size].to_vec()).collect::<Vec<u8>>();
            let pa = g.upload(&bytes(&mut a.iter().copied()));
            let stored_b = if transposed { bytes(&mut (0..n * k).map(|i| b[i % n * k + i / n])) } else { bytes(&mut b.iter().copied()) };
            let pb = g.upload(&stored_b);
            let pd = g.filled(m * n * 2, 0xFF);
            let (data_type, wide) = if size == 2 { (9, 64) } else { (0, 128) };
            let map_a = map_2d(data_type, pa, k, m, k * size, [wide, 128], 3);
            let map_b = if transposed {
                map_2d(data_type, pb, n, k, n * size, [64, 64], 3)
            } else {
                map_2d(data_type, pb, k, n, k * size, [wide, 64], 3)
            };
            let map_d = map_2d(9, pd, n, m, n * 2, [64, 64], 3);
            let grid = [n.div_ceil(64) as u32, m.div_ceil(128) as u32, 1];
            let args = [map_a, map_b, map_d, I32((k / wide as usize) as i32)];
            let r = f.get(name).try_launch(grid, [384, 1, 1], [1, 1, 1], 3 * (16384 + 8192), &args);
            assert_eq!(r, 0, "{:?}", nvfp4_emulator::driver::launch::last_fault());
            let d: Vec<u16> = g.download(pd, m * n);
            let nums = |v: &[u32]| v.iter().map(|&x| decode_elem(elem, x)).collect::<Vec<_>>();
            let (a, b) = (nums(&a), nums(&b));
            for row in 0..m {
                for column in 0..n {
                    let want = expected(elem, &a[row * k..][..k], &b[column * k..][..k], 32 / size);
                    assert_eq!(d[row * n + column], want, "{name} {m} x {n} x {k}: row {row} column {column}");
                }
            }
        }
    }
}
