//! Clusters: distributed shared memory, remote barriers, multicast, and what
//! goes wrong without them.

mod support;
use support::{compile, Arg::*, Gpu};

const SOURCE: &str = r#"
#include <cstdint>
typedef unsigned u;
__device__ u s32(const void* p) { return (u)__cvta_generic_to_shared(p); }
__device__ u rank() { u r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ u peer(u a, u r) { u d; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(r)); return d; }
__device__ void sync_cluster() { asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ void wait(u b, u p) { asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W;}" ::"r"(b), "r"(p) : "memory"); }

// Every block sums the cells of all blocks of its cluster.
extern "C" __global__ void __cluster_dims__(4, 1, 1) gather(const u* x, u* o, int barriers) {
  __shared__ u cell[64];
  cell[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  if (barriers & 1) sync_cluster();
  u sum = 0;
  for (u r = 0; r < 4; r++) {
    u v;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(peer(s32(cell + threadIdx.x), r)) : "memory");
    sum += v * (r + 1);
  }
  if (barriers & 2) sync_cluster();
  cell[threadIdx.x] = sum;
  __syncthreads();
  o[blockIdx.x * 64 + threadIdx.x] = cell[threadIdx.x ^ 1];
  if (barriers & 4) sync_cluster();
}
// Block 0 brings 1024 bytes to both blocks with one copy; each waits for its own barrier,
// and block 1 tells block 0 that it is done.
extern "C" __global__ void __cluster_dims__(2, 1, 1) multicast(const u* x, u* o) {
  extern __shared__ __align__(128) u d[];
  __shared__ uint64_t full, done;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; mbarrier.init.shared::cta.b64 [%1], 64; fence.mbarrier_init.release.cluster;" ::"r"(s32(&full)), "r"(s32(&done)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(s32(&full)) : "memory");
  }
  sync_cluster();
  if (rank() == 0 && threadIdx.x == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 1024, [%2], %3;" ::"r"(s32(d)), "l"(x), "r"(s32(&full)), "h"((uint16_t)3) : "memory");
  wait(s32(&full), 0);
  for (int i = threadIdx.x; i < 256; i += 64) o[blockIdx.x * 256 + i] = d[i] + rank();
  if (rank() == 1) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer(s32(&done), 0)) : "memory");
  else wait(s32(&done), 0);
  sync_cluster();
}
// Each block pushes its row into the next block's shared memory.
extern "C" __global__ void __cluster_dims__(2, 1, 1) push(u* o) {
  extern __shared__ __align__(128) u d[];  // 64 to send, 64 received
  __shared__ uint64_t full;
  d[threadIdx.x] = 1000 * rank() + threadIdx.x;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(s32(&full)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(s32(&full)) : "memory");
  }
  sync_cluster();
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(peer(s32(d + 64), rank() ^ 1)), "r"(s32(d)), "r"(peer(s32(&full), rank() ^ 1)) : "memory");
  wait(s32(&full), 0);
  o[blockIdx.x * 64 + threadIdx.x] = d[64 + threadIdx.x];
  sync_cluster();
}
"#;

#[test]
fn clusters() {
    let Some(ptx) = compile("cluster", SOURCE, "90a") else { return };
    let g = Gpu::new("sm_90");
    let m = g.module(&ptx);
    let x: Vec<u32> = (0..512u32).map(|i| i * i % 1009).collect();
    let (dx, out) = (g.upload(&x), g.filled(2048, 0));
    let gather = |barriers| m.get("gather").try_launch([8, 1, 1], [64, 1, 1], [4, 1, 1], 0, &[Ptr(dx), Ptr(out), I32(barriers)]);
    assert_eq!(gather(7), 0);
    let got: Vec<u32> = g.download(out, 512);
    for b in 0..8usize {
        for t in 0..64usize {
            let want: u32 = (0..4).map(|r| x[(b / 4 * 4 + r) * 64 + (t ^ 1)] * (r as u32 + 1)).sum();
            assert_eq!(got[b * 64 + t], want, "block {b} thread {t}");
        }
    }
    // Without the first barrier cells are read early, without the second overwritten early.
    for missing in [6, 5] {
        assert_ne!(gather(missing), 0, "barriers {missing}");
        let report = nvfp4_emulator::driver::launch::last_fault().unwrap();
        assert!(report.contains("race") || report.contains("uninitialised"), "{report}");
        nvfp4_emulator::driver::context::nvfp4_emu_clear_fault();
    }

    assert_eq!(m.get("multicast").try_launch([2, 1, 1], [64, 1, 1], [2, 1, 1], 1024, &[Ptr(dx), Ptr(out)]), 0);
    assert_eq!(g.download::<u32>(out, 512), (0..512).map(|i| x[i % 256] + (i / 256) as u32).collect::<Vec<_>>());

    assert_eq!(m.get("push").try_launch([4, 1, 1], [64, 1, 1], [2, 1, 1], 512, &[Ptr(out)]), 0);
    assert_eq!(g.download::<u32>(out, 256), (0..256u32).map(|i| 1000 * (1 - i / 64 % 2) + i % 64).collect::<Vec<_>>());

    // The kernel says how large its cluster is; another size is refused.
    assert_eq!(m.get("push").try_launch([4, 1, 1], [64, 1, 1], [1, 1, 1], 512, &[Ptr(out)]), 1);
}
