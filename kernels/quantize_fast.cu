// NVFP4 quantization at memory speed: 16-bit input, blocks of 16 (or 16x16 tiles, nearest), transform of 0 or 16, one
// scale domain, aligned rows (src/cuda/quantize.rs says exactly when). Every other case is quantize.cu's; same bytes.
//
// A CTA of 256 threads takes tiles of 128 x 128 elements, two stages of 32 KiB filled by cp.async, so that one tile is
// always on its way. From one read of the input it writes the rowwise copy, the columnwise one, or both: 2.5625 or
// 3.125 bytes an element. A thread owns whole blocks: rowwise 16 elements of a row, columnwise 16 rows of a column,
// whose codes and scales go through shared memory so that the transposed rows are written in 64-byte pieces.
// Instructions an element and copy (sm_90a): about 8.5 for reading, amax and rounding, 2 for the scale, 7 for the
// transform, 7 more for stochastic rounding; 33 T/s of them pass while 1.4 to 1.7 T elements/s do (20 to 24 each).
#include "hadamard.cuh"
#include "layout.cuh"
#include "load.cuh"
#include "philox.cuh"
#include "scale.cuh"

constexpr int TILE = 128;            // rows and columns of a tile
constexpr int THREADS = 256;
constexpr int ROW_BYTES = TILE * 2;  // of a tile in shared memory
constexpr int STAGE_BYTES = TILE * ROW_BYTES;
constexpr int CODES_PITCH = TILE / 2 + 8;  // of a transposed row of codes in shared memory
constexpr int CODES_BYTES = TILE * CODES_PITCH;
constexpr int SCALES_BYTES = TILE * (TILE / 16);
constexpr int SIGNS_BYTES = 2 * 8 * 4;  // sign masks of the two copies, laid over packed elements
constexpr int SHARED_BYTES = 2 * STAGE_BYTES + CODES_BYTES + SCALES_BYTES + SIGNS_BYTES;
static_assert(SHARED_BYTES == 75840, "src/cuda/kernels.rs");

// The 16-byte pieces of a row's upper half are swapped pairwise: eight threads that read 32 bytes each of one row then
// touch all banks once.
__device__ __forceinline__ int piece_offset(int piece) { return (piece ^ ((piece >> 3) & 1)) * 16; }

__device__ __forceinline__ void load_tile(char* stage, const QuantizeParams& p, int64_t row0, int64_t col0) {
    const uint16_t* x = static_cast<const uint16_t*>(p.x.data);
    const int piece = threadIdx.x & 15, first = threadIdx.x >> 4;
    const uint16_t* from = x + (row0 + first) * p.x.stride + col0 + piece * 8;
    char* to = stage + first * ROW_BYTES + piece_offset(piece);
    const int64_t step = 16 * p.x.stride;
    if (row0 + TILE <= p.x.rows && col0 + TILE <= p.x.cols) {
#pragma unroll
        for (int i = 0; i < TILE / 16; i++) {
            copy_async16(to + i * 16 * ROW_BYTES, from, true);
            from += step;
        }
    } else {
        const int rows = (int)min((int64_t)TILE, p.x.rows - row0);
        const bool col_valid = col0 + piece * 8 < p.x.cols;
#pragma unroll 1
        for (int i = 0; i < TILE / 16; i++) {
            bool valid = col_valid && first + i * 16 < rows;
            copy_async16(to + i * 16 * ROW_BYTES, valid ? from : x, valid);
            from += step;
        }
    }
    copy_async_commit();
}

// One block of sixteen: transform, scale byte, codes. `w` holds the elements, two a word. `tile_amax` replaces the
// block's own amax under 16x16 tiles.
struct BlockResult {
    uint2 codes;
    uint32_t scale;
};

