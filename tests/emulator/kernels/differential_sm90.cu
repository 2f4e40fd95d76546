// What the differential suite (examples/differential) runs on a chip and on the emulator beside single instructions:
// matrix fragments and products, asynchronous copies, barriers, tensor copies, clusters. Every kernel takes the same
// arguments and leaves bytes that any legal schedule gives.
#include <cstdint>

typedef uint32_t u32;
struct alignas(64) Map { char bytes[128]; };
struct Args { int x, y, bytes, kind; };

#define KERNEL(name) extern "C" __global__ void name(const u32* in, u32* out, Args p, const __grid_constant__ Map from, const __grid_constant__ Map to)

__device__ __forceinline__ u32 s32(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void barrier_init(u32 b, u32 n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1; fence.mbarrier_init.release.cluster;" ::"r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void expect(u32 b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(u32 b, u32 parity) {
  asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W;}" ::"r"(b), "r"(parity) : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ u32 peer(u32 a, u32 r) { u32 d; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(r)); return d; }

// Fragments: one warp, 8x8 tiles of 16 bits.
KERNEL(fragments) {
  __shared__ __align__(16) u32 tile[128];
  const u32 t = threadIdx.x;
  for (int i = 0; i < 4; i++) tile[t + 32 * i] = in[t + 32 * i];
  __syncwarp();
  const u32 row = s32(tile) + 16 * t;
  u32 a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(row) : "memory");
  out[t] = a;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(row) : "memory");
  out[32 + t] = a, out[64 + t] = b;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row) : "memory");
  out[96 + t] = a, out[128 + t] = b, out[160 + t] = c, out[192 + t] = d;
  __syncwarp();
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%4], {%0, %1, %2, %3};" ::"r"(d), "r"(c), "r"(a), "r"(b), "r"(row) : "memory");
  __syncwarp();
  for (int i = 0; i < 4; i++) out[224 + t + 32 * i] = tile[t + 32 * i];
  __syncwarp();
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%2], {%0, %1};" ::"r"(a), "r"(d), "r"(row) : "memory");
  __syncwarp();
  for (int i = 0; i < 4; i++) out[352 + t + 32 * i] = tile[t + 32 * i];
}

// Products of one warp: a block for each set of operands, all bits of which are the input's.
#define MMA(name, op, an, bn, cn, type)                                                                              \
  KERNEL(name) {                                                                                                     \
    const u32 t = threadIdx.x;                                                                                       \
    const u32* x = in + blockIdx.x * 32 * (an + bn + cn) + t;                                                        \
    u32 a[4] = {}, b[2] = {}, c[4] = {};                                                                             \
    for (int i = 0; i < an; i++) a[i] = x[32 * i];                                                                   \
    for (int i = 0; i < bn; i++) b[i] = x[32 * (an + i)];                                                            \
    for (int i = 0; i < cn; i++) c[i] = x[32 * (an + bn + i)];                                                       \
    op;                                                                                                              \
    for (int i = 0; i < cn; i++) out[blockIdx.x * 32 * cn + 32 * i + t] = c[i];                                      \
  }
