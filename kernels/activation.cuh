// Activations of a GEMM's epilogue: device twin of src/numerics/activation.rs, the same f32 operations in the same order.
#pragma once
#include <stdint.h>

namespace nvfp4 {

// exp(w) for -87 <= w <= 0: w = k ln 2 + r, then 2^k * (1 + (r + r^2 p(r))).
__device__ __forceinline__ float exp_negative(float w) {
    const float k = rintf(__fmul_rn(w, __uint_as_float(0x3FB8AA3B)));
    const float r = __fsub_rn(__fsub_rn(w, __fmul_rn(k, __uint_as_float(0x3F317200))), __fmul_rn(k, __uint_as_float(0x35BFBE8E)));
    float p = __uint_as_float(0x3AB511E6);
    p = __fadd_rn(__fmul_rn(p, r), __uint_as_float(0x3C091D10));
    p = __fadd_rn(__fmul_rn(p, r), __uint_as_float(0x3D2AAC79));
    p = __fadd_rn(__fmul_rn(p, r), __uint_as_float(0x3E2AAA49));
    p = __fadd_rn(__fmul_rn(p, r), __uint_as_float(0x3EFFFFFE));
    const float fraction = __fadd_rn(1.0f, __fadd_rn(r, __fmul_rn(__fmul_rn(r, r), p)));
    return __fmul_rn(fraction, __uint_as_float(uint32_t(int(k) + 127) << 23));
}

// x * sigmoid(t) for a t with the sign of x.
__device__ __forceinline__ float times_sigmoid(float x, float t) {
    if (t < -87.0f) return -0.0f;
    const float z = t > 87.0f ? 0.0f : exp_negative(-fabsf(t));
    return __fmul_rn(x, __fdiv_rn(t < 0.0f ? z : 1.0f, __fadd_rn(1.0f, z)));
}

enum Activation : int { kNone = 0, kGelu = 1, kSilu = 2, kRelu2 = 3 };

__device__ __forceinline__ float activate(int activation, float x) {
    if (activation == kNone) return x;
    if (activation == kRelu2) return x <= 0.0f ? 0.0f : __fmul_rn(x, x);
    if (activation == kSilu) return times_sigmoid(x, x);
    const float cubic = __fadd_rn(__uint_as_float(0x3FCC422A), __fmul_rn(__uint_as_float(0x3D922279), __fmul_rn(x, x)));
    return times_sigmoid(x, __fmul_rn(x, cubic));
}

}  // namespace nvfp4