template <uint32_t DTYPE>
__device__ __forceinline__ BlockResult quantize_block(const uint32_t (&w)[8], const Quantized& q, const DomainScale& d,
                                                      const SeedOffset& seed, int64_t block, int64_t row, float tile_amax,
                                                      const uint4* signs) {
    float lo[8], hi[8];
    float b;
    if (q.hadamard) {
        float t[16];
        const uint4 s0 = signs[0], s1 = signs[1];
        const uint32_t s[8] = {s0.x, s0.y, s0.z, s0.w, s1.x, s1.y, s1.z, s1.w};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            t[2 * i] = low_element<DTYPE>(w[i] ^ s[i]);
            t[2 * i + 1] = high_element<DTYPE>(w[i] ^ s[i]);
        }
        butterfly16(t);
        uint32_t y[8];
#pragma unroll
        for (int i = 0; i < 8; i++) y[i] = bf16x2(hadamard_scale(t[2 * i], 0.25f), hadamard_scale(t[2 * i + 1], 0.25f));
        b = block_amax<DTYPE_BF16>(y);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            lo[2 * i] = low_element<DTYPE_BF16>(y[i]);
            lo[2 * i + 1] = high_element<DTYPE_BF16>(y[i]);
            hi[2 * i] = low_element<DTYPE_BF16>(y[i + 4]);
            hi[2 * i + 1] = high_element<DTYPE_BF16>(y[i + 4]);
        }
    } else {
        b = q.block2d ? tile_amax : block_amax<DTYPE>(w);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            lo[2 * i] = low_element<DTYPE>(w[i]);
            lo[2 * i + 1] = high_element<DTYPE>(w[i]);
            hi[2 * i] = low_element<DTYPE>(w[i + 4]);
            hi[2 * i + 1] = high_element<DTYPE>(w[i + 4]);
        }
    }
    BlockResult r;
    if (!is_finite(b) || d.bad) {
        r.scale = E4M3_NAN;
        r.codes = make_uint2(0, 0);
        return r;
    }
    r.scale = e4m3_encode(unrounded_block_scale(q, b, d));
    float e = encode_multiplier(q, r.scale, d, q.flags & FLAG_RANGE_16_17);
    if (q.stochastic) {
        uint4 bits = sr_bits(seed, block, row, q.transposed);
        r.codes.x = e2m1_encode8_stochastic(lo, e, bits.x, bits.y);
        r.codes.y = e2m1_encode8_stochastic(hi, e, bits.z, bits.w);
    } else {
        bool clamp = !(__fmul_rn(b, e) < 7.0f);
        r.codes.x = e2m1_encode8(lo, e, clamp);
        r.codes.y = e2m1_encode8(hi, e, clamp);
    }
    return r;
}

// Word `i` of a copy's sign mask: bits 15 and 31 change the signs of elements 2i and 2i + 1.
__device__ __forceinline__ uint32_t sign_word(const Quantized& q, int i) {
    uint32_t bits = q.sign_mask[0] >> (2 * i);
    return ((bits & 1) << 15) | ((bits & 2) << 30);
}

// max over the lanes of a warp that differ in the bits of `mask` (contiguous powers of two from `low` to `high`).
template <int LOW, int HIGH>
__device__ __forceinline__ float max_across(float v) {
    uint32_t u = as_uint(v);  // magnitudes: the order of the patterns is the order of the values
#pragma unroll
    for (int bit = LOW; bit <= HIGH; bit *= 2) u = max(u, __shfl_xor_sync(0xFFFFFFFFu, u, bit));
    return as_float(u);
}

