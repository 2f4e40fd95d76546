// D[M,N] = A[M,K] B[N,K]^T in NVFP4 on one CTA's tensor core: TMA producer, MMA issuer and
// four epilogue warps over a ring of two stages. One 128 x 128 tile a block; K a multiple of 256.
// SFA, SFB: 128x4 scale tiles, padded with zeros to whole tiles.
#include "sm100.cuh"
constexpr int STAGES = 2, TILE = 128 * 128, SCALES = 2048, STAGE = 2 * TILE + 2 * SCALES;
constexpr uint32_t ACC = 0, SFA = 128, SFB = 144, COLUMNS = 256;

extern "C" __global__ void __launch_bounds__(192) nvfp4_gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                                                             const uint8_t* sfa, const uint8_t* sfb, float* d, int m, int n, int kblocks) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[STAGES], empty[STAGES], done;
  __shared__ uint32_t tmem_base;
  const int warp = threadIdx.x / 32, row0 = blockIdx.y * 128, col0 = blockIdx.x * 128;
  if (warp == 0) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(smem(&tmem_base)), "r"(COLUMNS) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) { mbar_init(smem(&full[s]), 1); mbar_init(smem(&empty[s]), 1); }
    mbar_init(smem(&done), 1);
    mbar_fence_init();
  }
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = tmem_base;

  if (warp == 0 && elect()) {
    for (int kb = 0; kb < kblocks; kb++) {
      const int s = kb % STAGES;
      const uint32_t base = smem(stages) + s * STAGE, bar = smem(&full[s]);
      if (kb >= STAGES) mbar_wait(smem(&empty[s]), (kb / STAGES - 1) & 1);
      mbar_expect(bar, STAGE);
      tma_load(base, &map_a, kb * 128, row0, bar);
      tma_load(base + TILE, &map_b, kb * 128, col0, bar);
      bulk_load(base + 2 * TILE, sfa + ((size_t)blockIdx.y * kblocks + kb) * SCALES, SCALES, bar);
      bulk_load(base + 2 * TILE + SCALES, sfb + ((size_t)blockIdx.x * kblocks + kb) * SCALES, SCALES, bar);
    }
  } else if (warp == 1 && elect()) {
    const uint32_t idesc = (1u << 7) | (1u << 10) | ((128u >> 3) << 17) | ((128u >> 7) << 27);
    for (int kb = 0; kb < kblocks; kb++) {
      const int s = kb % STAGES;
      const uint32_t base = smem(stages) + s * STAGE;
      mbar_wait(smem(&full[s]), (kb / STAGES) & 1);
      fence_after();
      for (int j = 0; j < 4; j++) {
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(tmem + SFA + 4 * j), "l"(matrix_desc(base + 2 * TILE + 512 * j, 16, 128, 0)) : "memory");
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(tmem + SFB + 4 * j), "l"(matrix_desc(base + 2 * TILE + SCALES + 512 * j, 16, 128, 0)) : "memory");
      }
      for (int j = 0; j < 4; j++) {
        const uint32_t accumulate = kb | j;
        asm volatile("{.reg .pred p; setp.ne.u32 p, %6, 0; tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%0], %1, %2, %3, [%4], [%5], p;}" ::"r"(tmem + ACC),
                     "l"(matrix_desc(base + 32 * j, 16, 1024, 2)), "l"(matrix_desc(base + TILE + 32 * j, 16, 1024, 2)), "r"(idesc), "r"(tmem + SFA + 4 * j), "r"(tmem + SFB + 4 * j), "r"(accumulate)
                     : "memory");
      }
      asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(smem(&empty[s])) : "memory");
    }
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(smem(&done)) : "memory");
  } else if (warp >= 2) {
    mbar_wait(smem(&done), 0);
    fence_after();
    const int quad = warp % 4, row = row0 + 32 * quad + threadIdx.x % 32;
    for (int c = 0; c < 128; c += 8) {
      uint32_t r[8];
      load8(r, tmem + ACC + ((uint32_t)(32 * quad) << 16) + c);
      wait_ld();
      for (int i = 0; i < 8; i++)
        if (row < m && col0 + c + i < n) d[(size_t)row * n + col0 + c + i] = __uint_as_float(r[i]);
    }
    fence_before();
  }
  __syncthreads();
  if (warp == 0) {
    fence_after();
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(COLUMNS));
  }
}
