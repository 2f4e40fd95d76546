// The end of every GEMM kernel: D = act(fl(fl(fl(alpha' * acc) + fl(beta * C)) + bias)), then one cast (docs/format.md,
// section 10). Device twin of src/numerics/gemm.rs.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "activation.cuh"

namespace nvfp4 {

enum Dtype : int { kF32 = 0, kBf16 = 1, kF16 = 2 };

// The outer scale of an operand: (a, C) of its rows. Without an amax a is `factor` and C is 1 (SINGLE, MXFP4, BF16).
struct OuterScale {
    const float* amax;
    int domain_rows;  // 0 = one amax
    float c;
    float factor;        // fl(1/6) for ENCODE_CENTRIC, else 1
    float range_decode;  // 17/16 for range_16_17, else 1
};

struct Epilogue {
    const float* alpha;  // device memory; NULL = alpha_value
    const float* beta;   // NULL = beta_value
    OuterScale a, b;
    const void* bias;    // [n] or NULL
    const void* c;       // [m, n] or NULL
    void* d;             // [m, n]
    long long c_stride, d_stride;
    int bias_dtype, c_dtype, d_dtype;
    int activation;
    const float* row_factors;  // NULL = 1
    const float* col_factors;
    float operand_factor;      // exact power of two that the accumulator lacks
    float alpha_value, beta_value;
};

__device__ __forceinline__ float beta_of(const Epilogue& e) { return e.beta ? *e.beta : e.beta_value; }

__device__ __forceinline__ float load_value(const void* p, int dtype, long long i) {
    if (dtype == kF32) return static_cast<const float*>(p)[i];
    if (dtype == kBf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
    return __half2float(static_cast<const __half*>(p)[i]);
}

__device__ __forceinline__ void store_value(void* p, int dtype, long long i, float v) {
    if (dtype == kF32) static_cast<float*>(p)[i] = v;
    else if (dtype == kBf16) static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(v);
    else static_cast<__half*>(p)[i] = __float2half_rn(v);
}

__device__ __forceinline__ float outer_amax(const OuterScale& s, int row) {
    if (!s.amax) return s.factor;
    const float a = s.amax[s.domain_rows ? row / s.domain_rows : 0];
    return a == 0.0f ? 0.0f : fmaxf(a, __fdiv_rn(s.c, 3.402823466e38f));
}

// g of two scale domains (section 3), times 17/16 for each operand that needs it, A first.
__device__ __forceinline__ float global_factor(const OuterScale& a, float a_amax, const OuterScale& b, float b_amax) {
    const float c_a = a.amax ? a.c : 1.0f, c_b = b.amax ? b.c : 1.0f;
    const float product = __fmul_rn(a_amax, b_amax);
    const float g = product >= 0x1p-100f && product <= 0x1p100f
                        ? __fdiv_rn(product, __fmul_rn(c_a, c_b))
                        : __fmul_rn(__fmul_rn(a_amax, __fdiv_rn(1.0f, c_a)), __fmul_rn(b_amax, __fdiv_rn(1.0f, c_b)));
    return __fmul_rn(__fmul_rn(g, a.range_decode), b.range_decode);
}

// alpha' of a row, as far as it does not depend on the column.
__device__ __forceinline__ float row_alpha(const Epilogue& e, int row, float b_amax) {
    const float alpha = e.alpha ? *e.alpha : e.alpha_value;
    const float a = __fmul_rn(alpha, global_factor(e.a, outer_amax(e.a, row), e.b, b_amax));
    return e.row_factors ? __fmul_rn(a, e.row_factors[row]) : a;
}

// One element of D before its cast. `alpha` is row_alpha, unless B's scale depends on the column.
__device__ __forceinline__ float finish(const Epilogue& e, float acc, float alpha, float beta, int row, int col) {
    if (e.b.domain_rows) alpha = row_alpha(e, row, outer_amax(e.b, col));
    if (e.col_factors) alpha = __fmul_rn(alpha, e.col_factors[col]);
    float d = __fmul_rn(alpha, __fmul_rn(acc, e.operand_factor));
    if (beta != 0.0f) d = __fadd_rn(d, __fmul_rn(beta, load_value(e.c, e.c_dtype, row * e.c_stride + col)));
    if (e.bias) d = __fadd_rn(d, load_value(e.bias, e.bias_dtype, col));
    return activate(e.activation, d);
}

// Two neighbours of a row, in one store; `at` is even and d aligned to a pair.
__device__ __forceinline__ void store_pair(void* d, int dtype, long long at, float x, float y) {
    if (dtype == kF32) *reinterpret_cast<float2*>(static_cast<float*>(d) + at) = make_float2(x, y);
    else if (dtype == kBf16) *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(d) + at) = __floats2bfloat162_rn(x, y);
    else *reinterpret_cast<__half2*>(static_cast<__half*>(d) + at) = __floats2half2_rn(x, y);
}

// Stores 16 x N accumulators of one warp, in the layout of an m16n8 fragment: thread (lane / 4, lane % 4) holds rows
// lane / 4 and + 8, columns 2 (lane % 4) and + 1 of every 8. They pass through 4 KiB of the warp's own shared memory,
// 64 columns at a time, so that whole lines are written and the code above stands once.
constexpr int kStageColumns = 64;
using WarpStage = float[16 * kStageColumns];

// Groups of 8 columns change places by the row's low bits, so that neither side meets a bank conflict.
__device__ __forceinline__ float2* staged(WarpStage& stage, int row, int group, int q) {
    return reinterpret_cast<float2*>(&stage[row * kStageColumns + (((group ^ row) & 7) << 3) + 2 * q]);
}

// 16 rows of 64 columns from the stage, two columns a lane: a whole tile with nothing but alpha' and perhaps a bias, free
// of branches.
template <int D, bool Bias>
__device__ __forceinline__ void store_plain(const Epilogue& e, WarpStage& stage, float alphas, int row0, int col, int lane) {
    const float b0 = Bias ? load_value(e.bias, e.bias_dtype, col) : 0.0f, b1 = Bias ? load_value(e.bias, e.bias_dtype, col + 1) : 0.0f;
#pragma unroll 8
    for (int i = 0; i < 16; ++i) {
        const float2 v = *staged(stage, i, lane >> 2, lane & 3);
        const float alpha = __shfl_sync(0xFFFFFFFF, alphas, i);
        float x = __fmul_rn(alpha, __fmul_rn(v.x, e.operand_factor)), y = __fmul_rn(alpha, __fmul_rn(v.y, e.operand_factor));
        if (Bias) x = __fadd_rn(x, b0), y = __fadd_rn(y, b1);
        store_pair(e.d, D, (row0 + i) * e.d_stride + col, x, y);
    }
}

// The same for every other case.
__device__ __noinline__ void store_any(const Epilogue& e, WarpStage& stage, float alphas, int row0, int col, int m, int n_end, int lane) {
    const float beta = beta_of(e);
    for (int i = 0; i < 16; ++i) {
        const float2 v = *staged(stage, i, lane >> 2, lane & 3);
        const float alpha = __shfl_sync(0xFFFFFFFF, alphas, i);
        const int row = row0 + i;
        if (row >= m) break;
        if (col < n_end) store_value(e.d, e.d_dtype, row * e.d_stride + col, finish(e, v.x, alpha, beta, row, col));
        if (col + 1 < n_end) store_value(e.d, e.d_dtype, row * e.d_stride + col + 1, finish(e, v.y, alpha, beta, row, col + 1));
    }
}

template <int N>
__device__ __forceinline__ void store_rows(const Epilogue& e, WarpStage& stage, const float (&acc)[N / 2], int row0, int n0, int m,
                                           int n_end) {
    const int lane = threadIdx.x & 31, q = lane & 3, r = lane >> 2;
    const float alphas = lane < 16 && row0 + lane < m ? row_alpha(e, row0 + lane, outer_amax(e.b, 0)) : 0.0f;  // one row a lane
    const bool plain = row0 + 16 <= m && n0 + N <= n_end && beta_of(e) == 0.0f && !e.activation && !e.col_factors &&
                       !e.b.domain_rows && e.d_stride % 2 == 0 &&
                       (reinterpret_cast<uintptr_t>(e.d) & (e.d_dtype == kF32 ? 7 : 3)) == 0;
    const int kind = plain ? e.d_dtype * 2 + (e.bias != nullptr) : 6;
#pragma unroll
    for (int c = 0; c < N; c += kStageColumns) {
#pragma unroll
        for (int i = 0; i < kStageColumns / 8; ++i) {
            const float* v = &acc[(c / 8 + i) * 4];
            *staged(stage, r, i, q) = make_float2(v[0], v[1]);
            *staged(stage, r + 8, i, q) = make_float2(v[2], v[3]);
        }
        __syncwarp();
        const int col = n0 + c + 2 * lane;
        switch (kind) {
            case 0: store_plain<kF32, false>(e, stage, alphas, row0, col, lane); break;
            case 1: store_plain<kF32, true>(e, stage, alphas, row0, col, lane); break;
            case 2: store_plain<kBf16, false>(e, stage, alphas, row0, col, lane); break;
            case 3: store_plain<kBf16, true>(e, stage, alphas, row0, col, lane); break;
            case 4: store_plain<kF16, false>(e, stage, alphas, row0, col, lane); break;
            case 5: store_plain<kF16, true>(e, stage, alphas, row0, col, lane); break;
            default: store_any(e, stage, alphas, row0, col, m, n_end, lane);
        }
        __syncwarp();
    }
}

}  // namespace nvfp4
