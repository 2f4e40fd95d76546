// GEMM by mma.sync, for every operand that the faster kernels refuse: any format, layout, alignment and size
// (gemm_portable_tile.cuh).
#include "gemm_portable_tile.cuh"

namespace nvfp4 {

// Tile t of a batch whose tiles are TM x TN.
template <int TM, int TN>
__device__ __forceinline__ Extent extent_of(const PortableArgs& args, long long at) {
    return {int(at % args.m_tiles) * TM, args.m, int(at / args.m_tiles) * TN, args.n, 0, args.k};
}

template <int Mode>
__device__ __forceinline__ void portable(const PortableArgs& args) {
    __shared__ PortableShared shared;
    const long long per_item = (long long)args.m_tiles * args.n_tiles, tiles = per_item * args.batch;
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        Epilogue e;
        const BatchItem p(args, int(t / per_item), e);
        portable_tile<Mode>(args.a, args.b, p, e, shared, extent_of<kPortableM, kPortableN>(args, t % per_item));
    }
}

extern "C" __global__ void __launch_bounds__(kPortableThreads, 3) gemm_portable_fast(const __grid_constant__ PortableArgs args) {
    portable<kFast>(args);
}
extern "C" __global__ void __launch_bounds__(kPortableThreads, 2) gemm_portable_block_nvfp4(const __grid_constant__ PortableArgs args) {
    portable<kBlockNv>(args);
}
extern "C" __global__ void __launch_bounds__(kPortableThreads, 2) gemm_portable_block_mxfp4(const __grid_constant__ PortableArgs args) {
    portable<kBlockMx>(args);
}
extern "C" __global__ void __launch_bounds__(256) gemm_portable_chain(const __grid_constant__ PortableArgs args) {
    __shared__ ChainShared shared;
    const long long per_item = (long long)args.m_tiles * args.n_tiles, tiles = per_item * args.batch;
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        Epilogue e;
        const BatchItem p(args, int(t / per_item), e);
        chain_tile(args.a, args.b, p, e, shared, extent_of<kChainTile, kChainTile>(args, t % per_item));
    }
}

static_assert(sizeof(AnyOperand) == 72 && sizeof(PortableArgs) == 336, "src/cuda/gemm/params.rs");

}  // namespace nvfp4
