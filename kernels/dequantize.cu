// Dequantize (docs/format.md section 2): 0.5625 bytes read and 2 (f32: 4) written an element. `dequantize_fast` takes
// NVFP4 with one amax and aligned rows, about 7 instructions an element; `dequantize_blocks` any options, stride and
// alignment; `dequantize_transposed` writes the transpose through tiles in shared memory.
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

// Eight codes as f32 times 2^-14: exponent and mantissa at their place in an f16, whose subnormals fit too.
__device__ __forceinline__ void decode8(float (&x)[8], uint32_t codes) {
#pragma unroll
    for (int j = 0; j < 4; j++) {  // elements j and j + 4
        const uint32_t magnitude = (j < 3 ? codes << (9 - 4 * j) : codes >> 3) & 0x0E000E00u;
        const uint32_t pair = magnitude | (codes << (12 - 4 * j) & 0x80008000u);
        x[j] = f16_value(pair & 0xFFFFu);
        x[j + 4] = f16_value(pair >> 16);
    }
}

__device__ __forceinline__ uint32_t f16x2(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

// A warp decodes strips of 1024 elements of a row: four times eight a thread, loads first. The factor of every scale
// byte times 2^14 is in a table; negative: the long way (NaN, and factors near the ends of f32).
extern "C" __global__ void __launch_bounds__(THREADS) dequantize_fast(const __grid_constant__ DequantizeParams p) {
    __shared__ float factors[128];
    const Quantized& q = p.x;
    const float amax = row_amax(q, 0);
    if (threadIdx.x < 128) {
        const float f = decode_factor(q, threadIdx.x, amax);
        factors[threadIdx.x] = f == 0.0f || (f > 1e-30f && f < 1e30f) ? __fmul_rn(f, 16384.0f) : -1.0f;
    }
    __syncthreads();
    const int64_t across = (q.cols + 1023) / 1024, total = across * q.rows;
    const int lane = threadIdx.x & 31;
    for (int64_t strip = blockIdx.x * (int64_t)(THREADS / 32) + threadIdx.x / 32; strip < total;
         strip += gridDim.x * (int64_t)(THREADS / 32)) {
        const int64_t row = total <= 0xFFFFFFFF ? (uint32_t)strip / (uint32_t)across : strip / across;
        const int64_t first = (strip - row * across) * 1024 + lane * 8;
        const uint8_t* codes_at = q.codes + row * q.code_stride + first / 2;
        uint32_t codes[4], bytes[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t col = first + i * 256;
            if (col < q.cols) {
                codes[i] = *reinterpret_cast<const uint32_t*>(codes_at + i * 128);
                bytes[i] = q.scales[scale_offset(q, row, col / 16)];
            }
        }
        const int64_t index = row * p.out.stride + first;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (first + i * 256 >= q.cols) break;
            const float f = factors[bytes[i] & 0x7Fu];
            if (f < 0.0f) {
                const float exact = decode_factor(q, bytes[i], amax);
#pragma unroll 1
                for (int j = 0; j < 8; j++)
                    store_bits(p.out, index + i * 256 + j, output_bits(p.out, true, decode_value(q, codes[i] >> (4 * j), exact)));
                continue;
            }
            float x[8];
            decode8(x, codes[i]);
#pragma unroll
            for (int j = 0; j < 8; j++) x[j] = __fmul_rn(x[j], f);
            if (p.out.dtype == DTYPE_F32) {
                float4* to = reinterpret_cast<float4*>(static_cast<float*>(p.out.data) + index + i * 256);
                to[0] = make_float4(x[0], x[1], x[2], x[3]);
                to[1] = make_float4(x[4], x[5], x[6], x[7]);
            } else {
                uint4* to = reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.out.data) + index + i * 256);
                *to = p.out.dtype == DTYPE_F16 ? make_uint4(f16x2(x[0], x[1]), f16x2(x[2], x[3]), f16x2(x[4], x[5]), f16x2(x[6], x[7]))
                                               : make_uint4(bf16x2(x[0], x[1]), bf16x2(x[2], x[3]), bf16x2(x[4], x[5]), bf16x2(x[6], x[7]));
            }
        }
    }
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
