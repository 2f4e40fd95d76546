// GEMM with few rows of A (M up to 16): bound by the bytes of B, which are read once, packed, and dequantized in registers.
//
// D^T = B A^T by mma.sync m16n8k16: 16 rows of B are the mma's rows, A's rows its columns. A cluster of four CTAs shares 128
// rows of B, each CTA a quarter of K; their sums meet in shared memory in a fixed order, so a result never depends on
// timing. Within 128 k the contraction index is permuted alike on both sides: thread q of a quad holds blocks 2 q and 2 q + 1.
#include "gemm_epilogue.cuh"
#include "gemm_mma.cuh"
#include "gemm_operand.cuh"
#include "hopper.cuh"

namespace nvfp4 {

[[maybe_unused]] constexpr int kSlices = 4;       // CTAs along K
constexpr int kDecodeWarps = 8;  // of 16 rows of B each
constexpr int kDecodeRows = 16 * kDecodeWarps;
[[maybe_unused]] constexpr int kDecodeThreads = 32 * kDecodeWarps;
constexpr int kChunkGroups = 16;  // groups of 128 k of A in shared memory at a time
[[maybe_unused]] constexpr int kAhead = 4;         // groups of B on their way

struct DecodeArgs {
    Operand a;  // BF16: codes are values, no scales
    Operand b;
    int m, n, k_groups, pad;
    Epilogue epilogue;
};

// Fragments of A: per group, column tile and half, two vectors a lane.
template <int Tiles>
struct DecodeShared {
    uint4 a[kChunkGroups][Tiles][2][2][32];
    float sums[8 * Tiles][kDecodeRows];
};

struct Packed {  // two rows of B, one group
    uint4 codes[2];
    uint2 scales[2];
};

__device__ __forceinline__ uint4 interleave(uint4 w) {  // eight bf16 values into the order 0 4 1 5 2 6 3 7
    return make_uint4(__byte_perm(w.x, w.z, 0x5410), __byte_perm(w.x, w.z, 0x7632), __byte_perm(w.y, w.w, 0x5410),
                      __byte_perm(w.y, w.w, 0x7632));
}

__device__ __forceinline__ uint32_t half_factor(uint2 scales, int q, int h) {
    return scale_factor((q & 2 ? scales.y : scales.x) >> (16 * (q & 1) + 8 * h) & 0xFF);
}

template <int Tiles, bool Bf16>
__device__ __forceinline__ void fill_a(const DecodeArgs& args, DecodeShared<Tiles>& shared, int first, int groups) {
    for (int u = threadIdx.x; u < groups * Tiles * 32; u += kDecodeThreads) {
        const int lane = u & 31, tile = (u >> 5) % Tiles, g = (u >> 5) / Tiles, q = lane & 3, row = 8 * tile + (lane >> 2);
        uint4 v[2][2] = {};
        if (row < args.m) {
            if (Bf16) {
                const uint4* p = reinterpret_cast<const uint4*>(args.a.codes + row * args.a.stride + (first + g) * 256) + 4 * q;
#pragma unroll
                for (int i = 0; i < 4; ++i) v[i / 2][i % 2] = interleave(__ldg(p + i));
            } else {
                const Row source(args.a, row, args.k_groups);
                const uint4 w = __ldg(reinterpret_cast<const uint4*>(source.codes + (first + g) * 64) + q);
                const uint2 scales = source.load_scales(args.a, first + g);
                const uint32_t f0 = half_factor(scales, q, 0), f1 = half_factor(scales, q, 1);
                v[0][0] = expand8(w.x, f0), v[0][1] = expand8(w.y, f0);
                v[1][0] = expand8(w.z, f1), v[1][1] = expand8(w.w, f1);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) shared.a[g][tile][i / 2][i % 2][lane] = v[i / 2][i % 2];
    }
}

__device__ __forceinline__ Packed load_b(const DecodeArgs& args, const Row (&rows)[2], int g, int q) {
    Packed p;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        p.codes[i] = __ldg(reinterpret_cast<const uint4*>(rows[i].codes + (long long)g * 64) + q);
        p.scales[i] = rows[i].load_scales(args.b, g);
    }
    return p;
}

template <int Tiles>
__device__ __forceinline__ void multiply_group(const Packed& p, const uint4 (&a)[Tiles][2][2][32], int lane, float (&acc)[Tiles][2][4]) {
    const int q = lane & 3;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        uint4 low[2], high[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t factor = half_factor(p.scales[i], q, h);
            low[i] = expand8(h ? p.codes[i].z : p.codes[i].x, factor);
            high[i] = expand8(h ? p.codes[i].w : p.codes[i].y, factor);
        }
        const uint32_t w[4][4] = {{low[0].x, low[1].x, low[0].y, low[1].y}, {low[0].z, low[1].z, low[0].w, low[1].w},
                                  {high[0].x, high[1].x, high[0].y, high[1].y}, {high[0].z, high[1].z, high[0].w, high[1].w}};
#pragma unroll
        for (int t = 0; t < Tiles; ++t) {
            const uint4 x = a[t][h][0][lane], y = a[t][h][1][lane];
            mma_m16n8k16(acc[t][h], w[0], x.x, x.y);
            mma_m16n8k16(acc[t][h], w[1], x.z, x.w);
            mma_m16n8k16(acc[t][h], w[2], y.x, y.y);
            mma_m16n8k16(acc[t][h], w[3], y.z, y.w);
        }
    }
}

