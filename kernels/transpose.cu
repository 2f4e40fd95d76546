// Transpose of a matrix that was quantized in square tiles, and of the BF16 format; codes move through shared memory
// in tiles of 64 x 64, a tile's scale byte is repeated on the rows that exist on the other side. 1.125 bytes an element.
#include "layout.cuh"

struct TransposeParams {
    Quantized x;
    Quantized out;
};
static_assert(sizeof(TransposeParams) == 272, "src/cuda/params.rs");

constexpr int THREADS = 256;
constexpr int TILE = 64;

extern "C" __global__ void __launch_bounds__(THREADS) transpose_quantized(const __grid_constant__ TransposeParams p) {
    __shared__ uint16_t data[TILE][TILE + 2];
    const bool wide = p.x.format == FORMAT_BF16;
    const int side = p.x.format == FORMAT_MXFP4 ? 32 : 16;
    const int64_t across = (p.x.cols + TILE - 1) / TILE, tiles = across * ((p.x.rows + TILE - 1) / TILE);
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t row0 = tile / across * TILE, col0 = tile % across * TILE;
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
            const int r = i / TILE, c = i % TILE;
            const int64_t row = row0 + r, col = col0 + c;
            uint32_t v = 0;
            if (row < p.x.rows && col < p.x.cols) {
                const uint8_t* codes = p.x.codes + row * p.x.code_stride;
                v = wide ? reinterpret_cast<const uint16_t*>(codes)[col] : (codes[col / 2] >> (4 * (col & 1))) & 15u;
            }
            data[r][c] = (uint16_t)v;
        }
        __syncthreads();
        if (wide) {
            for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
                const int r = i / TILE, c = i % TILE;  // of the output's tile
                const int64_t row = col0 + r, col = row0 + c;
                if (row < p.out.rows && col < p.out.cols)
                    reinterpret_cast<uint16_t*>(p.out.codes + row * p.out.code_stride)[col] = data[c][r];
            }
            continue;
        }
        for (int i = threadIdx.x; i < TILE * TILE / 2; i += THREADS) {
            const int r = i / (TILE / 2), b = i % (TILE / 2);
            const int64_t row = col0 + r, col = row0 + 2 * b;
            if (row < p.out.rows && col < p.out.cols)
                p.out.codes[row * p.out.code_stride + col / 2] = (uint8_t)(data[2 * b][r] | data[2 * b + 1][r] << 4);
        }
        const int blocks = TILE / side;
        for (int i = threadIdx.x; i < TILE * blocks; i += THREADS) {
            const int64_t row = col0 + i / blocks, first = row0 + (i % blocks) * side;
            if (row < p.out.rows && first < p.out.cols)
                p.out.scales[scale_offset(p.out, row, first / side)] = p.x.scales[scale_offset(p.x, first, row / side)];
        }
    }
}
