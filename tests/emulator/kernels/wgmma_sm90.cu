// D[M,N] = A[M,K] B[N,K]^T on Hopper: one producer warpgroup, two consumer warpgroups, 128 x 64
// tile, ring of three TMA stages, result stored by TMA. Three variants: bf16 with both operands
// in shared memory; bf16 with A in registers and B stored K x N; E4M3.
#include "sm100.cuh"
#include <cuda_bf16.h>
constexpr int STAGES = 3, TILE_A = 128 * 128, TILE_B = 64 * 128, STAGE = TILE_A + TILE_B;
enum Kind { BF16, BF16_REGS, E4M3 };

// wgmma descriptor: address, leading and stride offsets in bytes, 128-byte swizzle.
DI uint64_t desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return (uint64_t)((addr & 0x3FFFF) >> 4) | ((uint64_t)(lbo >> 4) << 16) | ((uint64_t)(sbo >> 4) << 32) | (1ull << 62);
}
#define ACC32                                                                                                                                                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define OUT32(d)                                                                                                                                                                                     \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),           \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),          \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
DI void wgmma_bf16(float (&d)[32], uint64_t a, uint64_t b, int scale) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACC32 ", %32, %33, p, 1, 1, 0, 0;}" : OUT32(d) : "l"(a), "l"(b), "r"(scale));
}
DI void wgmma_bf16_regs(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int scale) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACC32 ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
               : OUT32(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale));
}
DI void wgmma_e4m3(float (&d)[32], uint64_t a, uint64_t b, int scale) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 " ACC32 ", %32, %33, p, 1, 1;}" : OUT32(d) : "l"(a), "l"(b), "r"(scale));
}

template <Kind KIND>
DI void gemm(const CUtensorMap* map_a, const CUtensorMap* map_b, const CUtensorMap* map_d, int kblocks) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[STAGES], empty[STAGES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4, row0 = blockIdx.y * 128, col0 = blockIdx.x * 64;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) { mbar_init(smem(&full[s]), 1); mbar_init(smem(&empty[s]), 8); }
    mbar_fence_init();
  }
  __syncthreads();
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (warp == 0 && elect()) {
      for (int kb = 0; kb < kblocks; kb++) {
        const int s = kb % STAGES;
        const uint32_t base = smem(stages) + s * STAGE, bar = smem(&full[s]);
        if (kb >= STAGES) mbar_wait(smem(&empty[s]), (kb / STAGES - 1) & 1);
        mbar_expect(bar, STAGE);
        tma_load(base, map_a, kb * (KIND == E4M3 ? 128 : 64), row0, bar);
        if (KIND == BF16_REGS) tma_load(base + TILE_A, map_b, col0, kb * 64, bar);
        else tma_load(base + TILE_A, map_b, kb * (KIND == E4M3 ? 128 : 64), col0, bar);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float d[32];
  const int wg = group - 1;
  for (int kb = 0; kb < kblocks; kb++) {
    const int s = kb % STAGES;
    const uint32_t a = smem(stages) + s * STAGE + wg * 64 * 128, b = smem(stages) + s * STAGE + TILE_A;
    mbar_wait(smem(&full[s]), (kb / STAGES) & 1);
    uint32_t fragments[4][4];
    if (KIND == BF16_REGS) {
      for (int j = 0; j < 4; j++) {
        const int row = 16 * (warp % 4) + lane % 16, chunk = 2 * j + lane / 16;
        const uint32_t at = a + row * 128 + ((chunk ^ (row & 7)) * 16);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fragments[j][0]), "=r"(fragments[j][1]), "=r"(fragments[j][2]), "=r"(fragments[j][3])
                     : "r"(at)
                     : "memory");
      }
    }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int j = 0; j < 4; j++) {
      const int scale = kb | j;
      if (KIND == BF16) wgmma_bf16(d, desc(a + 32 * j, 16, 1024), desc(b + 32 * j, 16, 1024), scale);
      if (KIND == BF16_REGS) wgmma_bf16_regs(d, fragments[j], desc(b + 2048 * j, 16, 1024), scale);
      if (KIND == E4M3) wgmma_e4m3(d, desc(a + 32 * j, 16, 1024), desc(b + 32 * j, 16, 1024), scale);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (lane == 0) mbar_arrive(smem(&empty[s]));
  }
  // Stage 0 of the ring is free once both warpgroups are through; the result goes out from there
  // (each warpgroup's through the other's rows, so that the barrier matters).
  asm volatile("bar.sync 1, 256;" ::: "memory");
  const uint32_t out = smem(stages) + (1 - wg) * 64 * 128;
  for (int i = 0; i < 32; i += 2) {
    const int row = 16 * (warp % 4) + lane / 4 + 8 * (i / 2 % 2), col = 8 * (i / 4) + 2 * (lane % 4);
    const __nv_bfloat162 pair = __floats2bfloat162_rn(d[i], d[i + 1]);
    const uint32_t at = out + row * 128 + (((col / 8) ^ (row & 7)) * 16) + col % 8 * 2;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(*reinterpret_cast<const uint32_t*>(&pair)) : "memory");
  }
  fence_async();
  asm volatile("bar.sync %0, 128;" ::"r"(2 + wg) : "memory");
  if (threadIdx.x % 128 == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map_d), "r"(col0), "r"(row0 + 64 * wg), "r"(out) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
#define KERNEL(name, kind)                                                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(384) name(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap d, int kblocks) { \
    gemm<kind>(&a, &b, &d, kblocks);                                                                                                                                       \
  }
KERNEL(gemm_bf16, BF16)
KERNEL(gemm_bf16_regs, BF16_REGS)
KERNEL(gemm_e4m3, E4M3)
