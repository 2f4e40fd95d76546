// NVFP4 x NVFP4 GEMM for Hopper: exact products, no FP4 units needed.
//
// Both operands become bf16 values code * block scale, which are exact (6 significant bits). B is dequantized once a call by
// gemm_expand_* into the caller's workspace, a stripe at a time, in the very tiles and swizzle that wgmma reads, so that
// one bulk copy brings a tile to shared memory and both CTAs of a cluster share it. A stays packed in memory and is
// dequantized where it is used. A dequantized value carries a factor 2^-7 (what bf16 has room for), two of them 2^-14; the
// epilogue multiplies it back, exactly.
//
// FAST adds in the tensor core. A goes from memory to registers and from there to wgmma: each thread loads whole blocks, so
// the contraction index is permuted alike on both sides within 128 k; a sum over k does not mind.
//
// BLOCK gives the contract's bits (docs/format.md, section 10): one wgmma is one block of 16, B carries its block scale
// (the dot product stays exact) and A does not; one FMA with A's block scale rounds once a block, in ascending k. A
// warpgroup of its own dequantizes A into shared memory, for registers are full.
#include "gemm_epilogue.cuh"
#include "gemm_operand.cuh"
#include "hopper.cuh"

namespace nvfp4 {

constexpr int kWarpgroup = 128;
constexpr int kConsumers = 2;         // warpgroups of 64 rows each
constexpr int kTileM = 64 * kConsumers;
constexpr int kThreads = kWarpgroup * (kConsumers + 1);
constexpr int kATileBytes = kTileM * 128;  // 64 k of bf16 are 128 bytes, one row of the swizzle
constexpr int kTileBytes = 128 * 128;      // 128 rows of B
constexpr uint16_t kBothCtas = 3;

struct GemmArgs {
    Operand a;
    const uint8_t* b_tiles;  // expanded B of this stripe: [n / 128][2 * k_groups][16 KiB]
    int m, n0, n;            // rows; first column of the stripe in D, and columns in it
    int k_groups;            // ceil(k / 128), at least 1
    int m_pairs, n_tiles;    // pairs of row tiles; column tiles
    Epilogue epilogue;
};

struct ExpandArgs {
    Operand b;
    uint8_t* tiles;
    int n0, n, n_pad;  // rows of B in this stripe: n0 .. n0 + n, rounded up to the tile
    int k_groups;
};

// Offset of 16-byte chunk c (8 values) of row r in a tile with the 128-byte swizzle.
__device__ __forceinline__ uint32_t swizzled_chunk(int r, int c) {
    return (r >> 3) * 1024 + (r & 7) * 128 + ((c ^ (r & 7)) << 4);
}

// Sixteen threads write one row of a group, eight values (16 bytes) each; a block covers 16 rows and kExpandGroups groups.
// Chunk c of stage h holds, for BLOCK, codes word c & 1 of block 4 h + c / 2; for FAST the pair c & 3 of word c / 4 of blocks
// h, h + 2, h + 4, h + 6, which is the order in which a quad of A's threads holds its codes.
constexpr int kExpandGroups = 4;

template <bool Block>
__device__ __forceinline__ void expand_b(const ExpandArgs& args) {
    const int c = threadIdx.x & 7, h = (threadIdx.x >> 3) & 1, 
              across = (args.k_groups + kExpandGroups - 1) / kExpandGroups, row = int(blockIdx.x) / across * 16 + (threadIdx.x >> 4);
    const bool real = row < args.n;
    const Row source(args.b, args.n0 + (real ? row : 0), args.k_groups);
    uint8_t* out = args.tiles + (row >> 7) * (2LL * args.k_groups) * kTileBytes + swizzled_chunk(row & 127, c);
#pragma unroll
    for (int i = 0; i < kExpandGroups; ++i) {
        const int group = int(blockIdx.x) % across * kExpandGroups + i;
        if (group >= args.k_groups) return;
        const uint32_t* words = reinterpret_cast<const uint32_t*>(source.codes + group * 64);
        const uint2 scales = source.load_scales(args.b, group);
        uint4 value;
        if (Block) {
            value = expand8(__ldg(words + 8 * h + c), scale_factor((h ? scales.y : scales.x) >> (8 * (c >> 1)) & 0xFF));
        } else {
            uint32_t v[4];
#pragma unroll
            for (int q = 0; q < 4; ++q)
                v[q] = expand_pair(__ldg(words + (2 * q + h) * 2 + (c >> 2)) >> (4 * (c & 3)),
                                   scale_factor((q & 2 ? scales.y : scales.x) >> (16 * (q & 1) + 8 * h) & 0xFF));
            value = make_uint4(v[0], v[1], v[2], v[3]);
        }
        *reinterpret_cast<uint4*>(out + (2LL * group + h) * kTileBytes) = real ? value : make_uint4(0, 0, 0, 0);
    }
}

extern "C" __global__ void __launch_bounds__(256) gemm_expand_fast(const ExpandArgs args) { expand_b<false>(args); }
extern "C" __global__ void __launch_bounds__(256) gemm_expand_block(const ExpandArgs args) { expand_b<true>(args); }

// Copies an operand whose rows are not aligned, or whose columns are not a multiple of 128, into rows of k_groups * 64
// bytes of codes and k_groups * 8 linear scales, zeros past the end.
struct AlignArgs {
    const uint8_t* codes;
    const uint8_t* scales;
    long long stride, scale_stride;
    uint8_t* out_codes;
    uint8_t* out_scales;
    int rows, k, k_groups, swizzled;
};

extern "C" __global__ void __launch_bounds__(256) gemm_align(const AlignArgs args) {
    const int blocks = (args.k + 15) / 16, all = args.k_groups * 8;
    const int across = (all + 255) / 256;  // the grid is a multiple of it
    const int block = int(blockIdx.x) % across * 256 + threadIdx.x;  // one block of 16 a thread
    if (block >= all) return;
    for (int row = int(blockIdx.x) / across; row < args.rows; row += int(gridDim.x) / across) {
        uint64_t v = 0;
        uint8_t scale = 0;
        if (block < blocks) {
            const uint8_t* p = args.codes + row * args.stride + block * 8;
            const int left = min(16, args.k - block * 16);
            for (int i = 0; 2 * i < left; ++i) v |= uint64_t(p[i]) << (8 * i);
            if (left < 16) v &= (uint64_t(1) << (4 * left)) - 1;
            const int col_tiles = (blocks + 3) / 4;
            scale = args.swizzled ? args.scales[((long long)(row >> 7) * col_tiles + (block >> 2)) * 512 + (row & 31) * 16 +
                                                ((row & 127) >> 5) * 4 + (block & 3)]
                                  : args.scales[row * args.scale_stride + block];
        }
        reinterpret_cast<uint64_t*>(args.out_codes)[(long long)row * all + block] = v;
        args.out_scales[(long long)row * all + block] = scale;
    }
}

// ------------------------------------------------------------------------------------------------- the pipeline

template <int N, int Stages, bool Block>
struct alignas(1024) Shared {
    static constexpr int kN = N, kStages = Stages;
    static constexpr bool kBlock = Block;
    uint8_t a[Block ? Stages : 1][Block ? kATileBytes : 1024];
    uint8_t b[Stages][N * 128];
    float4 a_scales[Block ? Stages : 1][Block ? kTileM : 1];  // BLOCK: A's four block scales of a stage, a row each
    WarpStage stage[kConsumers * kWarpgroup / 32];
    uint64_t full[Stages], empty[Stages];
};

using FastShared = Shared<256, 6, false>;
using BlockShared = Shared<128, 5, true>;

struct Ring {  // position in the ring of stages
    int index = 0;
    uint32_t phase = 0;
    __device__ __forceinline__ void advance(int stages) {
        if (++index == stages) { index = 0; phase ^= 1; }
    }
};

template <class S>
__device__ __forceinline__ void start_pipeline(S& shared) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::kStages; ++i) {
            mbarrier_init(shared_address(&shared.full[i]), S::kBlock ? 1 + kWarpgroup / 32 : 1);
            mbarrier_init(shared_address(&shared.empty[i]), 2 * kConsumers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
}

// This CTA's half of a tile of B, to both CTAs.
template <class S>
__device__ __forceinline__ void bring_b(S& shared, const Ring& at, const uint8_t* from, uint32_t rank) {
    constexpr uint32_t half = S::kN * 64;
    const uint32_t full = shared_address(&shared.full[at.index]);
    mbarrier_expect(full, 2 * half);
    bulk_copy_multicast(shared_address(&shared.b[at.index][rank * half]), from, half, full, kBothCtas);
}

// Where this CTA's half of column tile `tile` starts in the expanded stripe; stages are kTileBytes apart.
template <class S>
__device__ __forceinline__ const uint8_t* half_tile(const GemmArgs& args, int tile, uint32_t rank) {
    const int row = tile * S::kN + int(rank) * (S::kN / 2);
    return args.b_tiles + (row >> 7) * (2LL * args.k_groups) * kTileBytes + (row & 127) * 128;
}

// Fills the ring for every tile of this CTA.
__device__ __forceinline__ void produce(const GemmArgs& args, FastShared& shared, uint32_t rank) {
    if (threadIdx.x % kWarpgroup != 0) return;
    Ring at;
    for (int t = blockIdx.x / 2; t < args.m_pairs * args.n_tiles; t += gridDim.x / 2) {
        const uint8_t* b = half_tile<FastShared>(args, t % args.n_tiles, rank);
        for (int s = 0; s < 2 * args.k_groups; ++s, b += kTileBytes, at.advance(FastShared::kStages)) {
            mbarrier_wait(shared_address(&shared.empty[at.index]), at.phase ^ 1);
            bring_b(shared, at, b, rank);
        }
    }
}

// The same, and dequantizes A, one row a thread; the codes of the next group are on their way meanwhile.
__device__ __forceinline__ void produce(const GemmArgs& args, BlockShared& shared, uint32_t rank) {
    Ring at;
    const int tiles = args.m_pairs * args.n_tiles, r = threadIdx.x & (kWarpgroup - 1);
    for (int t = blockIdx.x / 2; t < tiles; t += gridDim.x / 2) {
        const uint8_t* b = half_tile<BlockShared>(args, t % args.n_tiles, rank);
        // Rows past the end repeat the last one and are never stored.
        const Row row(args.a, min((t / args.n_tiles * 2 + int(rank)) * kTileM + r, args.m - 1), args.k_groups);
        uint4 codes[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) codes[i] = __ldg(reinterpret_cast<const uint4*>(row.codes) + i);
        uint2 scales = row.load_scales(args.a, 0);
        for (int g = 0; g < args.k_groups; ++g) {
            const int next = min(g + 1, args.k_groups - 1);
            uint2 next_scales;
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t bytes = h ? scales.y : scales.x;
                uint4 chunk[8];
#pragma unroll
                for (int i = 0; i < 4; ++i) {  // one block each
                    const uint4& c = codes[2 * h + i / 2];
                    chunk[2 * i] = expand8(i & 1 ? c.z : c.x, kUnitFactor);
                    chunk[2 * i + 1] = expand8(i & 1 ? c.w : c.y, kUnitFactor);
                }
                mbarrier_wait(shared_address(&shared.empty[at.index]), at.phase ^ 1);
                if (r == 0) bring_b(shared, at, b, rank);
                b += kTileBytes;
#pragma unroll
                for (int i = 0; i < 8; ++i) *reinterpret_cast<uint4*>(shared.a[at.index] + swizzled_chunk(r, i)) = chunk[i];
                shared.a_scales[at.index][r] = make_float4(scale_value(bytes & 0xFF), scale_value(bytes >> 8 & 0xFF),
                                                           scale_value(bytes >> 16 & 0xFF), scale_value(bytes >> 24));
                fence_async_proxy();
                __syncwarp();
                if ((threadIdx.x & 31) == 0) mbarrier_arrive(shared_address(&shared.full[at.index]));
                at.advance(BlockShared::kStages);
                // Loads start right behind the fence, since the next one waits for them too.
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    codes[2 * h + i] = __ldg(reinterpret_cast<const uint4*>(row.codes + next * 64) + 2 * h + i);
                if (h == 0) next_scales = row.load_scales(args.a, next);
            }
            scales = next_scales;
        }
    }
}

