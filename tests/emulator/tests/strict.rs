//! What the strict machine must stop, and what it must let pass.

mod support;
use nvfp4_emulator::driver::types::*;
use support::{compile, Arg::*, Gpu, Module};

const SOURCE: &str = r#"
#include <cstdint>
typedef unsigned u;
__device__ u s32(const void* p) { return (u)__cvta_generic_to_shared(p); }
extern "C" __global__ void oob(float* p, int n) { p[threadIdx.x + n] = 1; }
extern "C" __global__ void oob_read(const float* p, float* o, int n) { o[threadIdx.x] = p[threadIdx.x + n]; }
extern "C" __global__ void misaligned(char* p, int n) { *(uint4*)(p + n * threadIdx.x) = uint4{1, 2, 3, 4}; }
extern "C" __global__ void uninit(const float* p, float* o) { o[threadIdx.x] = p[threadIdx.x] + 1; }
extern "C" __global__ void uninit_shared(float* o, int skip) {
  __shared__ float s[64];
  if (threadIdx.x != skip) s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  o[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void race(float* o, int sync) {
  __shared__ float s[128];
  s[threadIdx.x] = threadIdx.x;
  if (sync) __syncthreads();
  o[threadIdx.x] = s[threadIdx.x ^ 32];
}
extern "C" __global__ void race_war(float* o, int sync) {
  __shared__ float s[128];
  float v = 0;
  for (int k = 0; k < 3; k++) {
    s[threadIdx.x] = threadIdx.x + k;
    __syncthreads();
    v += s[threadIdx.x ^ 64];
    if (sync) __syncthreads();
  }
  o[threadIdx.x] = v;
}
extern "C" __global__ void divergent_barrier(int* o) {
  if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
  o[threadIdx.x] = 1;
}
extern "C" __global__ void bad_count(int* o) {
  if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
  else asm volatile("bar.sync 1, 96;" ::: "memory");
  o[threadIdx.x] = 1;
}
extern "C" __global__ void mbar_hang(int* o) {
  __shared__ uint64_t b;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(s32(&b)) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(s32(&b)) : "memory");
  asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra W;}" ::"r"(s32(&b)) : "memory");
  o[threadIdx.x] = 1;
}
extern "C" __global__ void mbar_uninit(int* o) {
  __shared__ uint64_t b;
  asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(s32(&b)) : "memory");
  o[threadIdx.x] = 1;
}
extern "C" __global__ void mbar_over(int* o) {
  __shared__ uint64_t b;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(s32(&b)) : "memory");
    asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0], 3;}" ::"r"(s32(&b)) : "memory");
  }
  o[threadIdx.x] = 1;
}
extern "C" __global__ void bulk_store(uint32_t* o, int fence) {
  extern __shared__ __align__(128) uint32_t d[];
  d[threadIdx.x] = threadIdx.x * 3;
  if (fence) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" ::"l"(o), "r"(s32(d)) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
extern "C" __global__ void bulk_reuse(uint32_t* o, int wait) {
  extern __shared__ __align__(128) uint32_t d[];
  for (int k = 0; k < 2; k++) {
    d[threadIdx.x] = threadIdx.x + k;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" ::"l"(o + 128 * k), "r"(s32(d)) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      if (wait) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
extern "C" __global__ void bulk_load(const uint32_t* x, uint32_t* o, int wait) {
  extern __shared__ __align__(128) uint32_t d[];
  __shared__ uint64_t b;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(s32(&b)) : "memory");
    asm volatile("{.reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], 512;}" ::"r"(s32(&b)) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(s32(d)), "l"(x), "r"(s32(&b)) : "memory");
  }
  __syncthreads();
  if (wait) asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra W;}" ::"r"(s32(&b)) : "memory");
  o[threadIdx.x] = d[threadIdx.x];
}
extern "C" __global__ void async_wait(const uint4* x, uint4* o, int wait) {
  __shared__ uint4 d[64];
  d[threadIdx.x] = uint4{7, 7, 7, 7};
  __syncthreads();
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.commit_group;" ::"r"(s32(d + threadIdx.x)), "l"(x + threadIdx.x) : "memory");
  if (wait) asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  o[threadIdx.x] = d[threadIdx.x ^ 33];
}
extern "C" __global__ void shuffle_dead(int* o) {
  if (threadIdx.x < 16) o[threadIdx.x] = __shfl_sync(0xffff, threadIdx.x, 20);
}
extern "C" __global__ void trapped() { asm volatile("trap;"); }
extern "C" __global__ void asserts(int n) { if (threadIdx.x == n) __trap(); }
extern "C" __global__ void unsupported(float* o) { asm volatile("tex.1d.v4.f32.s32 {%0, _, _, _}, [%1, {%2}];" : "=f"(o[0]) : "l"((uint64_t)0), "r"(0)); }
"#;