template <uint32_t DTYPE, bool ROW, bool COL>
__device__ __forceinline__ void quantize_tiles(const QuantizeParams& p, char* shared) {
    char* codes_shared = shared + 2 * STAGE_BYTES;
    char* scales_shared = codes_shared + CODES_BYTES;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int64_t tiles_across = (p.x.cols + TILE - 1) / TILE;
    const int64_t tiles = tiles_across * ((p.x.rows + TILE - 1) / TILE);
    int64_t tile = blockIdx.x;
    int64_t tile_row = tile / tiles_across, tile_col = tile - tile_row * tiles_across;
    const int64_t step_row = gridDim.x / tiles_across, step_col = gridDim.x - step_row * tiles_across;

    if (tile < tiles) load_tile(shared, p, tile_row * TILE, tile_col * TILE);
    SeedOffset seed = read_seed_offset(p.seed_offset, p.seed, p.offset);
    DomainScale row_domain, col_domain;
    uint32_t* signs = reinterpret_cast<uint32_t*>(scales_shared + SCALES_BYTES);
    const uint4* row_signs = reinterpret_cast<const uint4*>(signs);
    const uint4* col_signs = row_signs + 2;
    if (threadIdx.x < 8) {
        signs[threadIdx.x] = ROW && p.row.hadamard ? sign_word(p.row, threadIdx.x) : 0;
        signs[8 + threadIdx.x] = COL && p.col.hadamard ? sign_word(p.col, threadIdx.x) : 0;
    }
    if (ROW) row_domain = row_domain_scale(p.row, 0);
    if (COL) col_domain = row_domain_scale(p.col, 0);

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
        const char* data = shared + stage * STAGE_BYTES;

        if (ROW) {
            // Warp: 16 rows; four rows at a time, eight threads a row.
            const int k = lane & 7;
            const char* mine = data + (warp * 16 + (lane >> 3)) * ROW_BYTES;
            const int64_t block = col0 / 16 + k;
            const bool col_valid = col0 + k * 16 < p.x.cols;
            float tile_amax = 0.0f;
            if (p.row.block2d) {
                uint32_t m = 0;
#pragma unroll 1
                for (int i = 0; i < 4; i++) {
                    uint4 a = *reinterpret_cast<const uint4*>(mine + i * 4 * ROW_BYTES + piece_offset(2 * k));
                    uint4 c = *reinterpret_cast<const uint4*>(mine + i * 4 * ROW_BYTES + piece_offset(2 * k + 1));
                    uint32_t w[8] = {a.x, a.y, a.z, a.w, c.x, c.y, c.z, c.w};
                    m = max(m, as_uint(block_amax<DTYPE>(w)));
                }
                tile_amax = max_across<8, 16>(as_float(m));
            }
#pragma unroll 1
            for (int i = 0; i < 4; i++) {
                uint4 a = *reinterpret_cast<const uint4*>(mine + i * 4 * ROW_BYTES + piece_offset(2 * k));
                uint4 c = *reinterpret_cast<const uint4*>(mine + i * 4 * ROW_BYTES + piece_offset(2 * k + 1));
                uint32_t w[8] = {a.x, a.y, a.z, a.w, c.x, c.y, c.z, c.w};
                const int64_t row = row0 + warp * 16 + i * 4 + (lane >> 3);
                BlockResult r = quantize_block<DTYPE>(w, p.row, row_domain, seed, block + p.origin_col / 16,
                                                      row + p.origin_row, tile_amax, row_signs);
                if (col_valid && row < p.x.rows) {
                    *reinterpret_cast<uint2*>(p.row.codes + row * p.row.code_stride + block * 8) = r.codes;
                    p.row.scales[scale_offset(p.row, row, block)] = (uint8_t)r.scale;
                }
            }
        }

        if (COL) {
            // Warp: 16 rows; 64 columns at a time, two a thread.
#pragma unroll 1
            for (int half = 0; half < 2; half++) {
                uint32_t x[16];
                const int col = half * 64 + lane * 2;
                const char* mine = data + warp * 16 * ROW_BYTES + piece_offset(col / 8) + (col % 8) * 2;
#pragma unroll
                for (int i = 0; i < 16; i++) x[i] = *reinterpret_cast<const uint32_t*>(mine + i * ROW_BYTES);
                float tile_amax = 0.0f;
                if (p.col.block2d) {
                    uint32_t a[8], b[8];
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        a[i] = x[i];
                        b[i] = x[i + 8];
                    }
                    tile_amax = max_across<1, 4>(as_float(max(as_uint(block_amax<DTYPE>(a)), as_uint(block_amax<DTYPE>(b)))));
                }
#pragma unroll 1
                for (int h = 0; h < 2; h++) {
                    const uint32_t pick = h ? 0x7632 : 0x5410;
                    uint32_t w[8];
#pragma unroll
                    for (int i = 0; i < 8; i++) w[i] = __byte_perm(x[2 * i], x[2 * i + 1], pick);
                    const int c = col + h;
                    BlockResult r = quantize_block<DTYPE>(w, p.col, col_domain, seed, (p.origin_row + row0) / 16 + warp,
                                                          p.origin_col + col0 + c, tile_amax, col_signs);
                    *reinterpret_cast<uint2*>(codes_shared + c * CODES_PITCH + ((warp ^ ((c >> 4) & 1)) * 8)) = r.codes;
                    scales_shared[c * (TILE / 16) + warp] = (char)r.scale;
                }
            }
            __syncthreads();
            // Eight threads write 64 bytes of a transposed row.
            const int64_t slots = (p.x.rows - row0 + 15) / 16;  // blocks of this tile that exist
#pragma unroll 1
            for (int c = threadIdx.x >> 3; c < TILE; c += THREADS / 8) {
                const int slot = threadIdx.x & 7;
                const int64_t row = col0 + c;
                if (row < p.x.cols && slot < slots) {
                    uint2 codes = *reinterpret_cast<uint2*>(codes_shared + c * CODES_PITCH + ((slot ^ ((c >> 4) & 1)) * 8));
                    *reinterpret_cast<uint2*>(p.col.codes + row * p.col.code_stride + (row0 / 16 + slot) * 8) = codes;
                    p.col.scales[scale_offset(p.col, row, row0 / 16 + slot)] = (uint8_t)scales_shared[c * (TILE / 16) + slot];
                }
            }
        }
    }
}

// Three CTAs a multiprocessor: 24 warps, at most 80 registers, 3 x 73 KiB of shared memory on sm_90.
#define NVFP4_QUANTIZE_FAST(NAME, DTYPE, ROW, COL)                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 3) NAME(const __grid_constant__ QuantizeParams p) { \
        extern __shared__ __align__(16) char shared[];                                                 \
        quantize_tiles<DTYPE, ROW, COL>(p, shared);                                                    \
    }

NVFP4_QUANTIZE_FAST(quantize_fast_bf16_row, DTYPE_BF16, true, false)
NVFP4_QUANTIZE_FAST(quantize_fast_bf16_col, DTYPE_BF16, false, true)
NVFP4_QUANTIZE_FAST(quantize_fast_bf16_both, DTYPE_BF16, true, true)
NVFP4_QUANTIZE_FAST(quantize_fast_f16_row, DTYPE_F16, true, false)
NVFP4_QUANTIZE_FAST(quantize_fast_f16_col, DTYPE_F16, false, true)
NVFP4_QUANTIZE_FAST(quantize_fast_f16_both, DTYPE_F16, true, true)
