// D[M,N] = A[M,K] B[N,K]^T in NVFP4 by pairs of CTAs (cta_group::2): one 256 x 128 tile a pair,
// each CTA loads half of A's and of B's rows, its own SFA and the whole SFB.
#include "sm100.cuh"
constexpr int STAGES = 2, TILE_A = 128 * 128, TILE_B = 64 * 128, SCALES = 2048, STAGE = TILE_A + TILE_B + 2 * SCALES;
constexpr uint32_t ACC = 0, SFA = 128, SFB = 144, COLUMNS = 256;

DI void tma_pair(uint32_t dst, const CUtensorMap* map, int x, int y, uint32_t bar) {
  // The leader's barrier counts the bytes of both CTAs: clear the bit of the peer.
  asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst), "l"(map), "r"(x), "r"(y),
               "r"(bar & 0xFEFFFFFF)
               : "memory");
}
DI void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
DI void commit_both(uint32_t bar) {
  asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(bar), "h"((uint16_t)3) : "memory");
}

extern "C" __global__ void __launch_bounds__(192) __cluster_dims__(2, 1, 1)
    nvfp4_gemm_pair(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_sfa,
                    const __grid_constant__ CUtensorMap map_sfb, float* d, int m, int n, int kblocks) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[STAGES], empty[STAGES], done;
  __shared__ uint32_t tmem_base;
  const int warp = threadIdx.x / 32, rank = blockIdx.x & 1, row0 = blockIdx.x * 128, col0 = blockIdx.y * 128;
  if (warp == 0) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(smem(&tmem_base)), "r"(COLUMNS) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
  }
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) { mbar_init(smem(&full[s]), 1); mbar_init(smem(&empty[s]), 1); }
    mbar_init(smem(&done), 1);
    mbar_fence_init();
  }
  fence_before();
  __syncthreads();
  cluster_sync();
  fence_after();
  const uint32_t tmem = tmem_base;

  if (warp == 0 && elect()) {
    for (int kb = 0; kb < kblocks; kb++) {
      const int s = kb % STAGES;
      const uint32_t base = smem(stages) + s * STAGE, bar = smem(&full[s]);
      if (kb >= STAGES) mbar_wait(smem(&empty[s]), (kb / STAGES - 1) & 1);
      if (rank == 0) mbar_expect(bar, 2 * STAGE);
      tma_pair(base, &map_a, kb * 128, row0, bar);
      tma_pair(base + TILE_A, &map_b, kb * 128, col0 + 64 * rank, bar);
      tma_pair(base + TILE_A + TILE_B, &map_sfa, 0, (blockIdx.x * kblocks + kb) * 4, bar);
      tma_pair(base + TILE_A + TILE_B + SCALES, &map_sfb, 0, (blockIdx.y * kblocks + kb) * 4, bar);
    }
  } else if (warp == 1 && rank == 0 && elect()) {
    const uint32_t idesc = (1u << 7) | (1u << 10) | ((128u >> 3) << 17) | ((256u >> 7) << 27);
    for (int kb = 0; kb < kblocks; kb++) {
      const int s = kb % STAGES;
      const uint32_t base = smem(stages) + s * STAGE;
      mbar_wait(smem(&full[s]), (kb / STAGES) & 1);
      fence_after();
      for (int j = 0; j < 4; j++) {
        const uint32_t sf = base + TILE_A + TILE_B + 512 * j;
        asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(tmem + SFA + 4 * j), "l"(matrix_desc(sf, 16, 128, 0)) : "memory");
        asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(tmem + SFB + 4 * j), "l"(matrix_desc(sf + SCALES, 16, 128, 0)) : "memory");
      }
      for (int j = 0; j < 4; j++) {
        const uint32_t accumulate = kb | j;
        asm volatile("{.reg .pred p; setp.ne.u32 p, %6, 0; tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16 [%0], %1, %2, %3, [%4], [%5], p;}" ::"r"(tmem + ACC),
                     "l"(matrix_desc(base + 32 * j, 16, 1024, 2)), "l"(matrix_desc(base + TILE_A + 32 * j, 16, 1024, 2)), "r"(idesc), "r"(tmem + SFA + 4 * j), "r"(tmem + SFB + 4 * j), "r"(accumulate)
                     : "memory");
      }
      commit_both(smem(&empty[s]));
    }
    commit_both(smem(&done));
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
  cluster_sync();
  if (warp == 0) {
    fence_after();
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(COLUMNS));
  }
}