fn module(g: &Gpu) -> Option<Module> {
    let source = SOURCE.lines().filter(|l| !l.contains("void unsupported")).collect::<Vec<_>>().join("\n");
    Some(g.module(&compile("strict", &source, "90")?))
}

/// The kernel must stop, with all words in the report; then the context is well again.
fn stops(m: &Module, name: &str, threads: u32, shared: u32, args: &[support::Arg], words: &[&str]) {
    let report = m.get(name).must_stop(1, threads, shared, args);
    for w in words.iter().chain(&[name, "source /", ".cu:"]) {
        assert!(report.contains(w), "'{w}' is not in:\n{report}");
    }
    nvfp4_emulator::driver::context::nvfp4_emu_clear_fault();
}

#[test]
fn the_strict_machine() {
    let g = Gpu::new("sm_90");
    let Some(m) = module(&g) else { return };
    let p = g.filled(256, 0);
    let out = g.filled(4096, 0);

    // Bounds and alignment, to the byte.
    m.get("oob").launch(1, 32, 0, &[Ptr(p), I32(32)]);
    stops(&m, "oob", 32, 0, &[Ptr(p), I32(33)], &["out of bounds", "thread (31,0,0)", "offset 256"]);
    stops(&m, "oob_read", 32, 0, &[Ptr(p), Ptr(out), I32(-1)], &["out of bounds", "thread (0,0,0)"]);
    stops(&m, "oob_read", 32, 0, &[Ptr(0), Ptr(out), I32(0)], &["out of bounds"]);
    m.get("misaligned").launch(1, 8, 0, &[Ptr(p), I32(16)]);
    stops(&m, "misaligned", 8, 0, &[Ptr(p), I32(8)], &["misaligned", "thread (1,0,0)"]);

    // Memory that nobody wrote.
    let fresh = g.alloc(128);
    stops(&m, "uninit", 32, 0, &[Ptr(fresh), Ptr(out)], &["nobody has written", "offset 0"]);
    assert_eq!(nvfp4_emulator::driver::memory::cuMemsetD8_v2(fresh, 0, 127), SUCCESS);
    stops(&m, "uninit", 32, 0, &[Ptr(fresh), Ptr(out)], &["nobody has written", "thread (31,0,0)", "offset 127"]);
    m.get("uninit_shared").launch(1, 64, 0, &[Ptr(out), I32(-1)]);
    stops(&m, "uninit_shared", 64, 0, &[Ptr(out), I32(5)], &["uninitialised shared memory", "thread (4,0,0)"]);

    // Races.
    for k in ["race", "race_war"] {
        m.get(k).launch(1, 128, 0, &[Ptr(out), I32(1)]);
        let report = m.get(k).must_stop(1, 128, 0, &[Ptr(out), I32(0)]);
        assert!(report.contains("race") || report.contains("uninitialised"), "{report}");
        nvfp4_emulator::driver::context::nvfp4_emu_clear_fault();
    }

    // Barriers.
    stops(&m, "divergent_barrier", 64, 0, &[Ptr(out)], &["deadlock", "block barrier 1 (32 of 64 threads arrived)"]);
    stops(&m, "bad_count", 64, 0, &[Ptr(out)], &["barrier 1", "96", "64"]);
    stops(&m, "mbar_hang", 64, 0, &[Ptr(out)], &["deadlock", "mbarrier phase"]);
    stops(&m, "mbar_uninit", 32, 0, &[Ptr(out)], &["no mbarrier was initialised"]);
    stops(&m, "mbar_over", 32, 0, &[Ptr(out)], &["3 arrivals", "2 of 2"]);

    // Proxies and asynchronous copies.
    m.get("bulk_store").launch(1, 128, 512, &[Ptr(out), I32(1)]);
    assert_eq!(g.download::<u32>(out, 128), (0..128).map(|i| i * 3).collect::<Vec<u32>>());
    stops(&m, "bulk_store", 128, 512, &[Ptr(out), I32(0)], &["fence.proxy.async"]);
    m.get("bulk_reuse").launch(1, 128, 512, &[Ptr(out), I32(1)]);
    assert_eq!(g.download::<u32>(out, 256), (0..256).map(|i| if i < 128 { i } else { i - 127 }).collect::<Vec<u32>>());
    stops(&m, "bulk_reuse", 128, 512, &[Ptr(out), I32(0)], &["race"]);
    let x = g.upload(&(0..128u32).map(|i| i ^ 77).collect::<Vec<_>>());
    m.get("bulk_load").launch(1, 128, 512, &[Ptr(x), Ptr(out), I32(1)]);
    assert_eq!(g.download::<u32>(out, 128), (0..128u32).map(|i| i ^ 77).collect::<Vec<_>>());
    let report = m.get("bulk_load").must_stop(1, 128, 512, &[Ptr(x), Ptr(out), I32(0)]);
    assert!(report.contains("race") || report.contains("uninitialised"), "{report}");
    nvfp4_emulator::driver::context::nvfp4_emu_clear_fault();
    let y = g.filled(1024, 3);
    m.get("async_wait").launch(1, 64, 0, &[Ptr(y), Ptr(out), I32(1)]);
    stops(&m, "async_wait", 64, 0, &[Ptr(y), Ptr(out), I32(0)], &["race", "not ordered after the read"]);

    // The rest.
    stops(&m, "shuffle_dead", 32, 0, &[Ptr(out)], &["lane 20"]);
    stops(&m, "trapped", 32, 0, &[], &["trap"]);
    stops(&m, "asserts", 32, 0, &[I32(7)], &["trap", "thread (7,0,0)"]);
    let r = m.get("trapped").try_launch([1, 1, 1], [32, 1, 1], [1, 1, 1], 0, &[]);
    assert_eq!(r, ERROR_LAUNCH_FAILED);
    let mut q = 0;
    assert_eq!(nvfp4_emulator::driver::memory::cuMemAlloc_v2(&mut q, 16), ERROR_LAUNCH_FAILED, "the context is broken by then");
    nvfp4_emulator::driver::context::nvfp4_emu_clear_fault();
}

