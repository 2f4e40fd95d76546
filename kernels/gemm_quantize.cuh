// The end of a GEMM whose D is an NVFP4 matrix: what gemm_epilogue.cuh would store in f32, quantized where it is. Blocks of 16
// along a row, nearest rounding, amax given. Device twin of quantize_tile.cuh for these; no conversion instruction is used.
#pragma once
#define NVFP4_NO_CONVERSIONS
#include "e2m1.cuh"
#include "gemm_epilogue.cuh"
#include "scale.cuh"

namespace nvfp4 {

__device__ __forceinline__ uint32_t codes_of(const float (&x)[8], float factor) {
    uint32_t acc = 0;
#pragma unroll
    for (int i = 7; i >= 0; --i) acc = e2m1_push(acc, x[i], e2m1_nearest_bits(fminf(__fmul_rn(fabsf(x[i]), factor), 6.0f)));
    return acc - PACK_RESIDUE;
}

// 16 rows of 64 columns from the stage, two blocks a lane.
__device__ __noinline__ void store_staged_quantized(const Epilogue& e, const Quantized& q, WarpStage& stage, int row0, int col0, int m, int n) {
    const int lane = threadIdx.x & 31;
    const float beta = beta_of(e);
    for (int i = lane; i < 64; i += 32) {
        const int r = i >> 2, block = i & 3, row = row0 + r, col = col0 + 16 * block;
        if (row >= m || col >= n) continue;
        const float alpha = row_alpha(e, row, outer_amax(e.b, 0));
        float v[2][8];
        uint32_t largest = 0;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float2 pair = *staged(stage, r, 2 * block + (j >> 2), j & 3);
            const int at = 2 * j;
            float* to = &v[j >> 2][at & 7];
            to[0] = col + at < n ? finish(e, pair.x, alpha, beta, row, col + at) : 0.0f;
            to[1] = col + at + 1 < n ? finish(e, pair.y, alpha, beta, row, col + at + 1) : 0.0f;
            largest = max(largest, max(as_uint(to[0]) & 0x7FFFFFFFu, as_uint(to[1]) & 0x7FFFFFFFu));
        }
        const DomainScale d = row_domain_scale(q, row);
        uint32_t scale = E4M3_NAN, codes[2] = {0, 0};
        if (largest < INFINITY_BITS && !d.bad) {
            scale = e4m3_encode(unrounded_block_scale(q, as_float(largest), d));
            const float factor = encode_multiplier(q, scale, d, q.flags & FLAG_RANGE_16_17);
            codes[0] = codes_of(v[0], factor);
            codes[1] = codes_of(v[1], factor);
        }
        const int bytes = (min(16, n - col) + 1) / 2;
        uint8_t* to = q.codes + row * q.code_stride + col / 2;
        if (bytes == 8 && (reinterpret_cast<uintptr_t>(to) & 7) == 0) {
            *reinterpret_cast<uint2*>(to) = make_uint2(codes[0], codes[1]);
        } else {
            for (int j = 0; j < bytes; ++j) to[j] = uint8_t(codes[j >> 2] >> (8 * (j & 3)));
        }
        q.scales[scale_offset(q, row, col / 16)] = uint8_t(scale);
    }
}

// As store_rows<64>.
__device__ __forceinline__ void store_quantized(const Epilogue& e, const Quantized& q, WarpStage& stage, const float (&acc)[32], int row0, int col0,
                                                int m, int n) {
    const int lane = threadIdx.x & 31, t = lane & 3, r = lane >> 2;
#pragma unroll
    for (int i = 0; i < kStageColumns / 8; ++i) {
        *staged(stage, r, i, t) = make_float2(acc[4 * i], acc[4 * i + 1]);
        *staged(stage, r + 8, i, t) = make_float2(acc[4 * i + 2], acc[4 * i + 3]);
    }
    __syncwarp();
    store_staged_quantized(e, q, stage, row0, col0, m, n);
    __syncwarp();
}

}  // namespace nvfp4
