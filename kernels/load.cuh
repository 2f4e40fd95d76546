// Reading elements of an unquantized matrix as f32 (exact for every type), and packed pairs of 16-bit ones.
#pragma once
#include <cuda_fp16.h>

#include "e2m1.cuh"
#include "params.cuh"

__device__ __forceinline__ float f16_value(uint32_t bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }

// As f16_value, but a NaN keeps its sign whatever the conversion instruction does.
__device__ __forceinline__ float f16_value_exact(uint32_t bits) {
    if ((bits & 0x7FFFu) > 0x7C00u) return as_float((bits & 0x8000u) << 16 | 0x7FC00000u | (bits & 0x1FFu) << 13);
    return f16_value(bits);
}

// Element i of a matrix's memory, any alignment of the row.
__device__ __forceinline__ float load_element(const Matrix& x, int64_t i) {
    if (x.dtype == DTYPE_F32) return static_cast<const float*>(x.data)[i];
    uint32_t bits = static_cast<const uint16_t*>(x.data)[i];
    return x.dtype == DTYPE_BF16 ? as_float(bits << 16) : f16_value_exact(bits);
}

// The two elements of a word as f32.
template <uint32_t DTYPE>
__device__ __forceinline__ float low_element(uint32_t w) {
    return DTYPE == DTYPE_BF16 ? as_float(w << 16) : f16_value(w & 0xFFFFu);
}
template <uint32_t DTYPE>
__device__ __forceinline__ float high_element(uint32_t w) {
    return DTYPE == DTYPE_BF16 ? as_float(w & 0xFFFF0000u) : f16_value(w >> 16);
}

// Pairwise maximum of magnitudes as unsigned patterns: NaN > Inf > finite, so nothing that is not finite is lost.
__device__ __forceinline__ uint32_t max_u16x2(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t r;
    asm("max.u16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#else
    return __vmaxu2(a, b);
#endif
}

// Largest magnitude of sixteen packed elements, as f32 (Inf or NaN if one of them is).
template <uint32_t DTYPE>
__device__ __forceinline__ float block_amax(const uint32_t (&w)[8]) {
    uint32_t m = w[0] & 0x7FFF7FFFu;
#pragma unroll
    for (int i = 1; i < 8; i++) m = max_u16x2(m, w[i] & 0x7FFF7FFFu);
    m = max_u16x2(m, m << 16);  // the high half now holds the larger of the two
    return high_element<DTYPE>(m);
}
