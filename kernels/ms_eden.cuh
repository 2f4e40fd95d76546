// MS-EDEN's second step (docs/format.md section 9), the device twin of src/numerics/ms_eden.rs.
#pragma once
#include "scale.cuh"

// Continues sum y*y and sum y*decoded over sixteen elements, in order.
__device__ __forceinline__ void eden_sums(const Quantized& q, const float (&y)[16], const uint32_t (&code)[2], float factor,
                                          float& numerator, float& denominator) {
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float decoded = decode_value(q, code[i / 8] >> (4 * (i % 8)), factor);
        numerator = __fadd_rn(numerator, __fmul_rn(y[i], y[i]));
        denominator = __fadd_rn(denominator, __fmul_rn(y[i], decoded));
    }
}

__device__ __forceinline__ float eden_correction(float numerator, float denominator) {
    if (denominator > 0.0f && is_finite(numerator) && is_finite(denominator)) return __fdiv_rn(numerator, denominator);
    return 1.0f;
}

// Scale byte times the correction, rounded stochastically with `word`; 0 stays, 448 is the top.
__device__ __forceinline__ uint32_t eden_correct(uint32_t byte, float correction, uint32_t word) {
    if (byte == 0) return 0;
    const float v = __fmul_rn(e4m3_decode_finite(byte), correction);
    if (v >= 448.0f) return 0x7E;
    uint32_t low;
    float fraction;
    if (v < 0.015625f) {  // steps of 2^-9
        const float steps = __fmul_rn(v, 512.0f);
        low = (uint32_t)steps;
        fraction = __fsub_rn(steps, (float)low);
    } else {
        low = (as_uint(v) >> 20) - 960u;
        fraction = __fmul_rn((float)(as_uint(v) & 0xFFFFFu), 9.5367431640625e-7f);
    }
    return low + ((uint32_t)__fmul_rn(fraction, 16777216.0f) > word >> 8);
}
