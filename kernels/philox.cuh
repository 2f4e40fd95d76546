// Philox4x32-10 and the counters of docs/format.md section 7, the device twin of src/numerics/philox.rs.
#pragma once
#include <cstdint>

struct SeedOffset {
    uint32_t seed_lo, seed_hi, offset_lo, offset_hi;
};

// The call's key: device memory where the caller gave a pointer (graph replays draw anew), else the values. With a
// pointer, `offset` holds bits to set in the offset read there.
__device__ __forceinline__ SeedOffset read_seed_offset(const unsigned long long* pointer, unsigned long long seed,
                                                       unsigned long long offset) {
    if (pointer) {
        seed = pointer[0];
        offset |= pointer[1];
    }
    return {(uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)offset, (uint32_t)(offset >> 32)};
}

// One 32 x 32 -> 64 multiply; written in PTX because the compiler adds a zero to the high half otherwise.
__device__ __forceinline__ void wide_product(uint32_t x, uint32_t y, uint32_t& lo, uint32_t& hi) {
    asm("{\n.reg .b64 p;\nmul.wide.u32 p, %2, %3;\nmov.b64 {%0, %1}, p;\n}" : "=r"(lo), "=r"(hi) : "r"(x), "r"(y));
}

__device__ __forceinline__ void philox_round(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0, uint32_t k1) {
    uint32_t a_lo, a_hi, b_lo, b_hi;
    wide_product(c0, 0xD2511F53u, a_lo, a_hi);
    wide_product(c2, 0xCD9E8D57u, b_lo, b_hi);
    c0 = b_hi ^ c1 ^ k0;
    c2 = a_hi ^ c3 ^ k1;
    c1 = b_lo;
    c3 = a_lo;
}

__device__ __forceinline__ uint4 philox4x32_10(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                                               uint32_t k1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        philox_round(c0, c1, c2, c3, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

// Random bits of elements 16*block .. 16*block+15 of row `row` (global coordinates of the copy being quantized).
__device__ __forceinline__ uint4 sr_bits(const SeedOffset& s, int64_t block, int64_t row, bool transposed) {
    return philox4x32_10((uint32_t)block, (uint32_t)row, s.offset_lo,
                         s.offset_hi ^ (uint32_t)((uint64_t)row >> 32) ^ (transposed ? 0x80000000u : 0u), s.seed_lo,
                         s.seed_hi);
}
