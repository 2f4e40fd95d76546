// The matrix units of sm_100a and sm_103a as thin wrappers: tensor memory, tcgen05, tensor copies. One instruction each.
// G is 1, or 2 where a pair of CTAs works as one: then the even one issues for both.
#pragma once
#include <stdint.h>

#include "hopper.cuh"

namespace nvfp4 {

// What the driver encodes (src/cuda/tensor_map.rs); opaque here.
struct alignas(64) TensorMap {
    uint64_t words[16];
};

// One lane of the warp: the same one at every call.
__device__ __forceinline__ bool elect() {
    uint32_t chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xFFFFFFFF; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
    return chosen;
}

// ---------------------------------------------------------------------------------------------------- tensor memory

template <int G>
__device__ __forceinline__ void tensor_alloc(uint32_t where, uint32_t columns) {
    if constexpr (G == 1) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(where), "r"(columns) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    } else {
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(where), "r"(columns) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
    }
}

template <int G>
__device__ __forceinline__ void tensor_free(uint32_t base, uint32_t columns) {
    if constexpr (G == 1) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(base), "r"(columns));
    else asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(base), "r"(columns));
}

__device__ __forceinline__ void tensor_fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tensor_fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tensor_wait_loads() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

// 16 lanes x 64 columns, in the layout of eight m16n8 fragments.
__device__ __forceinline__ void tensor_load(float (&v)[32], uint32_t at) {
    asm volatile(
        "tcgen05.ld.sync.aligned.16x256b.x8.b32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7]),
          "=f"(v[8]), "=f"(v[9]), "=f"(v[10]), "=f"(v[11]), "=f"(v[12]), "=f"(v[13]), "=f"(v[14]), "=f"(v[15]),
          "=f"(v[16]), "=f"(v[17]), "=f"(v[18]), "=f"(v[19]), "=f"(v[20]), "=f"(v[21]), "=f"(v[22]), "=f"(v[23]),
          "=f"(v[24]), "=f"(v[25]), "=f"(v[26]), "=f"(v[27]), "=f"(v[28]), "=f"(v[29]), "=f"(v[30]), "=f"(v[31])
        : "r"(at)
        : "memory");
}

// ------------------------------------------------------------------------------------------------------ descriptors

constexpr uint64_t kDescriptorVersion = uint64_t(1) << 46;

// A K-major tile of packed codes, rows of 128 bytes with the 128-byte swizzle, groups of 8 rows 1024 bytes apart. 64 codes
// further along K: + 2.
__device__ __forceinline__ uint64_t codes_descriptor(uint32_t address) {
    return uint64_t((address & 0x3FFFF) >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | kDescriptorVersion | uint64_t(2) << 61;
}

// A scale tile: 32 rows of 16 bytes, groups of 8 rows 128 bytes apart. The next tile: + 32.
__device__ __forceinline__ uint64_t scales_descriptor(uint32_t address) {
    return uint64_t((address & 0x3FFFF) >> 4) | uint64_t(1) << 16 | uint64_t(128 >> 4) << 32 | kDescriptorVersion;
}

// What an MMA of M x N with E2M1 operands is told; M and N are those of the pair. E8M0 scales come two a word for each step of
// 64, so `half` says which two.
template <bool Nv>
__device__ constexpr uint32_t instruction_descriptor(uint32_t m, uint32_t n, uint32_t half) {
    return 1u << 7 | 1u << 10 | (n >> 3) << 17 | (m >> 7) << 27 | (Nv ? 0 : 1u << 23 | half * (2u << 4 | 2u << 29));
}

// ------------------------------------------------------------------------------------------------------- operations

// A 512-byte scale tile to four columns of tensor memory, the same in each quarter of its lanes (of both CTAs, each from its
// own shared memory).
template <int G>
__device__ __forceinline__ void tensor_copy_scales(uint32_t to, uint64_t from) {
    if constexpr (G == 1) asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from) : "memory");
    else asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from) : "memory");
}

// D = (add: D +) A B^T over 64 of K.
template <int G, bool Nv>
__device__ __forceinline__ void tensor_mma(uint32_t d, uint64_t a, uint64_t b, uint32_t what, uint32_t a_scales, uint32_t b_scales,
                                           uint32_t add) {
#define NVFP4_MMA(group, kind)                                                                                                       \
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %6, 0; tcgen05.mma.cta_group::" group ".kind::" kind " [%0], %1, %2, %3, [%4], [%5], p; }" \
                 ::"r"(d), "l"(a), "l"(b), "r"(what), "r"(a_scales), "r"(b_scales), "r"(add)                                         \
                 : "memory")
    if constexpr (G == 1 && Nv) NVFP4_MMA("1", "mxf4nvf4.block_scale.block16");
    else if constexpr (G == 1) NVFP4_MMA("1", "mxf4.block_scale.block32");
    else if constexpr (Nv) NVFP4_MMA("2", "mxf4nvf4.block_scale.block16");
    else NVFP4_MMA("2", "mxf4.block_scale.block32");
#undef NVFP4_MMA
}

// Arrives on the barrier (of both CTAs) when this thread's operations so far are done.
template <int G>
__device__ __forceinline__ void tensor_commit(uint32_t bar) {
    if constexpr (G == 1)
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar) : "memory");
    else
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
                     ::"r"(bar), "h"(uint16_t(3)) : "memory");
}

// -------------------------------------------------------------------------------------------------- tensor copies

// An address in the window of the cluster, moved to the even CTA of the pair.
template <int G>
__device__ __forceinline__ uint32_t of_leader(uint32_t address) {
    return G == 1 ? address : address & 0xFEFFFFFF;
}

// A box of a map of three dimensions; the leader's barrier counts its bytes.
template <int G>
__device__ __forceinline__ void copy_box(uint32_t to, const TensorMap* map, int x, int y, int z, uint32_t bar) {
    if constexpr (G == 1)
        asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                     ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar) : "memory");
    else
        asm volatile("cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                     ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(of_leader<2>(bar)) : "memory");
}

// The same, of four dimensions; with `Both` to the same place in both CTAs, all counted by the leader's barrier.
template <int G, bool Both>
__device__ __forceinline__ void copy_box(uint32_t to, const TensorMap* map, int x, int y, int z, int w, uint32_t bar) {
    if constexpr (G == 1)
        asm volatile("cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
                     ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(bar) : "memory");
    else if constexpr (!Both)
        asm volatile("cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
                     ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(of_leader<2>(bar)) : "memory");
    else
        asm volatile("cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
                     ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(of_leader<2>(bar)), "h"(uint16_t(3)) : "memory");
}

}  // namespace nvfp4
