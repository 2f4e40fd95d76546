// Quantization of one copy with any option, shape, stride and alignment, and its amax, a tile at a time (quantize_tile.cuh).
// quantize_fast.cu and amax.cu do the common cases at memory speed; the bytes are the same.
#include "quantize_tile.cuh"

template <bool AMAX>
__device__ __forceinline__ void general(const QuantizeParams& p) {
    __shared__ Shared s;
    const int64_t across = (p.row.cols + COLS - 1) / COLS, tiles = across * ((p.row.rows + ROWS - 1) / ROWS);
    const SeedOffset seed = read_seed_offset(p.seed_offset, p.seed, p.offset);
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
        general_tile<AMAX>(p, s, seed, tile / across * ROWS, tile % across * COLS);
}

extern "C" __global__ void __launch_bounds__(THREADS) quantize_general(const __grid_constant__ QuantizeParams p) { general<false>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) amax_general(const __grid_constant__ QuantizeParams p) { general<true>(p); }
