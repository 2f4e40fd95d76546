// The public Hadamard transform (docs/format.md section 6): y = (x .* sign) H / sqrt(n), or its inverse, of any type,
// stride and alignment, along rows or columns; y may be x. A CTA takes 32 lines x 128 elements along the transform;
// thread = 8 * line + run of 16 elements, longer transforms cross the lanes of a line.
#include "hadamard.cuh"
#include "load.cuh"
#include "store.cuh"

struct HadamardParams {
    Matrix x;
    Matrix y;
    uint32_t n;
    uint32_t columns;
    uint32_t inverse;
    uint32_t sign_mask[4];
    uint32_t pad;
};
static_assert(sizeof(HadamardParams) == 112, "src/cuda/params.rs");

constexpr int THREADS = 256;
constexpr int LINES = 32;
constexpr int SPAN = 128;

extern "C" __global__ void __launch_bounds__(THREADS) hadamard(const __grid_constant__ HadamardParams p) {
    __shared__ float data[LINES][SPAN + 1];
    const int64_t lines = p.columns ? p.x.cols : p.x.rows;
    const int64_t x_length = p.columns ? p.x.rows : p.x.cols, y_length = p.columns ? p.y.rows : p.y.cols;
    const int64_t across = (max(x_length, y_length) + SPAN - 1) / SPAN, tiles = across * ((lines + LINES - 1) / LINES);
    const int line = threadIdx.x / 8, run = threadIdx.x % 8;
    const uint32_t signs = p.sign_mask[run * 16 % p.n / 32] >> (run * 16 % p.n % 32);
    const float factor = hadamard_factor(p.n);
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t line0 = tile / across * LINES, first = tile % across * SPAN;
        __syncthreads();
        for (int i = threadIdx.x; i < LINES * SPAN; i += THREADS) {
            const int l = p.columns ? i % LINES : i / SPAN, c = p.columns ? i / LINES : i % SPAN;
            const int64_t at = first + c;
            float v = 0.0f;
            if (line0 + l < lines && at < x_length)
                v = load_element(p.x, p.columns ? at * p.x.stride + line0 + l : (line0 + l) * p.x.stride + at);
            data[l][c] = v;
        }
        __syncthreads();
        float t[16];
#pragma unroll
        for (int i = 0; i < 16; i++) {
            t[i] = data[line][run * 16 + i];
            if (!p.inverse && ((signs >> i) & 1)) t[i] = -t[i];
        }
        butterfly16(t);
        for (int stride = 16; stride < (int)p.n; stride *= 2) {
            const bool upper = run & (stride / 16);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const float other = __shfl_xor_sync(0xFFFFFFFFu, t[i], stride / 16);
                t[i] = upper ? __fsub_rn(other, t[i]) : __fadd_rn(t[i], other);
            }
        }
#pragma unroll
        for (int i = 0; i < 16; i++)
            data[line][run * 16 + i] = hadamard_scale(t[i], p.inverse && ((signs >> i) & 1) ? -factor : factor);
        __syncthreads();
        for (int i = threadIdx.x; i < LINES * SPAN; i += THREADS) {
            const int l = p.columns ? i % LINES : i / SPAN, c = p.columns ? i / LINES : i % SPAN;
            const int64_t at = first + c;
            if (line0 + l < lines && at < y_length)
                store_element(p.y, p.columns ? at * p.y.stride + line0 + l : (line0 + l) * p.y.stride + at, data[l][c]);
        }
    }
}
