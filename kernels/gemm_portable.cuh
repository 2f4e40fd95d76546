// What the portable GEMM kernels share: operands in any format, layout and alignment, read 8 or 32 elements at a time.
#pragma once
#include "e8m0.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_operand.cuh"
#include "layout.cuh"

namespace nvfp4 {

struct AnyOperand {
    const uint8_t* codes;
    const uint8_t* scales;
    long long stride;        // bytes
    long long scale_stride;  // linear: bytes; swizzled: blocks a row, rounded up to 4
    long long codes_batch, scales_batch, amax_batch;
    int format;  // FORMAT_*
    int swizzled;
    int vector;  // rows are 16-byte aligned; 2: codes 8-byte aligned
    int rescale;  // FAST: values without the factor 2^-7
};

struct PortableArgs {
    AnyOperand a, b;
    long long c_batch, d_batch;  // elements
    int m, n, k, batch;
    int m_tiles, n_tiles;
    Epilogue epilogue;
};

__device__ __forceinline__ uint32_t scale_byte(const AnyOperand& x, const uint8_t* scales, int row, int block) {
    return scales[x.swizzled ? swizzled_offset(row, block, x.scale_stride) : row * x.scale_stride + block];
}

// Up to 32 codes of a row from element k0 (even) on, as they lie in memory; zeros past k.
__device__ __forceinline__ uint4 load_codes32(const AnyOperand& x, const uint8_t* codes, int row, int k0, int k) {
    const uint8_t* p = codes + row * x.stride + k0 / 2;
    const int left = min(32, k - k0);
    if (x.vector == 1 && left == 32) return __ldg(reinterpret_cast<const uint4*>(p));
    if (x.vector == 2 && left == 32) {
        const uint2 low = __ldg(reinterpret_cast<const uint2*>(p)), high = __ldg(reinterpret_cast<const uint2*>(p) + 1);
        return make_uint4(low.x, low.y, high.x, high.y);
    }
    uint32_t w[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (2 * i >= left) break;
        const uint32_t byte = 2 * i + 1 < left ? p[i] : p[i] & 15;
        w[i / 4] |= byte << (8 * (i % 4));
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

// Up to 32 bf16 values of a row, each eight in the order 0 4 1 5 2 6 3 7 of expand8; zeros past k.
__device__ __forceinline__ void load_bf16_32(const AnyOperand& x, const uint8_t* codes, int row, int k0, int k, uint4 (&v)[4]) {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(codes + row * x.stride) + k0;
    const int left = min(32, k - k0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        uint4 w;
        if (x.vector && left == 32) {
            w = __ldg(reinterpret_cast<const uint4*>(p) + i);
        } else {
            uint32_t e[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) e[j] = 8 * i + j < left ? p[8 * i + j] : 0;
            w = make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
        }
        v[i] = make_uint4(__byte_perm(w.x, w.z, 0x5410), __byte_perm(w.x, w.z, 0x7632), __byte_perm(w.y, w.w, 0x5410),
                          __byte_perm(w.y, w.w, 0x7632));
    }
}

// Pointers of product `i` of the batch, in the epilogue's copy too.
struct BatchItem {
    const uint8_t *a_codes, *a_scales, *b_codes, *b_scales;
    BatchItem() = default;
    __device__ __forceinline__ BatchItem(const PortableArgs& args, int i, Epilogue& e)
        : a_codes(args.a.codes + i * args.a.codes_batch),
          a_scales(args.a.scales + i * args.a.scales_batch),
          b_codes(args.b.codes + i * args.b.codes_batch),
          b_scales(args.b.scales + i * args.b.scales_batch) {
        e = args.epilogue;
        if (e.a.amax) e.a.amax += i * args.a.amax_batch;
        if (e.b.amax) e.b.amax += i * args.b.amax_batch;
        if (e.c) e.c = static_cast<const uint8_t*>(e.c) + i * args.c_batch * (e.c_dtype == kF32 ? 4 : 2);
        e.d = static_cast<uint8_t*>(e.d) + i * args.d_batch * (e.d_dtype == kF32 ? 4 : 2);
    }
};

}  // namespace nvfp4
