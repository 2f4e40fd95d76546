// A tile of a product by mma.sync, of any operands: any format, layout, alignment and size.
//
// A CTA computes 64 x 128 of D. Operands are dequantized into shared memory, 64 k at a time, as bf16 in rows of 128 bytes
// with the usual swizzle; each 8 values lie in the order 0 4 1 5 2 6 3 7 on both sides, which a sum does not mind.
//
// FAST adds in the tensor core. BLOCK gives the contract's bits (docs/format.md, section 10): an mma from zero is one
// block's exact dot product. NVFP4: B carries its block scale, A's enters with the one rounding of an FMA. MXFP4: the dot
// product of 32 meets 2^(ea + eb). A pair with a BF16 operand is a chain of FMAs over single elements.
#pragma once
#include "gemm_mma.cuh"
#include "gemm_portable.cuh"

namespace nvfp4 {

constexpr int kPortableM = 64, kPortableN = 128, kPortableK = 64, kPortableThreads = 128;
enum Mode { kFast, kBlockNv, kBlockMx };
constexpr int kNanExponent = 1 << 20;

struct PortableTiles {
    uint4 a[kPortableM * 8];
    uint4 b[kPortableN * 8];
    union {
        float a_scales[kPortableM][4];  // NVFP4: of A's four blocks
        int a_exponents[kPortableM][2];  // MXFP4
    };
    int b_exponents[kPortableN][2];
};

union PortableShared {
    PortableTiles tiles;
    WarpStage stage[kPortableThreads / 32];
};

// 32 elements of a row into the tile, and what BLOCK keeps of their scales.
template <int Mode, bool IsA>
__device__ __forceinline__ void fill(const AnyOperand& x, const uint8_t* codes, const uint8_t* scales, int row, bool real, int k0,
                                     int k, PortableTiles& tiles, int r, int half) {
    uint4 v[4] = {};
    const bool some = real && k0 < k;
    if (Mode == kFast && x.format == FORMAT_BF16) {
        if (some) load_bf16_32(x, codes, row, k0, k, v);
    } else {
        const uint4 w = some ? load_codes32(x, codes, row, k0, k) : make_uint4(0, 0, 0, 0);
        if (Mode == kBlockMx) {
            const uint32_t byte = some ? scale_byte(x, scales, row, k0 / 32) : 0;
            const int e = byte == 255 ? kNanExponent : int(byte) - 127;
            if (IsA) tiles.a_exponents[r][half] = e;
            else tiles.b_exponents[r][half] = e;
            v[0] = expand8(w.x, kUnitFactor), v[1] = expand8(w.y, kUnitFactor);
            v[2] = expand8(w.z, kUnitFactor), v[3] = expand8(w.w, kUnitFactor);
        } else if (Mode == kFast && x.format == FORMAT_MXFP4) {
            const float scale = some ? e8m0_decode(scale_byte(x, scales, row, k0 / 32)) : 0.0f;
            const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                uint32_t p[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const __nv_bfloat162 two = __floats2bfloat162_rn(__fmul_rn(e2m1_decode(words[i] >> (4 * j) & 15), scale),
                                                                     __fmul_rn(e2m1_decode(words[i] >> (4 * j + 16) & 15), scale));
                    p[j] = *reinterpret_cast<const uint32_t*>(&two);
                }
                v[i] = make_uint4(p[0], p[1], p[2], p[3]);
            }
        } else {
            uint32_t factor[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t byte = some && k0 + 16 * i < k ? scale_byte(x, scales, row, k0 / 16 + i) : 0;
                factor[i] = scale_factor(byte);
                if (Mode == kBlockNv && IsA) {
                    tiles.a_scales[r][2 * half + i] = scale_value(byte);
                    factor[i] = kUnitFactor;
                }
            }
            v[0] = expand8(w.x, factor[0]), v[1] = expand8(w.y, factor[0]);
            v[2] = expand8(w.z, factor[1]), v[3] = expand8(w.w, factor[1]);
            if (Mode == kFast && x.rescale) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {  // times 2^7
                    v[i].x = mul_bf16x2(v[i].x, 0x43004300), v[i].y = mul_bf16x2(v[i].y, 0x43004300);
                    v[i].z = mul_bf16x2(v[i].z, 0x43004300), v[i].w = mul_bf16x2(v[i].w, 0x43004300);
                }
            }
        }
    }
    uint4* tile = IsA ? tiles.a : tiles.b;
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[r * 8 + ((4 * half + i) ^ (r & 7))] = v[i];
}

