// GEMM on the FP4 units of sm_120 and sm_121: block-scaled mma.sync, operands as they lie in memory.
//
// A CTA of eight warps computes 128 x 128 of D, a warp 32 x 64. Codes and scales come 128 k at a time through a ring of
// four stages by cp.async; what it can't read (odd ends, unaligned rows) comes by plain loads into the same places. The
// accumulator is the chain of K = 64 steps in ascending k that mode HARDWARE describes (docs/format.md, section 10).
//
// Fragments, scale registers and their selectors: PTX ISA, "mma with block scaling", .m16n8k64.
#include "gemm_mma.cuh"
#include "gemm_portable.cuh"

namespace nvfp4 {

constexpr int kScaledM = 128, kScaledN = 128, kScaledK = 128, kScaledThreads = 256, kScaledStages = 4;

struct ScaledStage {
    uint4 a[kScaledM * 4];  // rows of 64 bytes; the four 16-byte parts change places by the row, against bank conflicts
    uint4 b[kScaledN * 4];
    uint32_t a_scales[2][kScaledM];  // four block scales a word: NVFP4 one word each 64 k, MXFP4 one for all 128
    uint32_t b_scales[2][kScaledN];
};

union ScaledShared {
    ScaledStage ring[kScaledStages];
    WarpStage stage[kScaledThreads / 32];
};

__device__ __forceinline__ int part_at(int row, int part) { return row * 4 + (part ^ (row >> 1 & 3)); }

template <int Bytes>
__device__ __forceinline__ void copy_async(void* to, const void* from) {
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    if constexpr (Bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}

// One operand's 128 rows of a tile, as this thread fetches them.
template <bool Nv>
struct Feed {
    static constexpr int kBlock = Nv ? 16 : 32;
    const uint8_t *codes, *scales;  // of the batch item
    const uint8_t *my_codes, *my_scales;  // this thread's first 16 codes bytes and first scale word
    int row0, rows, scale_step;
    bool by_copies;  // all rows are there, and aligned

    __device__ __forceinline__ Feed(const AnyOperand& x, const uint8_t* codes_, const uint8_t* scales_, int row0_, int rows_)
        : codes(codes_), scales(scales_), row0(row0_), rows(rows_) {
        my_codes = codes + (row0 + int(threadIdx.x / 4)) * x.stride + threadIdx.x % 4 * 16;
        const int row = row0 + threadIdx.x % kScaledM, block = threadIdx.x / kScaledM * 4;
        my_scales = scales + (x.swizzled ? swizzled_offset(row, block, x.scale_stride) : row * x.scale_stride + block);
        scale_step = (x.swizzled ? 128 : 1) * (kScaledK / kBlock);
        by_copies = x.vector && row0 + kScaledM <= rows &&
                    ((reinterpret_cast<uintptr_t>(scales) | (x.swizzled ? 0 : x.scale_stride)) & 3) == 0;
    }

    // 128 k from step * 128 on; zeros where there are no codes.
    __device__ __forceinline__ void fetch(const AnyOperand& x, int step, int k, uint4* tile, uint32_t (*words)[kScaledM]) const {
        if (by_copies && (step + 1) * kScaledK <= k) {
#pragma unroll
            for (int i = 0; i < 2; ++i)
                copy_async<16>(&tile[part_at(threadIdx.x / 4 + 64 * i, threadIdx.x % 4)], my_codes + 64 * i * x.stride + step * (kScaledK / 2));
            if (Nv || threadIdx.x < kScaledM)
                copy_async<4>(&words[threadIdx.x / kScaledM][threadIdx.x % kScaledM], my_scales + (long long)step * scale_step);
        } else {
            fetch_slowly(x, step * kScaledK, k, tile, words);
        }
    }

    __device__ __noinline__ void fetch_slowly(const AnyOperand& x, int k0, int k, uint4* tile, uint32_t (*words)[kScaledM]) const {
        for (int i = 0; i < 2; ++i) {
            const int r = threadIdx.x / 4 + 64 * i, part = threadIdx.x % 4, row = row0 + r, first = k0 + 32 * part;
            tile[part_at(r, part)] = row < rows && first < k ? load_codes32(x, codes, row, first, k) : make_uint4(0, 0, 0, 0);
        }
        if (!Nv && threadIdx.x >= kScaledM) return;
        const int row = row0 + threadIdx.x % kScaledM, block = k0 / kBlock + 4 * (threadIdx.x / kScaledM);
        const int blocks = (k + kBlock - 1) / kBlock;
        uint32_t word = 0;
        for (int i = 0; i < 4; ++i)
            if (row < rows && block + i < blocks) word |= scale_byte(x, scales, row, block + i) << (8 * i);
        words[threadIdx.x / kScaledM][threadIdx.x % kScaledM] = word;
    }
};

// D (16 x 8) += A (16 x 64) B^T (8 x 64), all four block scales of a row in a register. Lane 4 g + t supplies the scales
// of A's row g + 8 (t & 1) if t / 2 is `ThreadA`, and those of B's row g if t is `ThreadB`.
template <bool Nv, int Byte, int ThreadA, int ThreadB>
__device__ __forceinline__ void mma_scaled(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1, uint32_t sa, uint32_t sb) {
    if constexpr (Nv)
        asm volatile(
            "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {%12, %13}, %11, {%12, %14};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sa), "r"(sb), "n"(Byte), "n"(ThreadA), "n"(ThreadB));
    else
        asm volatile(
            "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {%12, %13}, %11, {%12, %14};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sa), "r"(sb), "n"(Byte), "n"(ThreadA), "n"(ThreadB));
}

// 64 of a stage's 128 k: Half is which.
template <bool Nv, int Half>
__device__ __forceinline__ void multiply_scaled(const ScaledStage& s, float (&acc)[2][32], int m0, int n0, int lane) {
    uint32_t a[2][4], b[4][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) load_tiles(a[i], &s.a[part_at(m0 + 16 * i + (lane & 15), 2 * Half + (lane >> 4))]);
#pragma unroll
    for (int j = 0; j < 4; ++j)
        load_tiles(b[j], &s.b[part_at(n0 + 16 * j + (lane >> 4) * 8 + (lane & 7), 2 * Half + (lane >> 3 & 1))]);
    constexpr int kWord = Nv ? Half : 0, kByte = Nv ? 0 : 2 * Half;
    const int g = lane >> 2, t = lane & 3;
    const uint32_t sa = s.a_scales[kWord][m0 + 8 * t + g];
    const uint32_t sb[2] = {s.b_scales[kWord][n0 + 8 * t + g], s.b_scales[kWord][n0 + 32 + 8 * t + g]};
    // Tile j of 8 columns: its scales lie in lanes with t = j % 4 of register j / 4.
#define NVFP4_COLUMN(j)                                                                                             \
    mma_scaled<Nv, kByte, 0, j % 4>(&acc[0][4 * j], a[0], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1], sa, sb[j / 4]); \
    mma_scaled<Nv, kByte, 1, j % 4>(&acc[1][4 * j], a[1], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1], sa, sb[j / 4]);
    NVFP4_COLUMN(0) NVFP4_COLUMN(1) NVFP4_COLUMN(2) NVFP4_COLUMN(3)
    NVFP4_COLUMN(4) NVFP4_COLUMN(5) NVFP4_COLUMN(6) NVFP4_COLUMN(7)
#undef NVFP4_COLUMN
}

template <bool Nv>
__device__ __forceinline__ void scaled_product(const PortableArgs& args) {
    extern __shared__ __align__(16) unsigned char bytes[];
    ScaledShared& shared = *reinterpret_cast<ScaledShared*>(bytes);
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const int m0 = warp / 2 * 32, n0 = warp % 2 * 64;
    const int steps = (args.k + kScaledK - 1) / kScaledK;
    const long long per_item = (long long)args.m_tiles * args.n_tiles, tiles = per_item * args.batch;
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int item = int(t / per_item), at = int(t % per_item);
        const int row0 = at % args.m_tiles * kScaledM, col0 = at / args.m_tiles * kScaledN;
        Epilogue e;
        const BatchItem p(args, item, e);
        const Feed<Nv> a(args.a, p.a_codes, p.a_scales, row0, args.m), b(args.b, p.b_codes, p.b_scales, col0, args.n);
        // Every step commits a group, an empty one past the end, so that the count of groups in flight stays the same.
        auto load = [&](int step) {
            if (step < steps) {
                ScaledStage& s = shared.ring[step % kScaledStages];
                a.fetch(args.a, step, args.k, s.a, s.a_scales);
                b.fetch(args.b, step, args.k, s.b, s.b_scales);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
        };
        float acc[2][32] = {};
        for (int i = 0; i < kScaledStages - 1; ++i) load(i);
        for (int step = 0; step < steps; ++step) {
            asm volatile("cp.async.wait_group %0;" ::"n"(kScaledStages - 2) : "memory");
            __syncthreads();  // this stage is full for all, and the one before it read by all
            load(step + kScaledStages - 1);
            const ScaledStage& s = shared.ring[step % kScaledStages];
            multiply_scaled<Nv, 0>(s, acc, m0, n0, lane);
            multiply_scaled<Nv, 1>(s, acc, m0, n0, lane);
        }
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; ++i)
            store_rows<64>(e, shared.stage[warp], acc[i], row0 + m0 + 16 * i, col0 + n0, args.m, args.n);
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(kScaledThreads, 1) gemm_sm120_nvfp4(const __grid_constant__ PortableArgs args) {
    scaled_product<true>(args);
}
extern "C" __global__ void __launch_bounds__(kScaledThreads, 1) gemm_sm120_mxfp4(const __grid_constant__ PortableArgs args) {
    scaled_product<false>(args);
}

static_assert(sizeof(ScaledShared) == 73728, "src/cuda/gemm/kernels.rs");

}  // namespace nvfp4
