// An NVFP4 operand as a bf16 matrix in memory, and alpha' and beta as numbers in memory: what a dense GEMM of bf16 wants.
#include "gemm_epilogue.cuh"
#include "gemm_operand.cuh"

namespace nvfp4 {

struct ExpandRowsArgs {
    Operand x;
    uint8_t* out;  // bf16 [rows][k_groups * 128], each value times 2^-7
    int rows, k_groups;
};

// Codes 2 i and 2 i + 1 of a word.
__device__ __forceinline__ uint32_t expand_neighbours(uint32_t w, int i, uint32_t factor) {
    const uint32_t t = w >> (8 * i);
    return mul_bf16x2((t << 6 & 0x1C0) | (t << 18 & 0x01C00000) | (t << 12 & 0x8000) | (t << 24 & 0x80000000), factor);
}

// A block of 16 a thread.
extern "C" __global__ void __launch_bounds__(256) gemm_expand_rows(const __grid_constant__ ExpandRowsArgs args) {
    const int blocks = args.k_groups * 8;
    const long long all = (long long)args.rows * blocks;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < all; i += gridDim.x * 256LL) {
        const int row = int(i / blocks), block = int(i % blocks);
        const Row source(args.x, row, args.k_groups);
        const uint2 codes = __ldg(reinterpret_cast<const uint2*>(source.codes) + block);
        const uint8_t* scale = source.scales + (long long)(block >> 3) * args.x.scale_step + (block & 4 ? args.x.scale_second : 0) + (block & 3);
        const uint32_t factor = scale_factor(__ldg(scale));
        uint32_t v[8];
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = expand_neighbours(codes.x, j, factor), v[4 + j] = expand_neighbours(codes.y, j, factor);
        uint4* out = reinterpret_cast<uint4*>(args.out) + i * 2;
        out[0] = make_uint4(v[0], v[1], v[2], v[3]);
        out[1] = make_uint4(v[4], v[5], v[6], v[7]);
    }
}

struct ScalarsArgs {
    float* out;  // alpha' for accumulators that lack operand_factor; beta
    Epilogue epilogue;
};

extern "C" __global__ void __launch_bounds__(32) gemm_scalars(const __grid_constant__ ScalarsArgs args) {
    const Epilogue& e = args.epilogue;
    if (threadIdx.x == 0) args.out[0] = __fmul_rn(row_alpha(e, 0, outer_amax(e.b, 0)), e.operand_factor);
    if (threadIdx.x == 1) args.out[1] = beta_of(e);
}

static_assert(sizeof(ExpandRowsArgs) == 64 && sizeof(ScalarsArgs) == 160, "src/cuda/gemm/params.rs");

}  // namespace nvfp4
