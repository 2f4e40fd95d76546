// E8M0 scale bytes (docs/format.md sections 1 and 4), the device twin of src/numerics/e8m0.rs.
#pragma once
#include "e2m1.cuh"

__device__ constexpr uint32_t E8M0_NAN = 255;

// 2^(byte - 127); byte 0 is the subnormal 2^-127.
__device__ __forceinline__ float e8m0_decode(uint32_t byte) {
    uint32_t bits = byte == 0 ? 0x00400000u : byte << 23;
    return as_float(byte == E8M0_NAN ? 0x7FC00000u : bits);
}

// 2^-(byte - 127), exact: byte 254 gives the subnormal 2^-127. Byte 255 never gets here.
__device__ __forceinline__ float e8m0_inverse(uint32_t byte) { return e8m0_decode(254u - byte); }