#define C4 "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
#define A4 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define MMA42(text) asm volatile(text " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : C4 : A4, "r"(b[0]), "r"(b[1]))
#define MMA21(text) asm volatile(text " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" : C4 : "r"(a[0]), "r"(a[1]), "r"(b[0]))
#define MMA42H(text) asm volatile(text " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};" : "+r"(c[0]), "+r"(c[1]) : A4, "r"(b[0]), "r"(b[1]))
MMA(mma_bf16_k16, MMA42("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), 4, 2, 4, f32)
MMA(mma_bf16_k8, MMA21("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"), 2, 1, 4, f32)
MMA(mma_f16_k16, MMA42("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), 4, 2, 4, f32)
MMA(mma_f16_f16, MMA42H("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"), 4, 2, 2, f16)
MMA(mma_tf32_k8, MMA42("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"), 4, 2, 4, f32)
MMA(mma_s8_k32, MMA42("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"), 4, 2, 4, s32)
MMA(mma_u8_s8_k32, MMA42("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32"), 4, 2, 4, s32)
MMA(mma_e4m3_k32, MMA42("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"), 4, 2, 4, f32)

// wgmma with operands of 64 x K and 8 x K without swizzle: cores of 8 rows x 16 bytes, next along K 128 bytes away, next
// along rows 256. Four steps in a chain.
__device__ __forceinline__ uint64_t core_desc(u32 at) {
  return (uint64_t)(at >> 4 & 0x3FFF) | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
}
#define WGMMA(name, text)                                                                                            \
  KERNEL(name) {                                                                                                     \
    __shared__ __align__(128) u32 a[4][512], b[4][64];                                                               \
    const u32 t = threadIdx.x;                                                                                       \
    const u32* x = in + blockIdx.x * (2048 + 256 + 512);                                                             \
    for (int i = t; i < 2048; i += 128) a[0][i] = x[i];                                                              \
    for (int i = t; i < 256; i += 128) b[0][i] = x[2048 + i];                                                        \
    u32 c[4];                                                                                                        \
    for (int i = 0; i < 4; i++) c[i] = x[2304 + 128 * i + t];                                                        \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                                     \
    __syncthreads();                                                                                                 \
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                          \
    for (int k = 0; k < 4; k++)                                                                                      \
      asm volatile(text : C4 : "l"(core_desc(s32(a[k]))), "l"(core_desc(s32(b[k]))) : "memory");                     \
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");                  \
    asm volatile("" : C4);                                                                                           \
    for (int i = 0; i < 4; i++) out[blockIdx.x * 512 + 128 * i + t] = c[i];                                          \
  }
#define WGMMA_F(types) "{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned." types " {%0,%1,%2,%3}, %4, %5, p, 1, 1"
WGMMA(wgmma_bf16, WGMMA_F("m64n8k16.f32.bf16.bf16") ", 0, 0;}")
WGMMA(wgmma_f16, WGMMA_F("m64n8k16.f32.f16.f16") ", 0, 0;}")
WGMMA(wgmma_e4m3, WGMMA_F("m64n8k32.f32.e4m3.e4m3") ";}")
WGMMA(wgmma_e5m2_e4m3, WGMMA_F("m64n8k32.f32.e5m2.e4m3") ";}")

// cp.async of every size, with and without missing bytes, in two groups.
KERNEL(copies_async) {
  __shared__ __align__(16) u32 d[640];
  const u32 t = threadIdx.x;
  for (int i = t; i < 640; i += 32) d[i] = 0x01010101u * i;
  __syncwarp();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(s32(d + t)), "l"(in + t) : "memory");
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(s32(d + 64 + 2 * t)), "l"(in + 64 + 2 * t), "r"(t % 9) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(s32(d + 128 + 4 * t)), "l"(in + 128 + 4 * t) : "memory");
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(s32(d + 256 + 4 * t)), "l"(in + 256 + 4 * t), "r"(t % 17) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncwarp();
  out[t] = d[t ^ 1], out[32 + t] = d[64 + t], out[64 + t] = d[96 + t];
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncwarp();
  for (int i = t; i < 512; i += 32) out[128 + i] = d[128 + i];
}

// Bulk copies in and out, and one that adds.
KERNEL(copies_bulk) {
  __shared__ __align__(128) u32 d[1024];
  __shared__ __align__(8) uint64_t full;
  const u32 t = threadIdx.x;
  if (t == 0) {
    barrier_init(s32(&full), 1);
    expect(s32(&full), 4096);
    for (int i = 0; i < 4; i++)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(s32(d + 256 * (3 - i))),
                   "l"(in + 256 * i), "r"(s32(&full)) : "memory");
  }
  __syncthreads();
  wait(s32(&full), 0);
  for (int i = t; i < 1024; i += 128) out[i] = d[i] ^ i;
  __syncthreads();
  for (int i = t; i < 1024; i += 128) d[i] = d[i] * 3 + i, out[1024 + i] = i * i;
  __threadfence();
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 2048;" ::"l"(out + 1024), "r"(s32(d)) : "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%0], [%1], 2048;" ::"l"(out + 1536), "r"(s32(d + 512)) : "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 4080;" ::"l"(out + 2048), "r"(s32(d)) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// Phases of a barrier that all threads share, and what is pending in each.
KERNEL(barriers) {
  __shared__ __align__(8) uint64_t b, mine[128];
  const u32 t = threadIdx.x;
  if (t == 0) barrier_init(s32(&b), 128);
  barrier_init(s32(mine + t), 1 + t);
  __syncthreads();
  u32 sum = 0;
  for (u32 round = 0; round < 5; round++) {
    asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(s32(&b)) : "memory");
    wait(s32(&b), round & 1);
    u32 done;
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(s32(&b)), "r"(round + 1 & 1) : "memory");
    sum = sum * 2 + done;
    __syncthreads();
  }
  out[t] = sum;
  // Its own barrier turns when it has as many arrivals as it wants.
  u32 turned = 0;
  for (u32 i = 0; i <= t; i++) {
    u32 done;
    asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(s32(mine + t)) : "memory");
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(s32(mine + t)) : "memory");
    turned += done << (i % 16);
  }
  out[128 + t] = turned;
}

