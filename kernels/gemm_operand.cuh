// Operands of the GEMM kernels: E2M1 codes and their block scales as bf16 values, exactly (6 significant bits at most).
#pragma once
#include <stdint.h>

namespace nvfp4 {

// A packed operand whose rows are aligned: 16-byte aligned codes, k_groups * 64 bytes of them; 4-byte aligned scales,
// those of group g (128 k) at row + g * scale_step and, four further, + scale_second.
struct Operand {
    const uint8_t* codes;
    const uint8_t* scales;
    long long stride, scale_stride;
    int scale_step, scale_second;  // linear: 8 and 4; swizzled: 1024 and 512
    int swizzled;
};

// E4M3 byte -> f32 value; 0x7F -> NaN. Bits shifted into place read value * 2^-120, subnormals included.
__device__ __forceinline__ float scale_value(uint32_t byte) {
    const float v = __uint_as_float((byte & 0x7F) << 20) * 0x1p120f;
    return (byte & 0x7F) == 0x7F ? __uint_as_float(0x7FC00000) : v;
}

// The bf16 pair (scale * 2^119, twice): what turns code bits into code * scale * 2^-7.
__device__ __forceinline__ uint32_t scale_factor(uint32_t byte) {
    const uint32_t bits = __float_as_uint(scale_value(byte) * 0x1p119f);
    return __byte_perm(bits, bits, 0x3232);
}
constexpr uint32_t kUnitFactor = 0x7B007B00;  // of scale 1

__device__ __forceinline__ uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
    uint32_t d;
#if __CUDA_ARCH__ >= 900
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
#else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000));  // -0 leaves a product as it is
#endif
    return d;
}

// The two codes in bits 3:0 and 19:16 as a bf16 pair, times `factor`. Magnitude bits moved to bf16 bits 8:6 read
// code * 2^-126 (0.5 is a bf16 subnormal there), signs go to bit 15.
__device__ __forceinline__ uint32_t expand_pair(uint32_t w, uint32_t factor) {
    return mul_bf16x2((w << 6 & 0x01C001C0) | (w << 12 & 0x80008000), factor);
}

// Pair i of a word: codes i and i + 4.
template <int I>
__device__ __forceinline__ uint32_t expand_pair_of(uint32_t w, uint32_t factor) {
    const uint32_t magnitude = I < 2 ? w << (I < 2 ? 6 - 4 * I : 0) : w >> (I < 2 ? 0 : 4 * I - 6);
    return mul_bf16x2((magnitude & 0x01C001C0) | (w << (12 - 4 * I) & 0x80008000), factor);
}

// Eight codes, in the order 0 4 1 5 2 6 3 7.
__device__ __forceinline__ uint4 expand8(uint32_t w, uint32_t factor) {
    return make_uint4(expand_pair_of<0>(w, factor), expand_pair_of<1>(w, factor), expand_pair_of<2>(w, factor),
                      expand_pair_of<3>(w, factor));
}

// One row of a packed operand.
struct Row {
    const uint8_t *codes, *scales;
    __device__ __forceinline__ Row(const Operand& x, int row, int k_groups)
        : codes(x.codes + row * x.stride),
          scales(x.scales + (x.swizzled ? (long long)(row >> 7) * (2 * k_groups * 512) + (row & 31) * 16 + ((row & 127) >> 5) * 4
                                        : row * x.scale_stride)) {}
    // The eight block scales of group g.
    __device__ __forceinline__ uint2 load_scales(const Operand& x, int g) const {
        const uint8_t* p = scales + (long long)g * x.scale_step;
        return make_uint2(__ldg(reinterpret_cast<const uint32_t*>(p)), __ldg(reinterpret_cast<const uint32_t*>(p + x.scale_second)));
    }
};

}  // namespace nvfp4
