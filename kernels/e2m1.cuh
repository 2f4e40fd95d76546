// E2M1 codes (docs/format.md section 1), the device twin of src/numerics/e2m1.rs. Encoders take unscaled values and
// the block's multiplier e, form v = fl(x * e), and pack eight codes a word, element 0 in the low nibble.
//
// No unit of sm_80..sm_90a rounds to E2M1, so it is done with float adds, which have twice the rate of compares and
// selects. On the "code axis" p(v) = min(2v, v + 2, v/2 + 4) the codes are the integers: rounding p to an integer,
// ties to even, is rounding v to E2M1, ties to the even code. Adding 2^23 (its last place is 1) rounds; because
// rounding is monotone, the minimum of the three rounded sums is the rounded minimum, and each sum is one rounding
// of an exact value. For stochastic rounding the same sums are truncated to multiples of 2^-8.
// Cost an element: 1 multiply, 3 adds, 1 three-way minimum, 2 to pack (with the sign).
#pragma once
#include <cstdint>

// Which byte of a word of random bits serves which of four elements: the order of cvt.rs.satfinite.e2m1x4.
__device__ constexpr uint32_t SR_BYTE[4] = {0, 2, 1, 3};

// Architecture-specific (a) and family-specific (f) images of Blackwell have the conversion; see arch guards below.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 && \
    (defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__))
#define NVFP4_CVT_E2M1 1
#if __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030
#if defined(__CUDA_ARCH_SPECIFIC__)
#define NVFP4_CVT_RS_E2M1 1
#endif
#endif
#endif

__device__ __forceinline__ float as_float(uint32_t u) { return __uint_as_float(u); }
__device__ __forceinline__ uint32_t as_uint(float f) { return __float_as_uint(f); }

// 2^23 + code of v rounded to nearest, as bits; v in [0, 7).
__device__ __forceinline__ uint32_t e2m1_nearest_bits(float v) {
    int a = __float_as_int(__fmaf_rn(v, 2.0f, 8388608.0f));
    int b = __float_as_int(__fadd_rn(v, 8388610.0f));
    int c = __float_as_int(__fmaf_rn(v, 0.5f, 8388612.0f));
    return (uint32_t)min(min(a, b), c);
}

// 2^23 + code of v rounded stochastically with byte BYTE of `word`, as bits; v in [0, 6].
template <uint32_t BYTE>
__device__ __forceinline__ uint32_t e2m1_stochastic_bits(float v, uint32_t word) {
    // 2^15 + floor(256 p) / 256
    int a = __float_as_int(__fmaf_rz(v, 2.0f, 32768.0f));
    int b = __float_as_int(__fadd_rz(v, 32770.0f));
    int c = __float_as_int(__fmaf_rz(v, 0.5f, 32772.0f));
    float p = __int_as_float(min(min(a, b), c));
    // 2^23 + byte; times 2^-8 that is 2^15 + byte / 256. The sum's last place is 2^-7, which the floor never sees.
    float r = as_float(__byte_perm(word, 0x4B000000u, 0x7540u + BYTE));
    float t = __fmaf_rz(r, 0.00390625f, p);
    return as_uint(__fadd_rz(t, 8388608.0f - 65536.0f));
}

// What packing sums of 2^23 leaves behind: 0x4B000000 * (1 + 16) mod 2^32.
__device__ constexpr uint32_t PACK_RESIDUE = 0xFB000000u;

// acc * 16 + sign(x) * 8 + (bits - 2^23), the 2^23 left for PACK_RESIDUE.
__device__ __forceinline__ uint32_t e2m1_push(uint32_t acc, float x, uint32_t bits) {
    return (__funnelshift_l(as_uint(x), acc, 1) << 3) + bits;
}

#ifdef NVFP4_CVT_E2M1
__device__ __forceinline__ uint32_t cvt_e2m1x8(const float (&v)[8]) {
    uint32_t r;
    asm("{\n.reg .b8 a, b, c, d;\n"
        "cvt.rn.satfinite.e2m1x2.f32 a, %2, %1;\n"
        "cvt.rn.satfinite.e2m1x2.f32 b, %4, %3;\n"
        "cvt.rn.satfinite.e2m1x2.f32 c, %6, %5;\n"
        "cvt.rn.satfinite.e2m1x2.f32 d, %8, %7;\n"
        "mov.b32 %0, {a, b, c, d};\n}"
        : "=r"(r)
        : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
    return r;
}
#endif

// Eight codes, rounded to nearest. `clamp` is wanted where |x| * e may reach 7.
__device__ __forceinline__ uint32_t e2m1_encode8(const float (&x)[8], float e, bool clamp) {
#ifdef NVFP4_CVT_E2M1
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = __fmul_rn(x[i], e);
    return cvt_e2m1x8(v);
#else
    uint32_t acc = 0;
    if (clamp) {
#pragma unroll
        for (int i = 7; i >= 0; i--)
            acc = e2m1_push(acc, x[i], e2m1_nearest_bits(fminf(__fmul_rn(fabsf(x[i]), e), 6.0f)));
    } else {
#pragma unroll
        for (int i = 7; i >= 0; i--) acc = e2m1_push(acc, x[i], e2m1_nearest_bits(__fmul_rn(fabsf(x[i]), e)));
    }
    return acc - PACK_RESIDUE;
#endif
}

// Eight codes, rounded stochastically with two words of random bits (section 7).
__device__ __forceinline__ uint32_t e2m1_encode8_stochastic(const float (&x)[8], float e, uint32_t word0,
                                                            uint32_t word1) {
#ifdef NVFP4_CVT_RS_E2M1
    uint16_t lo, hi;
    asm("cvt.rs.satfinite.e2m1x4.f32 %0, {%4, %3, %2, %1}, %5;"
        : "=h"(lo)
        : "f"(__fmul_rn(x[0], e)), "f"(__fmul_rn(x[1], e)), "f"(__fmul_rn(x[2], e)), "f"(__fmul_rn(x[3], e)), "r"(word0));
    asm("cvt.rs.satfinite.e2m1x4.f32 %0, {%4, %3, %2, %1}, %5;"
        : "=h"(hi)
        : "f"(__fmul_rn(x[4], e)), "f"(__fmul_rn(x[5], e)), "f"(__fmul_rn(x[6], e)), "f"(__fmul_rn(x[7], e)), "r"(word1));
    return (uint32_t)lo | ((uint32_t)hi << 16);
#else
    uint32_t acc = 0;
#define NVFP4_STEP(I, WORD) \
    acc = e2m1_push(acc, x[I], e2m1_stochastic_bits<SR_BYTE[(I) % 4]>(fminf(__fmul_rn(fabsf(x[I]), e), 6.0f), WORD));
    NVFP4_STEP(7, word1) NVFP4_STEP(6, word1) NVFP4_STEP(5, word1) NVFP4_STEP(4, word1)
    NVFP4_STEP(3, word0) NVFP4_STEP(2, word0) NVFP4_STEP(1, word0) NVFP4_STEP(0, word0)
#undef NVFP4_STEP
    return acc - PACK_RESIDUE;
#endif
}

// The value of a code in the low four bits: (code & 7) << 22 read as a float is the value times 2^-126.
__device__ __forceinline__ float e2m1_decode(uint32_t code) {
    float magnitude = __fmul_rn(as_float((code & 7u) << 22), 8.507059173023462e37f);
    return as_float(as_uint(magnitude) | ((code & 8u) << 28));
}
