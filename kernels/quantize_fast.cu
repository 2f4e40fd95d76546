// NVFP4 quantization at memory speed: 16-bit input, blocks of 16 (or 16x16 tiles, nearest), transform of 0 or 16, one
// scale domain, aligned rows (src/cuda/quantize.rs says exactly when). Every other case is quantize.cu's; same bytes.
//
// A CTA of 256 threads takes tiles of 128 x 128 elements, two stages of 32 KiB filled by cp.async, so that one tile is
// always on its way. From one read of the input it writes the rowwise copy, the columnwise one, or both: 2.5625 or
// 3.125 bytes an element. A thread owns whole blocks: rowwise 16 elements of a row, columnwise 16 rows of a column,
// whose codes and scales go through shared memory so that the transposed rows are written in 64-byte pieces.
//
// The limit is issue, not memory: 33 T instructions a second (a lane's) pass on an H200 while 1.4 to 1.7 T elements do.
// Budget an element and copy (sm_90a): unpack 1, amax 0.8, scale 0.6 (a table of all 127 multipliers replaces the
// division), rounding and packing 7, transform 6, stochastic rounding 7 more.
#include "hadamard.cuh"
#include "quantize_block.cuh"

constexpr int TILE = 128;  // rows and columns of a tile
constexpr int THREADS = 256;
constexpr int PITCH = TILE * 2;  // bytes from row to row of a tile
constexpr int STAGE_BYTES = TILE * PITCH;
constexpr int CODES_PITCH = TILE / 2;  // of a transposed row of codes
constexpr int CODES_BYTES = TILE * CODES_PITCH;
constexpr int SCALES_BYTES = TILE * (TILE / 16);
constexpr int SHARED_BYTES = 2 * STAGE_BYTES + CODES_BYTES + SCALES_BYTES + 2 * BLOCK_TABLE_BYTES + ROUND_KEYS_BYTES;
static_assert(SHARED_BYTES == 75920, "src/cuda/kernels.rs");

// The 16-byte pieces of a row's upper half are swapped pairwise: eight threads that read 32 bytes each of one row then
// touch all banks once.
__device__ __forceinline__ int piece_offset(int piece) { return (piece ^ ((piece >> 3) & 1)) * 16; }

// Where the slot of eight bytes of a transposed row is: spread over the banks for the threads that write.
__device__ __forceinline__ int slot_offset(int slot, int column) { return (slot ^ ((column >> 1) & 7)) * 8; }

__device__ __forceinline__ void load_tile(uint32_t stage, const QuantizeParams& p, int64_t row0, int64_t col0) {
    const uint16_t* x = static_cast<const uint16_t*>(p.x.data);
    const int piece = threadIdx.x & 15, first = threadIdx.x >> 4;
    const uint16_t* from = x + (row0 + first) * p.x.stride + col0 + piece * 8;
    const uint32_t to = stage + first * PITCH + piece_offset(piece);
    const int64_t step = 16 * p.x.stride;
    if (row0 + TILE <= p.x.rows && col0 + TILE <= p.x.cols) {
#pragma unroll
        for (int i = 0; i < TILE / 16; i++) {
            copy_async16(to + i * 16 * PITCH, from, true);
            from += step;
        }
    } else {
        const int rows = (int)min((int64_t)TILE, p.x.rows - row0);
        const bool col_valid = col0 + piece * 8 < p.x.cols;
#pragma unroll 1
        for (int i = 0; i < TILE / 16; i++) {
            const bool valid = col_valid && first + i * 16 < rows;
            copy_async16(to + i * 16 * PITCH, valid ? from : x, valid);
            from += step;
        }
    }
    copy_async_commit();
}

