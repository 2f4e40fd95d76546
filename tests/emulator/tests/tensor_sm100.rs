//! NVFP4 kernels for sm_100 (tcgen05), compiled by nvcc and run end to end: every result
//! equals the chained hardware steps, bit for bit.

mod support;
mod tensor;
use support::Arg::*;
use tensor::*;

#[test]
fn one_cta_gemm_over_a_ring_of_stages() {
    let Some(ptx) = kernel("nvfp4_sm100.cu", "100a") else { return };
    let g = support::Gpu::new("sm_100");
    let f = g.module(&ptx);
    for (m, n, k) in [(128, 128, 256), (200, 136, 1280), (72, 264, 768)] {
        let p = Fp4Problem::random(m, n, k, 1);
        let d = g.filled(m * n * 4, 0xFF);
        let (map_a, a) = packed_map(&g, &p.a, m, k, 128);
        let (map_b, b) = packed_map(&g, &p.b, n, k, 128);
        let (sfa, sfb) = (g.upload(&tiled_scales(&p.sa, m, k)), g.upload(&tiled_scales(&p.sb, n, k)));
        let grid = [n.div_ceil(128) as u32, m.div_ceil(128) as u32, 1];
        let args = [map_a, map_b, Ptr(sfa), Ptr(sfb), Ptr(d), I32(m as i32), I32(n as i32), I32(k as i32 / 256)];
        let r = f.get("nvfp4_gemm").try_launch(grid, [192, 1, 1], [1, 1, 1], 2 * (2 * 16384 + 4096) + 1024, &args);
        assert_eq!(r, 0, "{:?}", nvfp4_emulator::driver::launch::last_fault());
        p.check(&g.download::<u32>(d, m * n), &format!("{m} x {n} x {k}"));
        let _ = (a, b);
    }
}