#[test]
fn unsupported_instructions_stop_the_kernel() {
    let g = Gpu::new("sm_90");
    let ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<3>;\nmov.u32 %r1, 5;\nvadd.s32.s32.s32 %r2, %r1, %r1;\nret;\n}\n";
    let report = g.module(ptx).get("k").must_stop(1, 32, 0, &[]);
    assert!(report.contains("unsupported instruction: vadd.s32.s32.s32") && report.contains("PTX line 8"), "{report}");
}

#[test]
fn launches_are_checked() {
    let g = Gpu::new("sm_90");
    let Some(m) = module(&g) else { return };
    let k = m.get("trapped");
    let l = |grid, block, cluster, shared| k.try_launch(grid, block, cluster, shared, &[]);
    assert_eq!(l([1, 1, 1], [1025, 1, 1], [1, 1, 1], 0), ERROR_INVALID_VALUE);
    assert_eq!(l([0, 1, 1], [32, 1, 1], [1, 1, 1], 0), ERROR_INVALID_VALUE);
    assert_eq!(l([3, 1, 1], [32, 1, 1], [2, 1, 1], 0), ERROR_INVALID_VALUE);
    assert_eq!(nvfp4_emulator::driver::function::cuFuncSetAttribute(k.0, 8, 300_000), ERROR_INVALID_VALUE);
}