// A consumer warpgroup is done with a stage: tells both CTAs, whose copies fill it.
__device__ __forceinline__ void release(uint64_t& empty) {
    if ((threadIdx.x & (kWarpgroup - 1)) < 2) mbarrier_arrive_cluster(shared_address(&empty), threadIdx.x & 1);
}

// ----------------------------------------------------------------------------------------------------- consumers

// What a thread holds of one row for one group of 128 k (FAST): the codes of blocks 2 q and 2 q + 1, the row's 8 scales.
struct RowCodes {
    uint4 codes;
    uint2 scales;
};

__device__ __forceinline__ RowCodes load_codes(const GemmArgs& args, const Row& row, int group, int q) {
    const int g = min(group, args.k_groups - 1);
    return {__ldg(reinterpret_cast<const uint4*>(row.codes + g * 64) + q), row.load_scales(args.a, g)};
}

// Fragments of the four steps of stage h: step s takes pairs 2 s mod 4 and the next of word s / 2 of both rows' block 2 q + h.
__device__ __forceinline__ void expand_a(const RowCodes (&rows)[2], int h, int q, uint32_t (&a)[4][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t factor = scale_factor((q & 2 ? rows[i].scales.y : rows[i].scales.x) >> (16 * (q & 1) + 8 * h) & 0xFF);
        const uint4 low = expand8(h ? rows[i].codes.z : rows[i].codes.x, factor);
        const uint4 high = expand8(h ? rows[i].codes.w : rows[i].codes.y, factor);
        a[0][i] = low.x, a[0][2 + i] = low.y, a[1][i] = low.z, a[1][2 + i] = low.w;
        a[2][i] = high.x, a[2][2 + i] = high.y, a[3][i] = high.z, a[3][2 + i] = high.w;
    }
}

