// Quantization of groups of rows, one copy at a time, and its amax: the tiles of quantize_tile.cuh, of which each lies in one
// group. A group is a window of the copy: its rows, or its columns, at the places where they are in memory, so that tiles,
// transforms and random numbers are those of quantize on the group alone.
#include "groups.cuh"
#include "quantize_tile.cuh"

struct GroupedQuantizeParams {
    QuantizeParams quantize;
    const Group* table;
    int64_t count;
};
static_assert(sizeof(GroupedQuantizeParams) == 384, "src/cuda/grouped_quantize.rs");

// What of the call is the group's own.
__device__ __forceinline__ void enter_group(QuantizeParams& p, const QuantizeParams& call, const Group& group, const Group& next,
                                            int64_t g) {
    const int64_t size = call.x.dtype == DTYPE_F32 ? 4 : 2;
    if (call.row.transposed) {
        p.x.data = static_cast<char*>(call.x.data) + (group.row - group.column) * call.x.stride * size;
        p.row.source_cols = group.column + group.columns;
        p.row.cols = next.column;
    } else {
        p.row.rows = group.row + group.rows;
    }
    if (call.row.amax) p.row.amax = call.row.amax + g;
}

template <bool AMAX>
__device__ __forceinline__ void grouped(const GroupedQuantizeParams& call) {
    __shared__ Shared s;
    __shared__ QuantizeParams p;
    const bool columns = call.quantize.row.transposed;
    const int64_t across = columns ? (call.quantize.row.rows + ROWS - 1) / ROWS : (call.quantize.row.cols + COLS - 1) / COLS;
    const Group& all = call.table[call.count];
    const int64_t tiles = (columns ? all.column_tile : all.row_tile) * across;
    const SeedOffset seed = read_seed_offset(call.quantize.seed_offset, call.quantize.seed, call.quantize.offset);
    int64_t current = -1;
    Group group;
    if (threadIdx.x == 0) p = call.quantize;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t along = tile / across, side = tile % across;
        const int64_t g = columns ? group_of<&Group::column_tile>(call.table, call.count, along)
                                  : group_of<&Group::row_tile>(call.table, call.count, along);
        if (g != current) {
            group = call.table[g];
            __syncthreads();  // the last tile is done with the other group's
            if (threadIdx.x == 0) enter_group(p, call.quantize, group, call.table[g + 1], g);
            __syncthreads();
            current = g;
        }
        const int64_t row0 = columns ? side * ROWS : group.row + (along - group.row_tile) * ROWS;
        const int64_t col0 = columns ? group.column + (along - group.column_tile) * COLS : side * COLS;
        general_tile<AMAX>(p, s, seed, row0, col0);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) quantize_grouped(const __grid_constant__ GroupedQuantizeParams p) { grouped<false>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) amax_grouped(const __grid_constant__ GroupedQuantizeParams p) { grouped<true>(p); }
