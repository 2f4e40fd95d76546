// E4M3 scale bytes (docs/format.md section 1), the device twin of src/numerics/e4m3.rs. Scales are never negative.
#pragma once
#include "e2m1.cuh"

__device__ constexpr uint32_t E4M3_NAN = 0x7F;

// x >= 0 and not NaN: round to nearest even, saturate at 448.
__device__ __forceinline__ uint32_t e4m3_encode(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 && !defined(NVFP4_NO_CONVERSIONS)
    uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
    return r;
#else
    float y = fminf(x, 448.0f);
    // Below 2^-6 the step is 2^-9: adding 2^14 rounds to it. Above, round bit 20 of the pattern; the exponent's bias
    // goes from 127 to 7.
    uint32_t subnormal = as_uint(__fadd_rn(y, 16384.0f)) - 0x46800000u;
    uint32_t u = as_uint(y);
    uint32_t normal = ((u + 0x7FFFFu + ((u >> 20) & 1u)) >> 20) - 960u;
    return y < 0.015625f ? subnormal : normal;
#endif
}

// The value of a byte that is not NaN; subnormals fall out of the float's own.
__device__ __forceinline__ float e4m3_decode_finite(uint32_t byte) {
    return __fmul_rn(as_float((byte & 0x7Fu) << 20), 1.329227995784916e36f);  // 2^120
}

__device__ __forceinline__ float e4m3_decode(uint32_t byte) {
    return (byte & 0x7Fu) == E4M3_NAN ? as_float(0x7FC00000u) : e4m3_decode_finite(byte);
}