__device__ __forceinline__ void consume(const GemmArgs& args, FastShared& shared, Ring& at, float (&acc)[128], int row0, int row) {
    const int q = threadIdx.x & 3;
    const Row source[2] = {Row(args.a, min(row0 + row, args.m - 1), args.k_groups), Row(args.a, min(row0 + row + 8, args.m - 1), args.k_groups)};
    RowCodes now[2] = {load_codes(args, source[0], 0, q), load_codes(args, source[1], 0, q)};
    uint32_t a[2][4][4];
    expand_a(now, 0, q, a[0]);
    int previous = 0;
    for (int g = 0; g < args.k_groups; ++g) {
        const RowCodes next[2] = {load_codes(args, source[0], g + 1, q), load_codes(args, source[1], g + 1, q)};
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            mbarrier_wait(shared_address(&shared.full[at.index]), at.phase);
            const uint64_t b = swizzled_tile(shared_address(shared.b[at.index]));
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < 4; ++s) wgmma_m64n256k16(acc, a[h][s], b + 2 * s, g + h + s != 0);
            wgmma_commit();
            wgmma_wait<1>();  // the stage before this one has been read
            if (g + h != 0) release(shared.empty[previous]);
            previous = at.index;
            at.advance(FastShared::kStages);
            if (h == 0) expand_a(now, 1, q, a[1]);
            else expand_a(next, 0, q, a[0]);
        }
        now[0] = next[0];
        now[1] = next[1];
    }
    wgmma_wait<0>();
    release(shared.empty[previous]);
}

