// The two orders of scale bytes (docs/format.md, Layouts): linear to 128x4 tiles and back. A thread moves the four
// bytes of one row and tile, a word of the swizzled side. Bytes that stand for no row or block become 0.
#include "layout.cuh"

struct ScalesParams {
    uint8_t* linear;
    uint8_t* swizzled;
    int64_t rows;
    int64_t scale_cols;
    int64_t stride;   // of the linear side
    int64_t blocks4;  // scale_cols rounded up to 4
};
static_assert(sizeof(ScalesParams) == 48, "src/cuda/params.rs");

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS) swizzle_scales(const __grid_constant__ ScalesParams p) {
    const int64_t words = p.blocks4 / 4, total = (p.rows + 127) / 128 * 128 * words;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < total; i += gridDim.x * (int64_t)THREADS) {
        const int64_t row = i / words, block = (i - row * words) * 4;
        uint8_t* to = p.swizzled + swizzled_offset(row, block, p.blocks4);
        for (int j = 0; j < 4; j++)
            to[j] = row < p.rows && block + j < p.scale_cols ? p.linear[row * p.stride + block + j] : 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) unswizzle_scales(const __grid_constant__ ScalesParams p) {
    const int64_t words = p.blocks4 / 4, total = p.rows * words;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < total; i += gridDim.x * (int64_t)THREADS) {
        const int64_t row = i / words, block = (i - row * words) * 4;
        const uint8_t* from = p.swizzled + swizzled_offset(row, block, p.blocks4);
        for (int j = 0; j < 4; j++)
            if (block + j < p.scale_cols) p.linear[row * p.stride + block + j] = from[j];
    }
}

// Zeros the bytes of swizzled scales that stand for no row or block; the quantizers write all others. `linear` unused.
extern "C" __global__ void __launch_bounds__(THREADS) clear_scale_padding(const __grid_constant__ ScalesParams p) {
    const int64_t words = p.blocks4 / 4, total = (p.rows + 127) / 128 * 128 * words;
    const bool ragged = p.scale_cols != p.blocks4;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < total; i += gridDim.x * (int64_t)THREADS) {
        const int64_t row = i / words, block = (i - row * words) * 4;
        if (row < p.rows && !(ragged && block + 4 > p.scale_cols)) continue;
        uint8_t* to = p.swizzled + swizzled_offset(row, block, p.blocks4);
        for (int j = 0; j < 4; j++)
            if (row >= p.rows || block + j >= p.scale_cols) to[j] = 0;
    }
}
