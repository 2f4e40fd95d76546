// Where a scale byte lives (docs/format.md, Layouts), the device twin of src/numerics/layout.rs.
#pragma once
#include "params.cuh"

// 128x4 tiles of 512 bytes; `blocks4` is the number of blocks a row, rounded up to 4.
__device__ __forceinline__ int64_t swizzled_offset(int64_t row, int64_t block, int64_t blocks4) {
    return (row / 128) * 128 * blocks4 + (block / 4) * 512 + (row % 32) * 16 + ((row % 128) / 32) * 4 + block % 4;
}

__device__ __forceinline__ int64_t scale_offset(const Quantized& q, int64_t row, int64_t block) {
    return q.layout == SCALES_SWIZZLED ? swizzled_offset(row, block, q.scale_stride) : row * q.scale_stride + block;
}
