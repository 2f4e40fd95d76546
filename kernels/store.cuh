// Writing f32 values as elements of an unquantized matrix, each cast once (nearest even; f16 overflows to Inf).
#pragma once
#include <cuda_fp16.h>

#include "hadamard.cuh"
#include "params.cuh"

__device__ constexpr float BF16_MAX = 3.38953138925153547590e+38f;

// bf16 bits; NaN keeps its sign and becomes the quiet NaN.
__device__ __forceinline__ uint32_t bf16_bits(float v) {
    if (v != v) return (as_uint(v) >> 16 & 0x8000u) | 0x7FC0u;
    return bf16x2(v, 0.0f) & 0xFFFFu;
}

// f16 bits; NaN keeps its sign and the top of its payload.
__device__ __forceinline__ uint32_t f16_bits(float v) {
    if (v != v) return (as_uint(v) >> 16 & 0x8000u) | 0x7E00u | (as_uint(v) >> 13 & 0x1FFu);
    return __half_as_ushort(__float2half_rn(v));
}

__device__ __forceinline__ uint32_t element_bits(uint32_t dtype, float v) {
    return dtype == DTYPE_F32 ? as_uint(v) : dtype == DTYPE_F16 ? f16_bits(v) : bf16_bits(v);
}

__device__ __forceinline__ void store_bits(const Matrix& out, int64_t index, uint32_t bits) {
    if (out.dtype == DTYPE_F32)
        static_cast<uint32_t*>(out.data)[index] = bits;
    else
        static_cast<uint16_t*>(out.data)[index] = (uint16_t)bits;
}

__device__ __forceinline__ void store_element(const Matrix& out, int64_t index, float v) {
    store_bits(out, index, element_bits(out.dtype, v));
}
