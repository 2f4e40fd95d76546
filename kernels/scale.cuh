// From the amax of a domain and of a block to the scale byte and the multiplier (docs/format.md sections 2 to 4), the
// device twin of src/numerics/scale.rs. Every f32 operation is one IEEE operation, as the contract says.
#pragma once
#include "e4m3.cuh"
#include "e8m0.cuh"
#include "layout.cuh"
#include "params.cuh"

__device__ constexpr uint32_t INFINITY_BITS = 0x7F800000u;
__device__ constexpr float FLOAT_MAX = 3.40282346638528859812e+38f;
__device__ constexpr float ONE_SIXTH = 0.16666667163372039795f;       // fl(1/6)
__device__ constexpr float RANGE_ENCODE = 0.94117647409439086914f;    // fl(16/17)
__device__ constexpr float RANGE_DECODE = 1.0625f;                    // 17/16
__device__ constexpr float EDEN_VAL_MAX = 6.07210588455200195312f;    // fl(6 / fl(fl(17/16) * fl(0.93)))

// NaN and Inf are the patterns from Inf up.
__device__ __forceinline__ bool is_finite(float x) { return (as_uint(x) & 0x7FFFFFFFu) < INFINITY_BITS; }

// What the blocks of one scale domain share.
struct DomainScale {
    float amax;
    float encode;  // S_enc
    float decode;  // S_dec = fl(1 / S_enc)
    float m;       // fl(S_enc * fl(1/6))
    bool bad;      // a caller-given amax that is NaN, Inf or negative: every scale byte of the domain is NaN
};

__device__ __forceinline__ DomainScale domain_scale(const Quantized& q, float amax) {
    DomainScale d;
    d.amax = amax;
    d.bad = false;
    d.encode = 1.0f;
    if (q.format == FORMAT_NVFP4 && q.chain != CHAIN_SINGLE) {
        d.bad = !(amax >= 0.0f) || !is_finite(amax);
        if (amax != 0.0f && !d.bad) d.encode = fminf(__fdiv_rn(q.c, amax), FLOAT_MAX);
    }
    d.decode = __frcp_rn(d.encode);
    d.m = __fmul_rn(d.encode, ONE_SIXTH);
    return d;
}

// The domain of a row of the copy.
__device__ __forceinline__ DomainScale row_domain_scale(const Quantized& q, int64_t row) {
    if (!q.amax) return domain_scale(q, 1.0f);
    return domain_scale(q, q.amax[q.domain_rows == 0 ? 0 : row / q.domain_rows]);
}

// NVFP4 block scale before its cast; b is the largest magnitude of the block or tile.
__device__ __forceinline__ float unrounded_block_scale(const Quantized& q, float b, const DomainScale& d) {
    if (q.select == SELECT_MS_EDEN) return __fmul_rn(__fdiv_rn(b, EDEN_VAL_MAX), d.encode);
    if (q.chain == CHAIN_TE) return __fmul_rn(b, d.m);
    float sixth = __fdiv_rn(b, 6.0f);
    return q.chain == CHAIN_DIV6 ? __fmul_rn(sixth, d.encode) : sixth;
}

// MXFP4 scale byte; b is finite (docs/format.md section 4).
__device__ __forceinline__ uint32_t mx_block_scale(const Quantized& q, float b) {
    if (b == 0.0f) return 0;
    // Subnormals are made normal, exactly; their exponents clamp to -127 under every rule in any case.
    int shift = 0;
    if (as_uint(b) < 0x00800000u) {
        b = __fmul_rn(b, 16777216.0f);
        shift = 24;
    }
    int exponent = (int)(as_uint(b) >> 23) - 127 - shift;
    uint32_t mantissa = as_uint(b) & 0x7FFFFFu;  // of 1.m
    switch (q.rule) {
        case RULE_FLOOR: exponent -= 2; break;
        case RULE_CEIL: exponent += -2 + (mantissa > 0x400000u); break;   // more than 1.5
        case RULE_EVEN: exponent += -2 + (mantissa >= 0x600000u); break;  // 1.75 is the tie that goes up
        default: exponent += mantissa > 0; break;
    }
    exponent = max(-127, min(127, exponent));
    uint32_t byte = (uint32_t)(exponent + 127);
    if (q.rule == RULE_ENCODE_CENTRIC && q.block2d && (q.flags & FLAG_HALF_SCALE) && byte > 0) {
        float unscaled = shift ? __fmul_rn(b, 5.9604644775390625e-8f) : b;
        byte -= __fmul_rn(unscaled, e8m0_inverse(byte)) < 0.87f;
    }
    return byte;
}

