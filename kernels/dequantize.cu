// Dequantize (docs/format.md section 2): a thread decodes blocks of 16 codes that share a scale byte and writes them
// in row order, 0.5625 bytes read and 2 (f32: 4) written an element; about 6 instructions each. Any stride and
// alignment: 16-byte stores where the rows allow them. `dequantize_transposed` writes the transpose through tiles in
// shared memory.
#include "layout.cuh"
#include "load.cuh"
#include "scale.cuh"
#include "store.cuh"

struct DequantizeParams {
    Quantized x;
    Matrix out;
    uint32_t vector;  // rows of codes and of the output are aligned for 8- and 16-byte accesses
    uint32_t pad;
};
static_assert(sizeof(DequantizeParams) == 184, "src/cuda/params.rs");

constexpr int THREADS = 256;
// A decoded element in the output type's bits; bf16 is clamped to its largest finite value.
__device__ __forceinline__ uint32_t output_bits(const Matrix& out, bool saturate, float v) {
    if (saturate && out.dtype == DTYPE_BF16 && v == v) v = fminf(fmaxf(v, -BF16_MAX), BF16_MAX);
    return element_bits(out.dtype, v);
}

// Sixteen codes from byte `from`, of which `count` exist.
__device__ __forceinline__ uint2 load_codes(const uint8_t* from, int count, bool vector) {
    if (vector && count == 16) return *reinterpret_cast<const uint2*>(from);
    uint64_t w = 0;
    for (int i = 0; i < (count + 1) / 2; i++) w |= (uint64_t)from[i] << (8 * i);
    return make_uint2((uint32_t)w, (uint32_t)(w >> 32));
}

__device__ __forceinline__ float row_amax(const Quantized& q, int64_t row) {
    return q.amax ? q.amax[q.domain_rows == 0 ? 0 : row / q.domain_rows] : 1.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS) dequantize_blocks(const __grid_constant__ DequantizeParams p) {
    const Quantized& q = p.x;
    const int64_t groups = (q.cols + 15) / 16;
    const int64_t total = groups * q.rows;
    const int step = q.format == FORMAT_MXFP4 ? 2 : 1;  // groups of 16 that share a scale
    const bool one_domain = q.domain_rows == 0;
    const float tensor_amax = one_domain ? row_amax(q, 0) : 1.0f;
    for (int64_t g = blockIdx.x * (int64_t)THREADS + threadIdx.x; g < total; g += gridDim.x * (int64_t)THREADS) {
        const int64_t row = g / groups, group = g - row * groups;
        const int count = (int)min((int64_t)16, q.cols - group * 16);
        const float amax = one_domain ? tensor_amax : row_amax(q, row);
        const float f = decode_factor(q, q.scales[scale_offset(q, row, group / step)], amax);
        const uint2 codes = load_codes(q.codes + row * q.code_stride + group * 8, count, p.vector);
        uint32_t bits[16];
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t code = (i < 8 ? codes.x : codes.y) >> (4 * (i % 8));
            bits[i] = output_bits(p.out, true, decode_value(q, code, f));
        }
        const int64_t index = row * p.out.stride + group * 16;
        if (p.vector && count == 16) {
            if (p.out.dtype == DTYPE_F32) {
                uint4* to = reinterpret_cast<uint4*>(static_cast<uint32_t*>(p.out.data) + index);
#pragma unroll
                for (int i = 0; i < 4; i++) to[i] = make_uint4(bits[4 * i], bits[4 * i + 1], bits[4 * i + 2], bits[4 * i + 3]);
            } else {
                uint4* to = reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.out.data) + index);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const uint32_t* b = bits + 8 * i;
                    to[i] = make_uint4(b[0] | b[1] << 16, b[2] | b[3] << 16, b[4] | b[5] << 16, b[6] | b[7] << 16);
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++)
                if (i < count) store_bits(p.out, index + i, bits[i]);
        }
    }
}

// The BF16 format: bfloat16 values in `codes`.
__device__ __forceinline__ float pass_through_value(const Quantized& q, int64_t row, int64_t col) {
    return as_float((uint32_t) * reinterpret_cast<const uint16_t*>(q.codes + row * q.code_stride + 2 * col) << 16);
}

extern "C" __global__ void __launch_bounds__(THREADS) dequantize_bf16_format(const __grid_constant__ DequantizeParams p) {
    const int64_t total = p.x.rows * p.x.cols;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < total; i += gridDim.x * (int64_t)THREADS) {
        const int64_t row = i / p.x.cols, col = i - row * p.x.cols;
        store_bits(p.out, row * p.out.stride + col, output_bits(p.out, false, pass_through_value(p.x, row, col)));
    }
}

// out = x^T: tiles of 64 rows x 64 columns of x.
extern "C" __global__ void __launch_bounds__(THREADS) dequantize_transposed(const __grid_constant__ DequantizeParams p) {
    __shared__ uint32_t tile[64][65];
    const Quantized& q = p.x;
    const int64_t across = (q.cols + 63) / 64, tiles = across * ((q.rows + 63) / 64);
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int64_t row0 = t / across * 64, col0 = t % across * 64;
        __syncthreads();
        const int r = threadIdx.x >> 2, part = threadIdx.x & 3;
        const int64_t row = row0 + r, first = col0 + part * 16;
        const int count = row < q.rows ? (int)max((int64_t)0, min((int64_t)16, q.cols - first)) : 0;
        if (count > 0) {
            if (q.format == FORMAT_BF16) {
                for (int i = 0; i < count; i++)
                    tile[r][part * 16 + i] = output_bits(p.out, false, pass_through_value(q, row, first + i));
            } else {
                const int64_t block = first / (q.format == FORMAT_MXFP4 ? 32 : 16);
                const float f = decode_factor(q, q.scales[scale_offset(q, row, block)], row_amax(q, row));
                const uint2 codes = load_codes(q.codes + row * q.code_stride + first / 2, count, false);
                for (int i = 0; i < count; i++) {
                    uint32_t code = (i < 8 ? codes.x : codes.y) >> (4 * (i % 8));
                    tile[r][part * 16 + i] = output_bits(p.out, true, decode_value(q, code, f));
                }
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < 64 * 64; i += THREADS) {
            const int c = i >> 6, rr = i & 63;
            if (row0 + rr < q.rows && col0 + c < q.cols)
                store_bits(p.out, (col0 + c) * p.out.stride + row0 + rr, tile[rr][c]);
        }
    }
}