// One tensor copy of the box at (x, y) into shared memory, as it lies there.
KERNEL(tensor_load) {
  extern __shared__ __align__(1024) u32 d[];
  __shared__ __align__(8) uint64_t full;
  const u32 t = threadIdx.x;
  if (t == 0) {
    barrier_init(s32(&full), 1);
    expect(s32(&full), p.bytes);
    if (p.kind == 3)
      asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(s32(d)),
                   "l"(&from), "r"(p.x), "r"(p.y), "r"(1), "r"(s32(&full)) : "memory");
    else
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(s32(d)),
                   "l"(&from), "r"(p.x), "r"(p.y), "r"(s32(&full)) : "memory");
  }
  __syncthreads();
  wait(s32(&full), 0);
  for (int i = t; i < p.bytes / 4; i += blockDim.x) out[i] = d[i];
}

// The way back: stored, or added.
KERNEL(tensor_store) {
  extern __shared__ __align__(1024) u32 d[];
  const u32 t = threadIdx.x;
  for (int i = t; i < p.bytes / 4; i += blockDim.x) d[i] = in[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    if (p.kind == 1)
      asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(p.x), "r"(p.y), "r"(s32(d)) : "memory");
    else
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(p.x), "r"(p.y), "r"(s32(d)) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// Both blocks of a pair get both halves of a box, each half brought by one of them.
KERNEL(tensor_multicast) {
  extern __shared__ __align__(1024) u32 d[];
  __shared__ __align__(8) uint64_t full;
  const u32 t = threadIdx.x;
  if (t == 0) {
    barrier_init(s32(&full), 1);
    expect(s32(&full), 2 * p.bytes);
  }
  cluster_sync();
  if (t == 0)
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(
                     s32(d + p.bytes / 4 * rank())), "l"(&from), "r"(p.x), "r"(p.y + 8 * (int)rank()), "r"(s32(&full)), "h"((uint16_t)3) : "memory");
  wait(s32(&full), 0);
  for (int i = t; i < p.bytes / 2; i += blockDim.x) out[blockIdx.x * (p.bytes / 2) + i] = d[i] + rank();
  cluster_sync();
}

// Four blocks read each other's shared memory, push a row to the next one and tell it so.
KERNEL(cluster_memory) {
  __shared__ __align__(128) u32 cell[64], row[64], got[64];
  __shared__ __align__(8) uint64_t full, told;
  const u32 t = threadIdx.x, r = rank();
  cell[t] = in[blockIdx.x * 64 + t];
  row[t] = cell[t] * 5 + r;
  if (t == 0) {
    barrier_init(s32(&full), 1);
    barrier_init(s32(&told), 64);
    expect(s32(&full), 256);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  cluster_sync();
  u32 sum = 0;
  for (u32 q = 0; q < 4; q++) {
    u32 v;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(peer(s32(cell + (t ^ q)), q)) : "memory");
    sum = sum * 7 + v;
  }
  if (t == 0)
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(peer(s32(got), (r + 1) % 4)), "r"(s32(row)),
                 "r"(peer(s32(&full), (r + 1) % 4)) : "memory");
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer(s32(&told), (r + 3) % 4)) : "memory");
  wait(s32(&full), 0);
  asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; @!p bra W;}" ::"r"(s32(&told)) : "memory");
  out[blockIdx.x * 128 + t] = sum;
  out[blockIdx.x * 128 + 64 + t] = got[63 - t];
  cluster_sync();
  asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(peer(s32(cell + t), r ^ 1)), "r"(t) : "memory");
  cluster_sync();
  out[1024 + blockIdx.x * 64 + t] = cell[t];
}