// min(fl(1 / fl(s * S_dec)), FLT_MAX); MXFP4: 1 / s. `range` applies the option of section 7.
__device__ __forceinline__ float encode_multiplier(const Quantized& q, uint32_t byte, const DomainScale& d, bool range) {
    float e = q.format == FORMAT_MXFP4 ? e8m0_inverse(byte)
                                       : fminf(__frcp_rn(__fmul_rn(e4m3_decode_finite(byte), d.decode)), FLOAT_MAX);
    return range ? __fmul_rn(e, RANGE_ENCODE) : e;
}

// Factor that a block's elements are decoded with; NaN for the NaN byte.
__device__ __forceinline__ float decode_factor(const Quantized& q, uint32_t byte, float amax) {
    float f;
    if (q.format == FORMAT_MXFP4) {
        f = e8m0_decode(byte);
    } else if (q.chain == CHAIN_SINGLE) {
        f = e4m3_decode(byte);
    } else {
        float s = e4m3_decode(byte);
        float a = amax == 0.0f ? 0.0f : fmaxf(amax, __fdiv_rn(q.c, FLOAT_MAX));
        float reciprocal = __frcp_rn(q.c);
        if (!(amax == amax)) a = amax;  // fmaxf drops a NaN
        f = a <= 7.5955880946100192e35f /* fl(FLT_MAX / 448) */ ? __fmul_rn(__fmul_rn(s, a), reciprocal)
                                                                : __fmul_rn(s, __fmul_rn(a, reciprocal));
    }
    return q.flags & FLAG_RANGE_16_17 ? __fmul_rn(f, RANGE_DECODE) : f;
}

// A decoded element, clamped to the largest finite f32; NaN stays, as the quiet NaN 0x7FC00000 on every backend.
__device__ __forceinline__ float decode_value(const Quantized& q, uint32_t code, float factor) {
    float v = e2m1_decode(code);
    if (q.format == FORMAT_MXFP4 && q.rule == RULE_ENCODE_CENTRIC) v = __fmul_rn(v, ONE_SIXTH);
    v = __fmul_rn(v, factor);
    return v != v ? as_float(0x7FC00000u) : fminf(fmaxf(v, -FLOAT_MAX), FLOAT_MAX);
}

// Element (r, c) of a quantized matrix in its own orientation.
__device__ __forceinline__ float quantized_element(const Quantized& q, int64_t r, int64_t c) {
    const uint8_t* codes = q.codes + r * q.code_stride;
    if (q.format == FORMAT_BF16) return as_float((uint32_t) reinterpret_cast<const uint16_t*>(codes)[c] << 16);
    const uint32_t byte = q.scales[scale_offset(q, r, c / (q.format == FORMAT_MXFP4 ? 32 : 16))];
    const float amax = q.amax ? q.amax[q.domain_rows == 0 ? 0 : r / q.domain_rows] : 1.0f;
    return decode_value(q, codes[c / 2] >> (4 * (c & 1)), decode_factor(q, byte, amax));
}

// Policy SATURATE (section 3): Inf becomes the input type's largest finite value, NaN becomes 0.
__device__ __forceinline__ float saturate_nonfinite(float v, float largest) {
    if (is_finite(v)) return v;
    return v != v ? 0.0f : copysignf(largest, v);
}

__device__ __forceinline__ float largest_finite(uint32_t dtype) {
    return dtype == DTYPE_BF16 ? as_float(0x7F7F0000u) : dtype == DTYPE_F16 ? 65504.0f : FLOAT_MAX;
}