// dot * 2^s, rounded once.
__device__ __noinline__ float scaled_slow(float dot, int s) {
    if (s > kNanExponent / 2) return __uint_as_float(0x7FC00000);
    return __double2float_rn(double(dot) * __hiloint2double((s + 1023) << 20, 0));
}
__device__ __forceinline__ float scaled(float dot, int s) {
    if (s >= -90 && s <= 90) return __fmul_rn(dot, __int_as_float((s + 127) << 23));  // exact
    return scaled_slow(dot, s);
}

// MXFP4's blocks of 32 take two mma, whose sum is kept no longer than that.
template <int Mode>
__device__ __forceinline__ void multiply(const PortableTiles& tiles, float (&acc)[2][32], int m0, int n0, int lane) {
    constexpr int kSteps = Mode == kBlockMx ? 2 : 1;
    constexpr int kUnroll = Mode == kBlockNv ? 1 : 4;  // its scales, read ahead, would not fit into registers
#pragma unroll kUnroll
    for (int s0 = 0; s0 < kPortableK / 16; s0 += kSteps) {
        uint32_t a[kSteps][2][4], b[kSteps][4][4];
#pragma unroll
        for (int u = 0; u < kSteps; ++u) {
            const int s = s0 + u;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int r = m0 + 16 * i + (lane & 15);
                load_tiles(a[u][i], &tiles.a[r * 8 + ((2 * s + (lane >> 4)) ^ (r & 7))]);
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int r = n0 + 16 * j + (lane >> 4) * 8 + (lane & 7);
                load_tiles(b[u][j], &tiles.b[r * 8 + ((2 * s + (lane >> 3 & 1)) ^ (r & 7))]);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = m0 + 16 * i + (lane >> 2);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                float* sum = &acc[i][4 * j];
                float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (Mode == kFast) d[0] = sum[0], d[1] = sum[1], d[2] = sum[2], d[3] = sum[3];
#pragma unroll
                for (int u = 0; u < kSteps; ++u) mma_m16n8k16(d, a[u][i], b[u][j / 2][2 * (j & 1)], b[u][j / 2][2 * (j & 1) + 1]);
                if (Mode == kFast) {
                    sum[0] = d[0], sum[1] = d[1], sum[2] = d[2], sum[3] = d[3];
                } else if (Mode == kBlockNv) {
#pragma unroll
                    for (int q = 0; q < 4; ++q) sum[q] = __fmaf_rn(tiles.a_scales[row + 8 * (q / 2)][s0], d[q], sum[q]);
                } else {
                    const int col = n0 + 8 * j + 2 * (lane & 3);
#pragma unroll
                    for (int q = 0; q < 4; ++q) {
                        const int e = tiles.a_exponents[row + 8 * (q / 2)][s0 / 2] + tiles.b_exponents[col + q % 2][s0 / 2];
                        sum[q] = __fadd_rn(sum[q], scaled(d[q], e + 14));
                    }
                }
            }
        }
    }
}

// Rows row0.. and columns col0.. of D, as far as row_end and col_end, over k from k_begin (a multiple of the block) to k_end.
struct Extent {
    int row0, row_end, col0, col_end, k_begin, k_end;
};

