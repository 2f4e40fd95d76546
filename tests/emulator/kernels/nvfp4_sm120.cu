// D[M,N] = A[M,K] B[N,K]^T in NVFP4 with warp-wide block-scaled MMAs: four warps, 64 x 16 tile,
// two stages of cp.async, rows past the end filled with zeros. K a multiple of 64; scales in 128x4 tiles.
#include <cstdint>
#define DI __device__ __forceinline__
DI uint32_t smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
// Sixteen bytes, or zeros where there is no such row.
DI void copy16(uint32_t dst, const uint8_t* base, size_t offset, bool exists) {
  const uint32_t bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(exists ? base + offset : base), "r"(bytes) : "memory");
}
DI void ldmatrix4(uint32_t (&r)[4], uint32_t addr) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}
DI void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, uint32_t sfa, uint32_t sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {0, 0}, %11, {0, 0};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb));
}
DI uint32_t scale_word(const uint8_t* sf, int row, int step, int k) {
  return *reinterpret_cast<const uint32_t*>(sf + (size_t)(row / 128) * 128 * (k / 16) + (size_t)step * 512 + row % 32 * 16 + row % 128 / 32 * 4);
}

extern "C" __global__ void __launch_bounds__(128) nvfp4_gemm_warp(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb, float* d, int m, int n, int k) {
  __shared__ __align__(16) uint8_t tile_a[2][64 * 32], tile_b[2][16 * 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row0 = blockIdx.y * 64, col0 = blockIdx.x * 16, steps = k / 64;
  float c[2][4] = {};
  auto load = [&](int step) {
    const int s = step % 2, r = threadIdx.x / 2, half = threadIdx.x % 2;
    copy16(smem(&tile_a[s][32 * r + 16 * half]), a, (size_t)(row0 + r) * (k / 2) + 32 * step + 16 * half, row0 + r < m);
    if (threadIdx.x < 32) copy16(smem(&tile_b[s][32 * r + 16 * half]), b, (size_t)(col0 + r) * (k / 2) + 32 * step + 16 * half, col0 + r < n);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  load(0);
  for (int step = 0; step < steps; step++) {
    const int s = step % 2;
    if (step + 1 < steps) {
      load(step + 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    uint32_t fa[4], fb[4];
    ldmatrix4(fa, smem(&tile_a[s][32 * (16 * warp + lane % 16) + 16 * (lane / 16)]));
    ldmatrix4(fb, smem(&tile_b[s][32 * (lane % 8 + 8 * (lane / 16)) + 16 * (lane / 8 % 2)]));
    const uint32_t wa = scale_word(sfa, row0 + 16 * warp + g + 8 * (t & 1), step, k);
    for (int j = 0; j < 2; j++) mma(c[j], fa, fb[2 * j], fb[2 * j + 1], wa, scale_word(sfb, col0 + 8 * j + g, step, k));
    __syncthreads();
  }
  for (int j = 0; j < 2; j++)
    for (int i = 0; i < 4; i++) {
      const int row = row0 + 16 * warp + g + 8 * (i / 2), col = col0 + 8 * j + 2 * t + i % 2;
      if (row < m && col < n) d[(size_t)row * n + col] = c[j][i];
    }
}
