// One block of sixteen 16-bit elements: transform, scale byte, codes, at the least number of instructions. The rare
// blocks that the short way could get wrong go the long way of quantize.cu; which those are, the multiplier's sign says.
#pragma once
#include "hadamard.cuh"
#include "layout.cuh"
#include "load.cuh"
#include "philox.cuh"
#include "scale.cuh"
#include "shared.cuh"

template <uint32_t DTYPE>
struct Dtype {};

// Philox' key of every round, in shared memory at `at`: 80 bytes.
constexpr int ROUND_KEYS_BYTES = 80;
struct Draws {
    uint32_t at;
    uint32_t offset_lo, offset_hi;

    __device__ __forceinline__ Draws(uint32_t at, const SeedOffset& s) : at(at), offset_lo(s.offset_lo), offset_hi(s.offset_hi) {
        if (threadIdx.x < 10) {
            store_shared8(at + threadIdx.x * 8,
                          make_uint2(s.seed_lo + threadIdx.x * 0x9E3779B9u, s.seed_hi + threadIdx.x * 0xBB67AE85u));
        }
    }

    // As sr_bits: the random bits of one block. `high` is the counter's fourth word.
    __device__ __forceinline__ uint4 bits(uint32_t block, uint32_t row, uint32_t high) const {
        uint32_t c0 = block, c1 = row, c2 = offset_lo, c3 = high;
#pragma unroll
        for (int pair = 0; pair < 5; pair++) {
            const uint4 k = load_shared16(at + pair * 16);
            philox_round(c0, c1, c2, c3, k.x, k.y);
            philox_round(c0, c1, c2, c3, k.z, k.w);
        }
        return make_uint4(c0, c1, c2, c3);
    }
    __device__ __forceinline__ uint32_t high(int64_t row, bool transposed) const {
        return offset_hi ^ (uint32_t)((uint64_t)row >> 32) ^ (transposed ? 0x80000000u : 0u);
    }
};

// What the blocks of one copy share. In shared memory at `at`: the multiplier of every scale byte (128 f32, with the
// transform's 1/4 in them; negative: take the long way), then eight words of signs, +-1 of elements 2i and 2i + 1 as
// packed elements.
constexpr int BLOCK_TABLE_BYTES = 512 + 32;
struct BlockTable {
    uint32_t at;
    float factor;  // chain TE: fl(S_enc * fl(1/6)), with the transform's 1/4 in it; DIV6: S_enc; SINGLE: 1

    template <uint32_t DTYPE>
    __device__ __forceinline__ BlockTable(uint32_t at, const Quantized& q, Dtype<DTYPE>) : at(at) {
        const DomainScale d = row_domain_scale(q, 0);
        const float quarter = q.hadamard ? 0.25f : 1.0f;
        factor = q.chain == CHAIN_TE ? __fmul_rn(d.m, quarter) : d.encode;
        if (threadIdx.x < 128) {
            const uint32_t byte = threadIdx.x;
            const float e = encode_multiplier(q, byte, d, q.flags & FLAG_RANGE_16_17);
            // Short: a normal scale below the largest. Then b * e < 7, and nothing is Inf or NaN. With a transform the
            // 1/4 must not meet subnormals: with an amax of 2^-100 a block that has a normal scale is above 2^-116.
            const bool range = e >= 1e-30f && e <= 1e30f && d.m >= 1e-30f && (q.chain == CHAIN_SINGLE || d.amax >= 7.9e-31f);
            const bool ordinary = byte >= 8 && byte < 0x7E && range && !d.bad;
            store_shared4(at + byte * 4, as_uint(ordinary ? __fmul_rn(e, quarter) : -1.0f));
        }
        if (threadIdx.x < 8) {
            const uint32_t one = DTYPE == DTYPE_BF16 ? 0x3F80u : 0x3C00u;
            const uint32_t bits = q.sign_mask[0] >> (2 * threadIdx.x);
            store_shared4(at + 512 + threadIdx.x * 4, one | (bits & 1) << 15 | one << 16 | (bits & 2) << 30);
        }
    }
    // No copy.
    __device__ __forceinline__ BlockTable() : at(0), factor(0.0f) {}
};

struct BlockResult {
    uint2 codes;
    uint32_t scale;
};

// a * b + 0 on both elements of a word. With b = +-1 it changes signs, and no zero is negative after it.
template <uint32_t DTYPE>
__device__ __forceinline__ uint32_t apply_signs(uint32_t a, uint32_t b) {
    uint32_t r;
    if (DTYPE == DTYPE_BF16)
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0));
    else
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0));
    return r;
}

template <uint32_t DTYPE>
__device__ __forceinline__ void unpack(float (&x)[8], const uint32_t* w) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = low_element<DTYPE>(w[i]);
        x[2 * i + 1] = high_element<DTYPE>(w[i]);
    }
}

