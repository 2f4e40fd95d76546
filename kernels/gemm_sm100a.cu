// GEMM on the FP4 units of sm_100 and sm_103: tcgen05 with block scales, operands as they lie in memory.
//
// A CTA, or a pair of them, stays on its multiprocessor and walks over tiles of D: 128 x 128 or 128 x 64, or 256 x 256 a pair. One warp
// brings 256 k at a time into a ring of shared memory by tensor copies (codes with the 128-byte swizzle, scale tiles of 512
// bytes as they are), one warp issues the MMAs, four store the tile before. Scales go on to tensor memory beside the
// accumulators. The accumulator is the chain of K = 64 steps in ascending k that mode HARDWARE describes (docs/format.md,
// section 10).
//
// There are two accumulators, so that one is stored while the other is made. A pair's are 256 columns wide, and with the scales
// 560 columns would be needed where there are 512: they share 48, which are stored first.
#include "gemm_quantize.cuh"  // first: it says that no conversion instructions are used
#include "blackwell.cuh"
#include "gemm_portable.cuh"

namespace nvfp4 {

constexpr int kRows = 128;          // of A that a CTA brings, and of a scale tile
constexpr int kRowBytes = 128;      // of codes in a stage: 256 k
constexpr int kTensorThreads = 192;  // copies, MMAs, four warps that store
constexpr int kScaleTile = 512;
constexpr uint32_t kColumns = 512;  // of tensor memory: all

struct TensorArgs {
    TensorMap a, b, a_scales, b_scales;  // codes: [item][row][byte]; scales: [item][tile of rows][tile of blocks][word]
    PortableArgs product;
    int a_items, b_items;  // 1: each product of the batch has its own operand; 0: all share it
    int band;              // rows of tiles that are walked together, for the sake of L2
    int steps;             // of 64 along K, at least 1
    Quantized quantized;  // codes not NULL: what becomes of D
    int pad[6];
};

// Tiles of N columns, each CTA of the G bringing its part of B's rows. Tiles of 64 columns come two a scale tile.
template <int G_, bool Nv_, int N_>
struct Way {
    static constexpr int G = G_, kM = kRows * G, kN = N_, kColumnsEach = kN / G, kStages = 5;
    static_assert(kColumnsEach == kRows || (G == 1 && kN == 64));
    static constexpr bool Nv = Nv_;
    static constexpr int kScaleTiles = Nv ? 4 : 2;              // of a stage, 128 rows
    static constexpr int kScaleColumns = 4 * kScaleTiles;       // the same in tensor memory
    static constexpr uint32_t kScales = G == 1 ? 2 * kN : kColumns - 48;  // first column of A's scales, then come B's
    static constexpr bool kShare = 2 * kN > int(kScales);
    static constexpr uint32_t kSecond = kShare ? kScales - kN : kN;  // first column of the second accumulator
};

template <class W>
struct alignas(1024) TensorShared {
    uint8_t a[W::kStages][kRows * kRowBytes];
    uint8_t b[W::kStages][W::kColumnsEach * kRowBytes];
    uint8_t a_scales[W::kStages][W::kScaleTiles * kScaleTile];
    uint8_t b_scales[W::kStages][W::G][W::kScaleTiles * kScaleTile];  // of all columns of the tile
    WarpStage stage[4];
    uint64_t full[W::kStages], empty[W::kStages];  // full: the leader's counts for both
    uint64_t ready[2], drained[2];                 // the accumulators; drained: the leader's counts for both
    uint32_t base;                                 // of tensor memory
};

struct TilePlace {
    int item, row, col;  // of the batch; in units of tiles
    __device__ __forceinline__ TilePlace(const TensorArgs& args, long long t) {
        const PortableArgs& p = args.product;
        const long long per_item = (long long)p.m_tiles * p.n_tiles;
        item = int(t / per_item);
        const long long at = t % per_item, whole = (long long)args.band * p.n_tiles;
        const int first = int(at / whole) * args.band, rest = int(at % whole), high = min(args.band, p.m_tiles - first);
        row = first + rest % high;
        col = rest / high;
    }
};

struct StageRing {
    int index = 0;
    uint32_t phase = 0;
    __device__ __forceinline__ void advance(int stages) {
        if (++index == stages) { index = 0; phase ^= 1; }
    }
};

template <class W>
__device__ __forceinline__ void bring(const TensorArgs& args, TensorShared<W>& shared, long long first, long long by, long long tiles, int rank) {
    constexpr uint32_t kBytes = (kRows + W::kColumnsEach) * kRowBytes + (1 + W::G) * W::kScaleTiles * kScaleTile;
    StageRing at;
    for (long long t = first; t < tiles; t += by) {
        const TilePlace p(args, t);
        const int a_item = args.a_items ? p.item : 0, b_item = args.b_items ? p.item : 0;
        const int a_tile = p.row * W::G + rank, b_row = p.col * W::kN + rank * W::kColumnsEach;
        for (int step = 0; step < args.steps; step += 4, at.advance(W::kStages)) {
            const uint32_t full = shared_address(&shared.full[at.index]);
            const int scales = step * W::kScaleTiles / 4;
            mbarrier_wait(shared_address(&shared.empty[at.index]), at.phase ^ 1);
            if (rank == 0) mbarrier_expect(full, W::G * kBytes);
            copy_box<W::G>(shared_address(shared.a[at.index]), &args.a, step * 32, a_tile * kRows, a_item, full);
            copy_box<W::G>(shared_address(shared.b[at.index]), &args.b, step * 32, b_row, b_item, full);
            copy_box<W::G, false>(shared_address(shared.a_scales[at.index]), &args.a_scales, 0, scales, a_tile, a_item, full);
            copy_box<W::G, true>(shared_address(shared.b_scales[at.index][rank]), &args.b_scales, 0, scales, b_row / kRows, b_item, full);
        }
    }
    // The last arrivals come from the leader: none of them may find this CTA gone.
    for (int i = 0; i < W::kStages; ++i, at.advance(W::kStages)) mbarrier_wait(shared_address(&shared.empty[at.index]), at.phase ^ 1);
}

template <class W>
__device__ __forceinline__ void multiply(const TensorArgs& args, TensorShared<W>& shared, long long first, long long by, long long tiles,
                                         uint32_t memory) {
    constexpr int kBehind = W::kShare ? 1 : 2;  // tiles ago whose (shared) columns are wanted
    const uint32_t a_scales = memory + W::kScales, b_scales = a_scales + W::kScaleColumns;
    StageRing at;
    int n = 0;
    for (long long t = first; t < tiles; t += by, ++n) {
        const uint32_t acc = memory + (n & 1) * W::kSecond;
        // 32 columns of D have a column of scales.
        const uint32_t b_at = b_scales + (W::kN < kRows ? TilePlace(args, t).col * W::kN % kRows / 32 : 0);
        if (n >= kBehind) {
            const int other = n - kBehind;
            mbarrier_wait(shared_address(&shared.drained[other & 1]), other >> 1 & 1);
            tensor_fence_after();
        }
        for (int step = 0; step < args.steps; step += 4, at.advance(W::kStages)) {
            mbarrier_wait(shared_address(&shared.full[at.index]), at.phase);
            tensor_fence_after();
            const uint64_t a = codes_descriptor(shared_address(shared.a[at.index])), b = codes_descriptor(shared_address(shared.b[at.index]));
            const uint64_t sa = scales_descriptor(shared_address(shared.a_scales[at.index]));
#pragma unroll
            for (int i = 0; i < W::kScaleTiles; ++i) {
                tensor_copy_scales<W::G>(a_scales + 4 * i, sa + 32 * i);
#pragma unroll
                for (int j = 0; j < W::G; ++j)
                    tensor_copy_scales<W::G>(b_scales + 4 * (i * W::G + j), scales_descriptor(shared_address(shared.b_scales[at.index][j])) + 32 * i);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (step + i >= args.steps) break;
                const int tile = W::Nv ? i : i / 2;
                tensor_mma<W::G, W::Nv>(acc, a + 2 * i, b + 2 * i, instruction_descriptor<W::Nv>(W::kM, W::kN, i & 1), a_scales + 4 * tile,
                                        b_at + 4 * W::G * tile, step + i);
            }
            tensor_commit<W::G>(shared_address(&shared.empty[at.index]));
        }
        tensor_commit<W::G>(shared_address(&shared.ready[n & 1]));
    }
}

template <class W>
__device__ __forceinline__ void store(const TensorArgs& args, TensorShared<W>& shared, long long first, long long by, long long tiles, int rank,
                                      uint32_t memory) {
    constexpr int kChunks = W::kN / kStageColumns;
    const int quarter = threadIdx.x / 32 % 4, lane = threadIdx.x & 31;  // a warp reads its own quarter of the lanes
    int n = 0;
    for (long long t = first; t < tiles; t += by, ++n) {
        const TilePlace p(args, t);
        Epilogue e;
        const BatchItem item(args.product, p.item, e);
        const int second = n & 1, row0 = p.row * W::kM + rank * kRows + 32 * quarter, col0 = p.col * W::kN;
        const uint32_t acc = memory + second * W::kSecond + (uint32_t(32 * quarter) << 16);
        mbarrier_wait(shared_address(&shared.ready[second]), n >> 1 & 1);
        tensor_fence_after();
#pragma unroll 1
        for (int i = 0; i < kChunks; ++i) {
            const int c = kStageColumns * (W::kShare && !second ? kChunks - 1 - i : i);  // those that both share come first
            float v[2][32];
            const bool wanted = row0 < args.product.m && col0 + c < args.product.n;
            if (wanted) {
                tensor_load(v[0], acc + c);
                tensor_load(v[1], acc + c + (16u << 16));
                tensor_wait_loads();
            }
            if (i == (W::kShare ? 0 : kChunks - 1)) {
                tensor_fence_before();
                __syncwarp();
                if (lane == 0) mbarrier_arrive_cluster(shared_address(&shared.drained[second]), 0);
            }
            if (wanted) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    if (args.quantized.codes)
                        store_quantized(e, args.quantized, shared.stage[quarter], v[h], row0 + 16 * h, col0 + c, args.product.m, args.product.n);
                    else
                        store_rows<kStageColumns>(e, shared.stage[quarter], v[h], row0 + 16 * h, col0 + c, args.product.m, args.product.n);
                }
            }
        }
    }
}