// max over the lanes of a warp that differ in the bits from LOW to HIGH.
template <int LOW, int HIGH>
__device__ __forceinline__ float max_across(float v) {
    uint32_t u = as_uint(v);  // magnitudes: the order of the patterns is the order of the values
#pragma unroll
    for (int bit = LOW; bit <= HIGH; bit *= 2) u = max(u, __shfl_xor_sync(0xFFFFFFFFu, u, bit));
    return as_float(u);
}

__device__ __forceinline__ void load_block(uint32_t (&w)[8], uint32_t low, uint32_t high) {
    const uint4 a = load_shared16(low), b = load_shared16(high);
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}

// The rowwise copy of a tile. Warp: 16 rows, four at a time, eight threads a row.
template <uint32_t DTYPE, bool TRANSFORM, bool STOCHASTIC, int UNROLL>
__device__ __forceinline__ void row_part(const QuantizeParams& p, uint32_t data, const BlockTable& table,
                                         const Draws& draws, int64_t row0, int64_t col0) {
    const Quantized& q = p.row;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int k = lane & 7, r = lane >> 3;
    const uint32_t low = kept(data + (warp * 16 + r) * PITCH + piece_offset(2 * k));
    const uint32_t high = kept(low ^ 16);  // piece 2k + 1
    const int64_t row = row0 + warp * 16 + r, block = col0 / 16 + k;
    uint8_t* codes = q.codes + row * q.code_stride + block * 8;
    uint8_t* scales = q.scales + scale_offset(q, row, block);
    const int64_t codes_step = 4 * q.code_stride;
    const int64_t scales_step = q.layout == SCALES_SWIZZLED ? 64 : 4 * q.scale_stride;  // rows 4i + r of a group of 32
    const int left = col0 + k * 16 < p.x.cols ? (int)min((int64_t)TILE, p.x.rows - row) : 0;
    const uint32_t draw_block = (uint32_t)(block + p.origin_col / 16);
    const int64_t draw_row = row + p.origin_row;  // rows of a tile share their upper 32 bits unless they cross 2^32
    float tile_amax = 0.0f;
    if (!TRANSFORM && !STOCHASTIC && q.block2d) {
        uint32_t m = 0;
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            uint32_t w[8];
            load_block(w, low + i * 4 * PITCH, high + i * 4 * PITCH);
            m = max(m, as_uint(block_amax<DTYPE>(w)));
        }
        tile_amax = max_across<8, 16>(as_float(m));
    }
#pragma unroll UNROLL
    for (int i = 0; i < 4; i++) {
        uint32_t w[8];
        load_block(w, low + i * 4 * PITCH, high + i * 4 * PITCH);
        const BlockResult b = quantize_block<DTYPE, TRANSFORM, STOCHASTIC>(
            w, q, table, draws, draw_block, (uint32_t)draw_row + i * 4, draws.high(draw_row + i * 4, false), tile_amax);
        if (i * 4 < left) {
            *reinterpret_cast<uint2*>(codes) = b.codes;
            *scales = (uint8_t)b.scale;
        }
        codes += codes_step;
        scales += scales_step;
    }
}

// The columnwise copy of a tile, into shared memory. Warp: 16 rows; 64 columns at a time, two a thread.
template <uint32_t DTYPE, bool TRANSFORM, bool STOCHASTIC>
__device__ __forceinline__ void column_part(const QuantizeParams& p, uint32_t data, uint32_t codes, uint32_t scales,
                                            const BlockTable& table, const Draws& draws, int64_t row0, int64_t col0) {
    const Quantized& q = p.col;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const uint32_t to = kept(codes + lane * 2 * CODES_PITCH + slot_offset(warp, lane * 2));
    const uint32_t scales_to = kept(scales + lane * 2 * (TILE / 16) + warp);
    const uint32_t draw_block = (uint32_t)((p.origin_row + row0) / 16 + warp);
    const int64_t draw_row = p.origin_col + col0 + lane * 2;
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        const uint32_t mine = kept(data + warp * 16 * PITCH + piece_offset(half * 8 + lane / 4) + (lane % 4) * 4);
        uint32_t x[16];
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = load_shared4(mine + i * PITCH);
        float tile_amax = 0.0f;
        if (!TRANSFORM && !STOCHASTIC && q.block2d) {
            uint32_t a[8], b[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                a[i] = x[i];
                b[i] = x[i + 8];
            }
            tile_amax = max_across<1, 4>(as_float(max(as_uint(block_amax<DTYPE>(a)), as_uint(block_amax<DTYPE>(b)))));
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t w[8];
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] = __byte_perm(x[2 * i], x[2 * i + 1], h ? 0x7632 : 0x5410);
            const int c = half * 64 + h;
            const BlockResult b = quantize_block<DTYPE, TRANSFORM, STOCHASTIC>(
                w, q, table, draws, draw_block, (uint32_t)draw_row + c, draws.high(draw_row + c, true), tile_amax);
            store_shared8(to + c * CODES_PITCH, b.codes);
            store_shared1(scales_to + c * (TILE / 16), b.scale);
        }
    }
}

