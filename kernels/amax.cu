// Largest magnitudes over finite elements (docs/format.md section 3), of the plain values and, from the same read, of
// the columnwise transform of 16 (its values as the quantizer sees them: rounded to bf16). 16-bit input, aligned rows,
// one scale domain; amax_general in quantize.cu does the rest. 2 bytes an element; about 1.5 instructions an element
// plain, 8 with the transform.
//
// A thread takes 16 rows x 8 columns, 256 bytes in flight. The outputs must hold 0 (or an earlier part's amax): CTAs
// merge by an atomic maximum on the bit patterns, which is exact and the same in any order.
#include "hadamard.cuh"
#include "load.cuh"
#include "scale.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ uint4 load_streaming(const uint16_t* p) {
    uint4 r;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
    return r;
}

// Magnitude if finite, else 0, as bits.
__device__ __forceinline__ uint32_t finite_magnitude(float x) {
    uint32_t u = as_uint(x) & 0x7FFFFFFFu;
    return u < INFINITY_BITS ? u : 0;
}

// Largest |bf16(fl(t / 4))| over the butterfly of sixteen signed values, as bits. Rounding is monotone, so only the
// largest |t| matters, and the last stage's larger result of each pair is fl(|a| + |b|).
__device__ __forceinline__ uint32_t transformed_amax(float (&t)[16]) {
#pragma unroll
    for (int stride = 1; stride < 8; stride *= 2) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            if (i & stride) continue;
            float a = t[i], b = t[i + stride];
            t[i] = __fadd_rn(a, b);
            t[i + stride] = __fsub_rn(a, b);
        }
    }
    // NaN and Inf must not be lost: their patterns are the largest.
    uint32_t m = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) m = max(m, as_uint(__fadd_rn(fabsf(t[i]), fabsf(t[i + 8]))) & 0x7FFFFFFFu);
    uint32_t largest = bf16x2(hadamard_scale(as_float(m), 0.25f), 0.0f) << 16;
    if (largest < INFINITY_BITS) return largest;
    // Something is not finite: look at every value.
    m = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t y = bf16x2(hadamard_scale(__fadd_rn(t[i], t[i + 8]), 0.25f), hadamard_scale(__fsub_rn(t[i], t[i + 8]), 0.25f));
        m = max(m, max(finite_magnitude(low_element<DTYPE_BF16>(y)), finite_magnitude(high_element<DTYPE_BF16>(y))));
    }
    return m;
}

template <uint32_t DTYPE, bool TRANSFORM>
__device__ __forceinline__ void amax_tiles(const QuantizeParams& p) {
    __shared__ uint32_t partial[2][THREADS / 32];
    __shared__ uint32_t signs[16];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (TRANSFORM) {
        if (threadIdx.x < 16) signs[threadIdx.x] = (p.col.sign_mask[0] >> threadIdx.x) & 1 ? 0x80008000u : 0;
        __syncthreads();
    }
    const uint16_t* x = static_cast<const uint16_t*>(p.x.data);
    const int64_t across = (p.x.cols + 255) / 256;  // warps side by side, 256 columns each
    const int64_t strips = across * ((p.x.rows + 15) / 16);
    uint32_t plain = 0, transformed = 0;
    for (int64_t s = blockIdx.x * (int64_t)(THREADS / 32) + warp; s < strips; s += gridDim.x * (int64_t)(THREADS / 32)) {
        const int64_t row0 = s / across * 16, col = (s % across) * 256 + lane * 8;
        if (col >= p.x.cols) continue;
        uint4 w[16];
        const uint16_t* from = x + row0 * p.x.stride + col;
        if (row0 + 16 <= p.x.rows) {
#pragma unroll
            for (int i = 0; i < 16; i++) w[i] = load_streaming(from + i * p.x.stride);
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++)
                w[i] = row0 + i < p.x.rows ? load_streaming(from + i * p.x.stride) : make_uint4(0, 0, 0, 0);
        }
        uint32_t m = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            m = max_u16x2(m, max_u16x2(w[i].x & 0x7FFF7FFFu, w[i].y & 0x7FFF7FFFu));
            m = max_u16x2(m, max_u16x2(w[i].z & 0x7FFF7FFFu, w[i].w & 0x7FFF7FFFu));
        }
        m = max_u16x2(m, m << 16);
        uint32_t largest = as_uint(high_element<DTYPE>(m));
        if (largest >= INFINITY_BITS) {
            largest = 0;
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const uint32_t v[4] = {w[i].x, w[i].y, w[i].z, w[i].w};
#pragma unroll
                for (int j = 0; j < 4; j++)
                    largest = max(largest, max(finite_magnitude(low_element<DTYPE>(v[j])), finite_magnitude(high_element<DTYPE>(v[j]))));
            }
        }
        plain = max(plain, largest);
        if (TRANSFORM) {
#pragma unroll
            for (int i = 0; i < 16; i++) {
                uint32_t sign = signs[i];
                w[i].x ^= sign;
                w[i].y ^= sign;
                w[i].z ^= sign;
                w[i].w ^= sign;
            }
#define NVFP4_COLUMN(WORD, ELEMENT)                                             \
    {                                                                           \
        float t[16];                                                            \
        _Pragma("unroll") for (int i = 0; i < 16; i++) t[i] = ELEMENT<DTYPE>(w[i].WORD); \
        transformed = max(transformed, transformed_amax(t));                    \
    }
            NVFP4_COLUMN(x, low_element)
            NVFP4_COLUMN(x, high_element)
            NVFP4_COLUMN(y, low_element)
            NVFP4_COLUMN(y, high_element)
            NVFP4_COLUMN(z, low_element)
            NVFP4_COLUMN(z, high_element)
            NVFP4_COLUMN(w, low_element)
            NVFP4_COLUMN(w, high_element)
#undef NVFP4_COLUMN
        }
    }
    plain = __reduce_max_sync(0xFFFFFFFFu, plain);
    if (TRANSFORM) transformed = __reduce_max_sync(0xFFFFFFFFu, transformed);
    if (lane == 0) {
        partial[0][warp] = plain;
        partial[1][warp] = transformed;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS / 32; i++) {
            plain = max(plain, partial[0][i]);
            transformed = max(transformed, partial[1][i]);
        }
        if (p.row.amax) atomicMax(reinterpret_cast<unsigned*>(p.row.amax), plain);
        if (p.col.amax) atomicMax(reinterpret_cast<unsigned*>(p.col.amax), TRANSFORM ? transformed : plain);
    }
}

#define NVFP4_AMAX(NAME, DTYPE, TRANSFORM)                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME(const __grid_constant__ QuantizeParams p) { \
        amax_tiles<DTYPE, TRANSFORM>(p);                                                         \
    }

NVFP4_AMAX(amax_bf16, DTYPE_BF16, false)
NVFP4_AMAX(amax_bf16_transform, DTYPE_BF16, true)
NVFP4_AMAX(amax_f16, DTYPE_F16, false)
NVFP4_AMAX(amax_f16_transform, DTYPE_F16, true)
