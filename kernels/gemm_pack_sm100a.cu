// The one copy that the sm_100 GEMM may need of an operand, into the workspace: what tensor copies can't read. Rows of codes
// become 16-byte aligned, zeros past K; scales become the swizzled layout, zeros where there is no row or block.
#include "gemm_portable.cuh"

namespace nvfp4 {

struct PackArgs {
    AnyOperand x;
    uint4* codes;      // [item][row][chunk of 32 codes], or NULL: they are read where they are
    uint32_t* scales;  // [item][tile of 128 rows][tile of 4 blocks][word], or NULL
    int rows, k, items;
    int chunks;        // a row, at least 1
};

extern "C" __global__ void __launch_bounds__(256) gemm_pack_sm100(const __grid_constant__ PackArgs args) {
    const long long first = blockIdx.x * 256LL + threadIdx.x, by = gridDim.x * 256LL;
    if (args.codes) {
        const long long all = (long long)args.items * args.rows * args.chunks;
        for (long long i = first; i < all; i += by) {
            const int chunk = int(i % args.chunks), row = int(i / args.chunks % args.rows), item = int(i / args.chunks / args.rows);
            const uint8_t* codes = args.x.codes + item * args.x.codes_batch;
            args.codes[i] = 32 * chunk < args.k ? load_codes32(args.x, codes, row, 32 * chunk, args.k) : make_uint4(0, 0, 0, 0);
        }
    }
    if (args.scales) {
        const int size = args.x.format == 0 ? 16 : 32, blocks = (args.k + size - 1) / size;
        const int across = max(1, (blocks + 3) / 4), down = (args.rows + 127) / 128;
        const long long all = (long long)args.items * down * across * 128;
        for (long long i = first; i < all; i += by) {
            const long long tile = i / 128;
            const int word = int(i % 128), block = int(tile % across) * 4, row = int(tile / across % down) * 128 + word % 4 * 32 + word / 4;
            const uint8_t* scales = args.x.scales + tile / across / down * args.x.scales_batch;
            uint32_t v = 0;
            for (int j = 0; j < 4; ++j)
                if (row < args.rows && block + j < blocks) v |= scale_byte(args.x, scales, row, block + j) << (8 * j);
            args.scales[i] = v;
        }
    }
}

static_assert(sizeof(PackArgs) == 104, "src/cuda/gemm/params.rs");

}  // namespace nvfp4