// From shared memory to the transposed rows: eight threads write 64 bytes of codes, one thread a row's eight scales.
__device__ __forceinline__ void write_columns(const QuantizeParams& p, uint32_t codes, uint32_t scales, int64_t row0,
                                              int64_t col0) {
    const Quantized& q = p.col;
    const int slots = (int)min((int64_t)(TILE / 16), (p.x.rows - row0 + 15) / 16);  // blocks of this tile that exist
    const int columns = (int)min((int64_t)TILE, p.x.cols - col0);
    const int slot = threadIdx.x & 7, first = threadIdx.x >> 3;
    uint8_t* to = q.codes + (col0 + first) * q.code_stride + row0 / 2 + slot * 8;
    const int64_t step = THREADS / 8 * q.code_stride;
#pragma unroll
    for (int i = 0; i < TILE * 8 / THREADS; i++) {
        const int c = first + i * (THREADS / 8);
        if (c < columns && slot < slots)
            *reinterpret_cast<uint2*>(to) = load_shared8(codes + c * CODES_PITCH + slot_offset(slot, c));
        to += step;
    }
    const int c = threadIdx.x;
    if (c < columns) {
        const uint2 s = load_shared8(scales + c * (TILE / 16));
        uint8_t* at = q.scales + scale_offset(q, col0 + c, row0 / 16);
        if (q.layout == SCALES_SWIZZLED && slots == 8) {
            *reinterpret_cast<uint32_t*>(at) = s.x;
            *reinterpret_cast<uint32_t*>(at + 512) = s.y;
        } else if (q.layout != SCALES_SWIZZLED && slots == 8 && (reinterpret_cast<uintptr_t>(at) & 7) == 0) {
            *reinterpret_cast<uint2*>(at) = s;
        } else {
            for (int i = 0; i < slots; i++)
                q.scales[scale_offset(q, col0 + c, row0 / 16 + i)] = (uint8_t)((i < 4 ? s.x : s.y) >> (8 * (i & 3)));
        }
    }
}

// What a kernel makes of one copy.
enum Make { NONE, NEAREST, STOCHASTIC, TRANSFORM_NEAREST, TRANSFORM_STOCHASTIC };
__host__ __device__ constexpr bool transforms(Make m) { return m == TRANSFORM_NEAREST || m == TRANSFORM_STOCHASTIC; }
__host__ __device__ constexpr bool draws(Make m) { return m == STOCHASTIC || m == TRANSFORM_STOCHASTIC; }