template <class W>
__device__ __forceinline__ void everyone() {
    if constexpr (W::G == 1) __syncthreads();
    else cluster_sync();
}

template <class W>
__device__ __forceinline__ void tensor_product(const TensorArgs& args) {
    extern __shared__ uint8_t raw[];
    TensorShared<W>& shared = *reinterpret_cast<TensorShared<W>*>(raw);
    const int warp = threadIdx.x / 32, rank = W::G == 1 ? 0 : int(cluster_rank());
    if (warp == 0) tensor_alloc<W::G>(shared_address(&shared.base), kColumns);
    if (threadIdx.x == 0) {
        for (int i = 0; i < W::kStages; ++i) {
            mbarrier_init(shared_address(&shared.full[i]), 1);
            mbarrier_init(shared_address(&shared.empty[i]), 1);
        }
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(shared_address(&shared.ready[i]), 1);
            mbarrier_init(shared_address(&shared.drained[i]), 4 * W::G);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    tensor_fence_before();
    everyone<W>();
    tensor_fence_after();
    const uint32_t memory = shared.base;
    const PortableArgs& p = args.product;
    const long long tiles = (long long)p.m_tiles * p.n_tiles * p.batch, first = blockIdx.x / W::G, by = gridDim.x / W::G;
    if (warp == 0) {
        if (elect()) bring(args, shared, first, by, tiles, rank);
    } else if (warp == 1) {
        if (rank == 0 && elect()) multiply(args, shared, first, by, tiles, memory);
    } else {
        store(args, shared, first, by, tiles, rank, memory);
        tensor_fence_before();
    }
    __syncwarp();
    everyone<W>();
    if (warp == 0) {
        tensor_fence_after();
        tensor_free<W::G>(memory, kColumns);
    }
}

extern "C" __global__ void __launch_bounds__(kTensorThreads, 1) gemm_sm100_nvfp4(const __grid_constant__ TensorArgs args) {
    tensor_product<Way<1, true, 128>>(args);
}
extern "C" __global__ void __launch_bounds__(kTensorThreads, 1) gemm_sm100_mxfp4(const __grid_constant__ TensorArgs args) {
    tensor_product<Way<1, false, 128>>(args);
}
extern "C" __global__ void __launch_bounds__(kTensorThreads, 1) gemm_sm100_narrow_nvfp4(const __grid_constant__ TensorArgs args) {
    tensor_product<Way<1, true, 64>>(args);
}
extern "C" __global__ void __launch_bounds__(kTensorThreads, 1) gemm_sm100_narrow_mxfp4(const __grid_constant__ TensorArgs args) {
    tensor_product<Way<1, false, 64>>(args);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kTensorThreads, 1)
    gemm_sm100_pair_nvfp4(const __grid_constant__ TensorArgs args) {
    tensor_product<Way<2, true, 256>>(args);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kTensorThreads, 1)
    gemm_sm100_pair_mxfp4(const __grid_constant__ TensorArgs args) {
    tensor_product<Way<2, false, 256>>(args);
}

static_assert(sizeof(TensorArgs) == 1024, "src/cuda/gemm/params.rs");
template <class W>
constexpr bool takes(size_t bytes) { return sizeof(TensorShared<W>) == bytes; }
static_assert(takes<Way<1, true, 128>>(201728) && takes<Way<1, false, 128>>(191488), "src/cuda/gemm/kernels.rs");
static_assert(takes<Way<1, true, 64>>(160768) && takes<Way<1, false, 64>>(150528), "src/cuda/gemm/kernels.rs");
static_assert(takes<Way<2, true, 256>>(211968) && takes<Way<2, false, 256>>(196608), "src/cuda/gemm/kernels.rs");

}  // namespace nvfp4