__device__ __forceinline__ float load_remote(const float* p, uint32_t rank) {
    float v;
    asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %1, %2;\nld.shared::cluster.f32 %0, [remote]; }"
                 : "=f"(v)
                 : "r"(shared_address(p)), "r"(rank)
                 : "memory");
    return v;
}

template <int Tiles, bool Bf16>
__device__ __forceinline__ void decode(const DecodeArgs& args) {
    extern __shared__ uint8_t raw[];
    DecodeShared<Tiles>& shared = *reinterpret_cast<DecodeShared<Tiles>*>(raw);
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, q = lane & 3, r = lane >> 2;
    const int rank = int(cluster_rank()), n0 = int(blockIdx.x) / kSlices * kDecodeRows;
    const int per_slice = (args.k_groups + kSlices - 1) / kSlices, first = min(rank * per_slice, args.k_groups);
    const int groups = min(per_slice, args.k_groups - first);
    // Rows past the end repeat the last one and are never stored.
    const Row rows[2] = {Row(args.b, min(n0 + 16 * warp + r, args.n - 1), args.k_groups),
                         Row(args.b, min(n0 + 16 * warp + r + 8, args.n - 1), args.k_groups)};
    Packed ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
        if (i < groups) ahead[i] = load_b(args, rows, first + i, q);
    float acc[Tiles][2][4] = {};
    for (int chunk = 0; chunk < groups; chunk += kChunkGroups) {
        const int here = min(kChunkGroups, groups - chunk);
        __syncthreads();
        fill_a<Tiles, Bf16>(args, shared, first + chunk, here);
        __syncthreads();
        for (int g = 0; g < here; g += kAhead) {
#pragma unroll
            for (int i = 0; i < kAhead; ++i) {
                if (g + i >= here) break;
                const Packed now = ahead[i];
                if (chunk + g + i + kAhead < groups) ahead[i] = load_b(args, rows, first + chunk + g + i + kAhead, q);
                multiply_group<Tiles>(now, shared.a[g + i], lane, acc);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < Tiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            shared.sums[8 * t + 2 * q + i % 2][16 * warp + r + 8 * (i / 2)] = __fadd_rn(acc[t][0][i], acc[t][1][i]);
    cluster_sync();
    const Epilogue& e = args.epilogue;
    const float beta = beta_of(e);
    constexpr int kShare = kDecodeRows / kSlices;
    for (int u = threadIdx.x; u < kShare * 8 * Tiles; u += kDecodeThreads) {
        const int at = rank * kShare + u % kShare, row = u / kShare, col = n0 + at;
        float sum = 0.0f;
#pragma unroll
        for (int s = 0; s < kSlices; ++s) sum = __fadd_rn(sum, load_remote(&shared.sums[row][at], s));
        if (row < args.m && col < args.n)
            store_value(e.d, e.d_dtype, row * e.d_stride + col,
                        finish(e, sum, row_alpha(e, row, outer_amax(e.b, 0)), beta, row, col));
    }
    cluster_sync();  // no CTA leaves while another may still read its sums
}

#if __CUDA_ARCH__ >= 900
#define DECODE_KERNEL(NAME, TILES, BF16) \
    extern "C" __global__ void __cluster_dims__(kSlices, 1, 1) __launch_bounds__(kDecodeThreads, 2) \
        NAME(const __grid_constant__ DecodeArgs args) { decode<TILES, BF16>(args); }
#else  // no clusters: src/cuda/gemm/decode.rs does not launch it
#define DECODE_KERNEL(NAME, TILES, BF16) \
    extern "C" __global__ void NAME(const __grid_constant__ DecodeArgs args) {}
#endif
DECODE_KERNEL(gemm_decode_m8, 1, false)
DECODE_KERNEL(gemm_decode_m16, 2, false)
DECODE_KERNEL(gemm_decode_bf16_m8, 1, true)
DECODE_KERNEL(gemm_decode_bf16_m16, 2, true)

static_assert(sizeof(DecodeArgs) == 264 && sizeof(DecodeShared<1>) == 36864 && sizeof(DecodeShared<2>) == 73728, "src/cuda/gemm");

}  // namespace nvfp4