template <int Mode>
__device__ __forceinline__ void portable_tile(const AnyOperand& a, const AnyOperand& b, const BatchItem& p, const Epilogue& e,
                                              PortableShared& shared, const Extent& x) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const int m0 = warp / 2 * 32, n0 = warp % 2 * 64;
    float acc[2][32] = {};
    for (int k0 = x.k_begin; k0 < x.k_end; k0 += kPortableK) {
        const int r = threadIdx.x / 2, half = threadIdx.x & 1;
        const int ra = x.row0 + r;
        fill<Mode, true>(a, p.a_codes, p.a_scales, ra, ra < x.row_end, k0 + 32 * half, x.k_end, shared.tiles, r, half);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int rb = x.col0 + r + 64 * i;
            fill<Mode, false>(b, p.b_codes, p.b_scales, rb, rb < x.col_end, k0 + 32 * half, x.k_end, shared.tiles, r + 64 * i, half);
        }
        __syncthreads();
        multiply<Mode>(shared.tiles, acc, m0, n0, lane);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
        store_rows<64>(e, shared.stage[warp], acc[i], x.row0 + m0 + 16 * i, x.col0 + n0, x.row_end, x.col_end);
    __syncthreads();
}

// ---------------------------------------------------------------------------------------------- a chain of FMAs

constexpr int kChainTile = 64, kChainK = 32;

// Element k of a row: code times block scale, or the bf16 value.
__device__ __forceinline__ float inner_value(const AnyOperand& x, const uint8_t* codes, const uint8_t* scales, int row, int k) {
    const uint8_t* p = codes + row * x.stride;
    if (x.format == FORMAT_BF16) return __uint_as_float(uint32_t(reinterpret_cast<const uint16_t*>(p)[k]) << 16);
    const float code = e2m1_decode(p[k >> 1] >> (4 * (k & 1)) & 15);
    return __fmul_rn(code, x.format == FORMAT_NVFP4 ? scale_value(scale_byte(x, scales, row, k / 16))
                                                    : e8m0_decode(scale_byte(x, scales, row, k / 32)));
}

struct ChainShared {
    float a[kChainK][kChainTile + 1], b[kChainK][kChainTile + 1];
};

// 64 x 64 of D by 256 threads.
__device__ __forceinline__ void chain_tile(const AnyOperand& a, const AnyOperand& b, const BatchItem& p, const Epilogue& e,
                                           ChainShared& s, const Extent& x) {
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float acc[4][4] = {};
    for (int k0 = x.k_begin; k0 < x.k_end; k0 += kChainK) {
        const int depth = min(kChainK, x.k_end - k0);
        for (int i = threadIdx.x; i < kChainTile * kChainK; i += 256) {
            const int r = i / kChainK, kk = i % kChainK;
            if (kk >= depth) continue;
            const int ra = x.row0 + r, rb = x.col0 + r;
            s.a[kk][r] = ra < x.row_end ? inner_value(a, p.a_codes, p.a_scales, ra, k0 + kk) : 0.0f;
            s.b[kk][r] = rb < x.col_end ? inner_value(b, p.b_codes, p.b_scales, rb, k0 + kk) : 0.0f;
        }
        __syncthreads();
        for (int kk = 0; kk < depth; ++kk) {
            float u[4], v[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) u[i] = s.a[kk][ty + 16 * i], v[i] = s.b[kk][tx + 16 * i];
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) acc[i][j] = __fmaf_rn(u[i], v[j], acc[i][j]);
        }
        __syncthreads();
    }
    const float beta = beta_of(e);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = x.row0 + ty + 16 * i;
        if (row >= x.row_end) continue;
        const float alpha = row_alpha(e, row, outer_amax(e.b, 0));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int col = x.col0 + tx + 16 * j;
            if (col < x.col_end) store_value(e.d, e.d_dtype, row * e.d_stride + col, finish(e, acc[i][j], alpha, beta, row, col));
        }
    }
}

}  // namespace nvfp4