// The long way: any values, any scale. `random` is only looked at under stochastic rounding.
template <uint32_t DTYPE>
__device__ __noinline__ BlockResult quantize_block_exact(uint4 first, uint4 second, const Quantized& q, uint4 random,
                                                         float tile_amax) {
    const DomainScale d = row_domain_scale(q, 0);
    const uint32_t w[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
    float y[16];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        y[2 * i] = low_element<DTYPE>(w[i]);
        y[2 * i + 1] = high_element<DTYPE>(w[i]);
    }
    if (q.hadamard) {
#pragma unroll
        for (int i = 0; i < 16; i++)
            if ((q.sign_mask[0] >> i) & 1) y[i] = -y[i];
        butterfly16(y);
#pragma unroll
        for (int i = 0; i < 16; i++) y[i] = as_float(bf16x2(0.0f, hadamard_scale(y[i], 0.25f)) & 0xFFFF0000u);
    }
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) largest = max(largest, as_uint(y[i]) & 0x7FFFFFFFu);
    const float b = q.block2d ? tile_amax : as_float(largest);
    BlockResult r;
    if (!is_finite(b) || d.bad) {
        r.scale = E4M3_NAN;
        r.codes = make_uint2(0, 0);
        return r;
    }
    r.scale = e4m3_encode(unrounded_block_scale(q, b, d));
    const float e = encode_multiplier(q, r.scale, d, q.flags & FLAG_RANGE_16_17);
    float lo[8], hi[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        lo[i] = y[i];
        hi[i] = y[i + 8];
    }
    if (q.stochastic) {
        r.codes.x = e2m1_encode8_stochastic(lo, e, random.x, random.y);
        r.codes.y = e2m1_encode8_stochastic(hi, e, random.z, random.w);
    } else {
        r.codes.x = e2m1_encode8(lo, e, true);
        r.codes.y = e2m1_encode8(hi, e, true);
    }
    return r;
}

// `w` holds the elements, two a word; `block`, `row` and `high` are the counter of the random bits; `tile_amax` replaces
// the block's own amax under 16x16 tiles.
template <uint32_t DTYPE, bool TRANSFORM, bool STOCHASTIC>
__device__ __forceinline__ BlockResult quantize_block(const uint32_t (&w)[8], const Quantized& q, const BlockTable& table,
                                                      const Draws& draws, uint32_t block, uint32_t row, uint32_t high,
                                                      float tile_amax) {
    // The values to round, packed: x itself, or four times the transformed value rounded to bf16 (the factor 1/4 is
    // exact, so it can wait for the multiplier).
    constexpr uint32_t PACKED = TRANSFORM ? DTYPE_BF16 : DTYPE;
    uint32_t y[8];
    if (TRANSFORM) {
        const uint4 s0 = load_shared16(table.at + 512), s1 = load_shared16(table.at + 528);
        const uint32_t s[8] = {s0.x, s0.y, s0.z, s0.w, s1.x, s1.y, s1.z, s1.w};
        float t[16];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t signed_pair = apply_signs<DTYPE>(w[i], s[i]);
            t[2 * i] = low_element<DTYPE>(signed_pair);
            t[2 * i + 1] = high_element<DTYPE>(signed_pair);
        }
        butterfly16(t);
#pragma unroll
        for (int i = 0; i < 8; i++) y[i] = bf16x2(t[2 * i], t[2 * i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) y[i] = w[i];
    }
    const float b = !TRANSFORM && !STOCHASTIC && q.block2d ? tile_amax : block_amax<PACKED>(y);
    const float base = q.chain == CHAIN_TE ? __fmul_rn(b, table.factor)
                                           : __fmul_rn(__fdiv_rn(TRANSFORM ? __fmul_rn(b, 0.25f) : b, 6.0f), table.factor);
    uint4 random = make_uint4(0, 0, 0, 0);
    if (STOCHASTIC) random = draws.bits(block, row, high);
    BlockResult r;
    r.scale = e4m3_encode(base) & 0x7Fu;
    const float e = as_float(load_shared4(table.at + r.scale * 4));
    if (e < 0.0f) {
        return quantize_block_exact<DTYPE>(make_uint4(w[0], w[1], w[2], w[3]), make_uint4(w[4], w[5], w[6], w[7]), q, random,
                                           tile_amax);
    }
    float lo[8], hi[8];
    unpack<PACKED>(lo, y);
    unpack<PACKED>(hi, y + 4);
    if (STOCHASTIC) {
        r.codes.x = e2m1_encode8_stochastic(lo, e, random.x, random.y);
        r.codes.y = e2m1_encode8_stochastic(hi, e, random.z, random.w);
    } else {
        r.codes.x = e2m1_encode8(lo, e, false);
        r.codes.y = e2m1_encode8(hi, e, false);
    }
    return r;
}
