// The random Hadamard transform (docs/format.md section 6), the device twin of src/numerics/hadamard.rs: signs, then
// a butterfly with strides 1, 2, 4, ..., then the factor, all in f32 and in that order.
#pragma once
#include "e2m1.cuh"

// Strides 1, 2, 4, 8 on sixteen values in registers: 64 adds.
__device__ __forceinline__ void butterfly16(float (&t)[16]) {
#pragma unroll
    for (int stride = 1; stride < 16; stride *= 2) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            if (i & stride) continue;
            float a = t[i], b = t[i + stride];
            t[i] = __fadd_rn(a, b);
            t[i + stride] = __fsub_rn(a, b);
        }
    }
}

// fl(1 / sqrt(n)).
__device__ __forceinline__ float hadamard_factor(uint32_t n) {
    return n == 16 ? 0.25f : n == 32 ? 0.17677669f : n == 64 ? 0.125f : 0.088388346f;
}

// fl(t * factor), a zero becoming +0.
__device__ __forceinline__ float hadamard_scale(float t, float factor) { return __fmaf_rn(t, factor, 0.0f); }

// Two floats rounded to bf16, `lo` in the low half.
__device__ __forceinline__ uint32_t bf16x2(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
