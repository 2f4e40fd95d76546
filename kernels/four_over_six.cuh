// Four over six (docs/format.md section 8), the device twin of src/numerics/four_over_six.rs.
#pragma once
#include "scale.cuh"

// The larger of two, NaN if either is.
__device__ __forceinline__ float larger_or_nan(float a, float b) { return a != a || a > b ? a : b; }

// Error of sixteen elements under a candidate scale byte, by nearest codes without RANGE_16_17.
__device__ __forceinline__ float row_error(const Quantized& q, uint32_t byte, const DomainScale& d, const float (&x)[16]) {
    const float s = e4m3_decode_finite(byte);
    const float e = encode_multiplier(q, byte, d, false);
    float error = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float v = __fmul_rn(x[i], e);
        uint32_t code = (e2m1_nearest_bits(fminf(fabsf(v), 6.0f)) & 7u) | (as_uint(v) >> 31 << 3);
        float value = __fmul_rn(e2m1_decode(code), s);
        if (q.chain != CHAIN_SINGLE) value = __fdiv_rn(__fmul_rn(value, d.amax), q.c);
        const float difference = __fsub_rn(value, x[i]);
        if (q.select == SELECT_MSE)
            error = __fadd_rn(error, __fmul_rn(difference, difference));
        else if (q.select == SELECT_ABSMAX)
            error = larger_or_nan(error, fabsf(difference));
        else
            error = __fadd_rn(error, fabsf(difference));
    }
    return error;
}

// The sixteen row errors of a tile, `stride` floats apart, as a tree with strides 8, 4, 2, 1.
__device__ __forceinline__ float tile_error(const Quantized& q, const float* errors, int stride) {
    float e[16];
#pragma unroll
    for (int i = 0; i < 16; i++) e[i] = errors[i * stride];
#pragma unroll
    for (int step = 8; step > 0; step /= 2) {
#pragma unroll
        for (int i = 0; i < step; i++)
            e[i] = q.select == SELECT_ABSMAX ? larger_or_nan(e[i], e[i + step]) : __fadd_rn(e[i], e[i + step]);
    }
    return e[0];
}