// acc += dot * scale of the thread's rows, one rounding each (the product is exact).
__device__ __forceinline__ void add_block(float (&acc)[64], const float (&dot)[64], float s0, float s1) {
#pragma unroll
    for (int j = 0; j < 64; ++j) acc[j] = __fmaf_rn(j & 2 ? s1 : s0, dot[j], acc[j]);
}

__device__ __forceinline__ float component(const float4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

__device__ __forceinline__ void consume(const GemmArgs& args, BlockShared& shared, Ring& at, float (&acc)[64], int, int row) {
    const int group = threadIdx.x / kWarpgroup;
    float dot[2][64];
#pragma unroll
    for (int j = 0; j < 64; ++j) acc[j] = 0.0f;
    for (int s = 0; s < 2 * args.k_groups; ++s) {
        mbarrier_wait(shared_address(&shared.full[at.index]), at.phase);
        const uint64_t a = swizzled_tile(shared_address(&shared.a[at.index][group * 64 * 128]));
        const uint64_t b = swizzled_tile(shared_address(shared.b[at.index]));
        const float4 s0 = shared.a_scales[at.index][row], s1 = shared.a_scales[at.index][row + 8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // the dot product of one block flies while the one before is added
            wgmma_fence();
            wgmma_m64n128k16(dot[i & 1], a + 2 * i, b + 2 * i, false);
            wgmma_commit();
            if (i == 0) continue;
            wgmma_wait<1>();
            add_block(acc, dot[(i - 1) & 1], component(s0, i - 1), component(s1, i - 1));
        }
        wgmma_wait<0>();
        release(shared.empty[at.index]);
        at.advance(BlockShared::kStages);
        add_block(acc, dot[1], s0.w, s1.w);
    }
}

template <class S>
__device__ __forceinline__ void gemm(const GemmArgs& args) {
    extern __shared__ uint8_t raw[];
    S& shared = *reinterpret_cast<S*>(raw);
    const uint32_t rank = cluster_rank();
    start_pipeline(shared);
    const int group = threadIdx.x / kWarpgroup;
    // 168 registers a thread at launch, so the three warpgroups share 504: 2 * 216 + 72 or
    // 2 * 240 + 24. More would wait for ever.
    if (group == kConsumers) {
        set_registers_down<S::kBlock ? 72 : 24>();
        produce(args, shared, rank);
    } else {
        set_registers_up<S::kBlock ? 216 : 240>();
        const int lane = threadIdx.x & 31;
        const int row = group * 64 + ((threadIdx.x & 127) >> 5) * 16 + (lane >> 2);
        const int tiles = args.m_pairs * args.n_tiles;
        Ring at;
        for (int t = blockIdx.x / 2; t < tiles; t += gridDim.x / 2) {
            float acc[S::kN / 2];
            const int row0 = (t / args.n_tiles * 2 + int(rank)) * kTileM;
            consume(args, shared, at, acc, row0, row);
            store_rows<S::kN>(args.epilogue, shared.stage[threadIdx.x / 32], acc, row0 + row - (lane >> 2),
                              args.n0 + t % args.n_tiles * S::kN, args.m, args.n0 + args.n);
        }
    }
    cluster_sync();  // no CTA leaves while the other may still arrive on its barriers
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    gemm_sm90a_fast(const __grid_constant__ GemmArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    gemm<FastShared>(args);
#endif
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    gemm_sm90a_block(const __grid_constant__ GemmArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    gemm<BlockShared>(args);
#endif
}

static_assert(sizeof(Operand) == 48 && sizeof(Epilogue) == 152, "src/cuda/gemm/params.rs");
static_assert(sizeof(GemmArgs) == 232 && sizeof(ExpandArgs) == 72 && sizeof(AlignArgs) == 64, "src/cuda/gemm/params.rs");
static_assert(sizeof(FastShared) == 231424 && sizeof(BlockShared) == 207872, "src/cuda/gemm/hopper.rs");

}  // namespace nvfp4