template <uint32_t DTYPE, Make ROW, Make COL>
__device__ __forceinline__ void quantize_tiles(const QuantizeParams& p, uint32_t shared) {
    const uint32_t codes = shared + 2 * STAGE_BYTES, scales = codes + CODES_BYTES, tables = scales + SCALES_BYTES;
    const int64_t tiles_across = (p.x.cols + TILE - 1) / TILE;
    const int64_t tiles = tiles_across * ((p.x.rows + TILE - 1) / TILE);
    int64_t tile = blockIdx.x;
    int64_t tile_row = tile / tiles_across, tile_col = tile - tile_row * tiles_across;
    const int64_t step_row = gridDim.x / tiles_across, step_col = gridDim.x - step_row * tiles_across;

    if (tile < tiles) load_tile(shared, p, tile_row * TILE, tile_col * TILE);
    BlockTable row_table, col_table;
    if (ROW != NONE) row_table = BlockTable(tables, p.row, Dtype<DTYPE>());
    if (COL != NONE) col_table = BlockTable(tables + BLOCK_TABLE_BYTES, p.col, Dtype<DTYPE>());
    SeedOffset seed = {0, 0, 0, 0};
    if (draws(ROW) || draws(COL)) seed = read_seed_offset(p.seed_offset, p.seed, p.offset);
    const Draws bits(tables + 2 * BLOCK_TABLE_BYTES, seed);

    for (int stage = 0; tile < tiles; tile += gridDim.x, stage ^= 1) {
        const int64_t row0 = tile_row * TILE, col0 = tile_col * TILE;
        tile_row += step_row;
        tile_col += step_col;
        if (tile_col >= tiles_across) {
            tile_col -= tiles_across;
            tile_row++;
        }
        copy_async_wait<0>();
        __syncthreads();
        if (tile + gridDim.x < tiles) load_tile(shared + (stage ^ 1) * STAGE_BYTES, p, tile_row * TILE, tile_col * TILE);
        const uint32_t data = shared + stage * STAGE_BYTES;
        if (COL != NONE) {
            column_part<DTYPE, transforms(COL), draws(COL)>(p, data, codes, scales, col_table, bits, row0, col0);
            __syncthreads();
            write_columns(p, codes, scales, row0, col0);
        }
        if (ROW != NONE) row_part<DTYPE, transforms(ROW), draws(ROW), 4>(p, data, row_table, bits, row0, col0);
    }
}

// Three CTAs a multiprocessor: 24 warps, at most 80 registers, 3 x 75 KiB of shared memory on sm_90.
#define NVFP4_QUANTIZE_FAST(NAME, DTYPE, ROW, COL)                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 3) NAME(const __grid_constant__ QuantizeParams p) { \
        extern __shared__ __align__(128) char shared[];                                                 \
        quantize_tiles<DTYPE, ROW, COL>(p, shared_address(shared));                                                    \
    }
#define NVFP4_QUANTIZE_FAST_ALL(TYPE, DTYPE)                                                            \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_n_0, DTYPE, NEAREST, NONE)                               \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_s_0, DTYPE, STOCHASTIC, NONE)                            \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_tn_0, DTYPE, TRANSFORM_NEAREST, NONE)                    \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_ts_0, DTYPE, TRANSFORM_STOCHASTIC, NONE)                 \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_0_n, DTYPE, NONE, NEAREST)                               \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_0_s, DTYPE, NONE, STOCHASTIC)                            \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_0_tn, DTYPE, NONE, TRANSFORM_NEAREST)                    \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_0_ts, DTYPE, NONE, TRANSFORM_STOCHASTIC)                 \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_n_n, DTYPE, NEAREST, NEAREST)                            \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_s_s, DTYPE, STOCHASTIC, STOCHASTIC)                      \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_n_tn, DTYPE, NEAREST, TRANSFORM_NEAREST)                 \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_n_ts, DTYPE, NEAREST, TRANSFORM_STOCHASTIC)              \
    NVFP4_QUANTIZE_FAST(quantize_fast_##TYPE##_s_ts, DTYPE, STOCHASTIC, TRANSFORM_STOCHASTIC)

NVFP4_QUANTIZE_FAST_ALL(bf16, DTYPE_BF16)
NVFP4_QUANTIZE_FAST_ALL(f16, DTYPE_F16)
