// One product a group of tokens (docs/abi.md, "Groups"), of any operands: the tiles of gemm_portable_tile.cuh. CTAs walk over
// the tiles of all groups, whose number only the device knows.
//
// Ragged M: a tile's rows are tokens of one group, B is that group's. Ragged K: every group has all tiles of D, and contracts
// its own columns. Rows and columns keep their places in memory, so only pointers of what a group has alone are moved.
#include "gemm_portable_tile.cuh"
#include "groups.cuh"

namespace nvfp4 {

struct GroupedArgs {
    PortableArgs product;  // batch: the groups; its strides lead from one group's operand, C and D to the next
    const Group* table;
    long long bias_stride, alpha_stride;  // values
    int ragged_k;
    int transform;  // ragged K: tokens are rounded up to a multiple of it, if it is not 0
};
static_assert(sizeof(GroupedArgs) == 368, "src/cuda/gemm/params.rs");

// The TM x TN tile t of all groups' tiles, its group, and what is the group's own in the epilogue.
template <int TM, int TN>
__device__ __forceinline__ int locate(const GroupedArgs& args, long long t, Extent& x) {
    const PortableArgs& p = args.product;
    if (args.ragged_k) {
        const long long per_group = (long long)p.m_tiles * p.n_tiles;
        const int g = int(t / per_group), at = int(t % per_group);
        const Group group = args.table[g];
        int columns = int(group.columns);
        if (args.transform) columns = (columns + args.transform - 1) / args.transform * args.transform;
        x = {at % p.m_tiles * TM, p.m, at / p.m_tiles * TN, p.n, int(group.column), int(group.column) + columns};
        return g;
    }
    const int g = int(group_of<&Group::row_tile>(args.table, p.batch, t / p.n_tiles));
    const Group group = args.table[g];
    const int down = int(args.table[g + 1].row_tile - group.row_tile);
    const int at = int(t - group.row_tile * p.n_tiles);
    const int row = int(group.row);
    x = {row + at % down * TM, row + int(group.rows), at / down * TN, p.n, 0, p.k};
    return g;
}

__device__ __forceinline__ long long tiles_of(const GroupedArgs& args) {
    const PortableArgs& p = args.product;
    return args.ragged_k ? (long long)p.batch * p.m_tiles * p.n_tiles : args.table[p.batch].row_tile * p.n_tiles;
}

// What the CTA works on, in shared memory: the tiles' loops leave no registers for it.
struct Entered {
    BatchItem item;
    Epilogue epilogue;
    Extent extent;
};

template <int TM, int TN>
__device__ __forceinline__ void enter(const GroupedArgs& args, long long t, Entered& now) {
    __syncthreads();  // the last tile is done with it
    if (threadIdx.x == 0) {
        const int g = locate<TM, TN>(args, t, now.extent);
        Epilogue& e = now.epilogue;
        now.item = BatchItem(args.product, g, e);
        if (e.alpha) e.alpha += g * args.alpha_stride;
        if (e.bias) e.bias = static_cast<const uint8_t*>(e.bias) + g * args.bias_stride * (e.bias_dtype == kF32 ? 4 : 2);
    }
    __syncthreads();
}

template <int Mode>
__device__ __forceinline__ void grouped(const GroupedArgs& args) {
    __shared__ PortableShared shared;
    __shared__ Entered now;
    const long long tiles = tiles_of(args);
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        enter<kPortableM, kPortableN>(args, t, now);
        const Extent x = now.extent;
        portable_tile<Mode>(args.product.a, args.product.b, now.item, now.epilogue, shared, x);
    }
}

extern "C" __global__ void __launch_bounds__(kPortableThreads, 3) gemm_grouped_fast(const __grid_constant__ GroupedArgs args) {
    grouped<kFast>(args);
}
extern "C" __global__ void __launch_bounds__(kPortableThreads, 2) gemm_grouped_block_nvfp4(const __grid_constant__ GroupedArgs args) {
    grouped<kBlockNv>(args);
}
extern "C" __global__ void __launch_bounds__(kPortableThreads, 2) gemm_grouped_block_mxfp4(const __grid_constant__ GroupedArgs args) {
    grouped<kBlockMx>(args);
}
extern "C" __global__ void __launch_bounds__(256) gemm_grouped_chain(const __grid_constant__ GroupedArgs args) {
    __shared__ ChainShared shared;
    __shared__ Entered now;
    const long long tiles = tiles_of(args);
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        enter<kChainTile, kChainTile>(args, t, now);
        const Extent x = now.extent;
        chain_tile(args.product.a, args.product.b, now.item, now.epilogue, shared, x);
    }
}

}  // namespace nvfp4
