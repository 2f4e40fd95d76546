//! NVFP4 kernels for sm_120 (block-scaled mma.sync), compiled by nvcc and run end to end.

mod support;
mod tensor;
use support::Arg::*;
use tensor::*;

#[test]
fn warp_gemm_over_two_stages() {
    let Some(ptx) = kernel("nvfp4_sm120.cu", "120a") else {
        return;
    };
    let g = support::Gpu::new("sm_120");
    let f = g.module(&ptx);
    for (m, n, k) in [(64, 16, 64), (150, 44, 640)] {
        let p = Fp4Problem::random(m, n, k, 4);
        let d = g.filled(m * n * 4, 0xFF);
        let (a, b) = (g.upload(&p.a), g.upload(&p.b));
        let (sfa, sfb) = (g.upload(&tiled_scales(&p.sa, m, k)), g.upload(&tiled_scales(&p.sb, n, k)));
        let args = [Ptr(a), Ptr(b), Ptr(sfa), Ptr(sfb), Ptr(d), I32(m as i32), I32(n as i32), I32(k as i32)];
        let r = f.get("nvfp4_gemm_warp").try_launch([n.div_ceil(16) as u32, m.div_ceil(64) as u32, 1], [128, 1, 1], [1, 1, 1], 0, &args);
        assert_eq!(r, 0, "{:?}", nvfp4_emulator::driver::launch::last_fault());
        p.check(&g.download::<u32>(d, m * n), &format!("{m} x {n} x {k}"));
    }
}
