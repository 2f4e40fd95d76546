// One tile of one copy of quantize or amax, with any option, shape, stride and alignment (docs/format.md sections 2 to 9).
//
// A CTA takes tiles of 32 rows x 128 columns of the copy (so every tile of 32x32 and every transform of 128 is whole),
// reads them through shared memory in the source's order, and gives each thread one run of 16 elements: thread =
// 8 * row + run. Transforms longer than 16, blocks of 32 and MS-EDEN cross the eight lanes of a row; square tiles meet
// in shared memory.
//
// No conversion instruction of a chip is used here: these kernels are what remains where a chip's differ from the contract
// (src/cuda/certify.rs).
#pragma once
#define NVFP4_NO_CONVERSIONS
#include "four_over_six.cuh"
#include "hadamard.cuh"
#include "layout.cuh"
#include "load.cuh"
#include "ms_eden.cuh"
#include "philox.cuh"
#include "scale.cuh"

constexpr int THREADS = 256;
constexpr int ROWS = 32;
constexpr int COLS = 128;
constexpr int RUNS = COLS / 16;

struct Shared {
    float data[ROWS][COLS + 1];
    uint32_t tile_max[THREADS / 32][RUNS];  // of the four rows of each warp
    float errors[2][ROWS][RUNS];  // four over six: of the two candidates, a row of a tile each
};

// Element (r, c) of the source, which is an unquantized matrix or (requantize) a quantized one.
__device__ __forceinline__ float source_element(const QuantizeParams& p, int64_t r, int64_t c) {
    if (p.x.dtype != DTYPE_QUANTIZED) return load_element(p.x, r * p.x.stride + c);
    return quantized_element(p.col, r, c);
}

__device__ __forceinline__ void load_tile(Shared& s, const QuantizeParams& p, float largest, int64_t row0, int64_t col0) {
    const Quantized& q = p.row;
    for (int i = threadIdx.x; i < ROWS * COLS; i += THREADS) {
        // Neighbouring threads read neighbouring addresses of the source.
        const int r = q.transposed ? i % ROWS : i / COLS, c = q.transposed ? i / ROWS : i % COLS;
        const int64_t row = row0 + r, col = col0 + c;
        float v = 0.0f;
        if (row < q.rows && col < q.source_cols) v = q.transposed ? source_element(p, col, row) : source_element(p, row, col);
        s.data[r][c] = p.saturate ? saturate_nonfinite(v, largest) : v;
    }
}

// The transform of length n along the eight lanes of a row, 16 elements a lane.
__device__ __forceinline__ void transform(float (&t)[16], const QuantizeParams& p, int run, float largest) {
    const Quantized& q = p.row;
    const int n = q.hadamard;
    const int first = run * 16 % n;
    const uint32_t signs = q.sign_mask[first / 32] >> (first % 32);
#pragma unroll
    for (int i = 0; i < 16; i++)
        if ((signs >> i) & 1) t[i] = -t[i];
    butterfly16(t);
    for (int stride = 16; stride < n; stride *= 2) {
        const int lane_bit = stride / 16;
        const bool upper = run & lane_bit;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float other = __shfl_xor_sync(0xFFFFFFFFu, t[i], lane_bit);
            t[i] = upper ? __fsub_rn(other, t[i]) : __fadd_rn(t[i], other);
        }
    }
    const float factor = hadamard_factor(n);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        t[i] = hadamard_scale(t[i], factor);
        if (!(q.flags & FLAG_KEEP_F32)) t[i] = as_float(bf16x2(0.0f, t[i]) & 0xFFFF0000u);
        if (p.saturate) t[i] = saturate_nonfinite(t[i], largest);
    }
}

__device__ __forceinline__ uint32_t random_byte(const uint4& bits, int i) {
    const uint32_t word = i < 4 ? bits.x : i < 8 ? bits.y : i < 12 ? bits.z : bits.w;
    const int byte = i % 4 == 1 ? 2 : i % 4 == 2 ? 1 : i % 4;  // SR_BYTE
    return (word >> (8 * byte)) & 0xFFu;
}

// The tile that starts at (row0, col0) of the copy: its codes and scales, or what it adds to the amax.
template <bool AMAX>
__device__ __forceinline__ void general_tile(const QuantizeParams& p, Shared& s, const SeedOffset& seed, int64_t row0, int64_t col0) {
    const Quantized& q = p.row;
    const int r = threadIdx.x / RUNS, run = threadIdx.x % RUNS;
    const float largest = largest_finite(p.x.dtype);
    const bool mx = q.format == FORMAT_MXFP4;
    const int side = mx ? 32 : 16;
    const bool follows_source = q.block2d && q.hadamard == 0;
    // Global coordinates of the copy's first element.
    const int64_t copy_row = q.transposed ? p.origin_col : p.origin_row, copy_col = q.transposed ? p.origin_row : p.origin_col;

    const int64_t row = row0 + r, col = col0 + run * 16;
    __syncthreads();
    load_tile(s, p, largest, row0, col0);
    __syncthreads();
    float y[16];
#pragma unroll
    for (int i = 0; i < 16; i++) y[i] = s.data[r][run * 16 + i];
    if (q.hadamard) transform(y, p, run, largest);

    if (AMAX) {
        uint32_t m = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) m = is_finite(y[i]) ? max(m, as_uint(y[i]) & 0x7FFFFFFFu) : m;
        // The eight lanes of a row first; rows of other domains go to their own value.
        for (int bit = 1; bit < RUNS; bit *= 2) m = max(m, __shfl_xor_sync(0xFFFFFFFFu, m, bit));
        if (run == 0 && row < q.rows && m)
            atomicMax(reinterpret_cast<unsigned*>(q.amax) + (q.domain_rows == 0 ? 0 : row / q.domain_rows), m);
        return;
    }
    if (q.format == FORMAT_BF16) {
        if (row < q.rows) {
            uint16_t* to = reinterpret_cast<uint16_t*>(q.codes + row * q.code_stride);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                float v = y[i];
                const float top = as_float(0x7F7F0000u);
                if (p.saturate) v = fminf(fmaxf(v, -top), top);
                const uint32_t bits = v != v ? ((as_uint(v) >> 16 & 0x8000u) | 0x7FC0u) : bf16x2(v, 0.0f) & 0xFFFFu;
                if (col + i < q.cols) to[col + i] = (uint16_t)bits;
            }
        }
        return;
    }

    // Largest magnitude of the block or tile as a pattern; NaN and Inf are the largest patterns.
    uint32_t m = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) m = max(m, as_uint(y[i]) & 0x7FFFFFFFu);
    if (mx) m = max(m, __shfl_xor_sync(0xFFFFFFFFu, m, 1));
    if (q.block2d) {
        m = max(m, __shfl_xor_sync(0xFFFFFFFFu, m, RUNS));
        m = max(m, __shfl_xor_sync(0xFFFFFFFFu, m, 2 * RUNS));
        if (r % 4 == 0) s.tile_max[r / 4][run] = m;
        __syncthreads();
        const int first = mx ? 0 : r / 16 * 4, last = mx ? THREADS / 32 : first + 4;
        for (int w = first; w < last; w++) m = max(m, s.tile_max[w][run]);
    }
    const bool exists = row < q.rows && col < q.cols;
    const DomainScale d = row_domain_scale(q, row < q.rows ? row : q.rows - 1);
    const bool bad = m >= INFINITY_BITS || d.bad;
    const float b = bad ? 0.0f : as_float(m);

    uint32_t byte;
    if (mx) {
        byte = mx_block_scale(q, b);
    } else {
        const float base = unrounded_block_scale(q, b, d);
        byte = e4m3_encode(base);
        if (q.select >= SELECT_MAE && q.select <= SELECT_ABSMAX) {
            const uint32_t four = e4m3_encode(__fmul_rn(base, 1.5f));
            float row_values[16];
            // Tiles are judged in the source's orientation, so that both copies decide alike.
            const bool swap = q.transposed && follows_source;
#pragma unroll
            for (int i = 0; i < 16; i++) row_values[i] = swap ? s.data[r / 16 * 16 + i][run * 16 + r % 16] : y[i];
            float error6 = row_error(q, byte, d, row_values), error4 = row_error(q, four, d, row_values);
            if (q.block2d) {
                s.errors[0][r][run] = error6;
                s.errors[1][r][run] = error4;
                __syncthreads();
                error6 = tile_error(q, &s.errors[0][r / 16 * 16][run], RUNS);
                error4 = tile_error(q, &s.errors[1][r / 16 * 16][run], RUNS);
            }
            if (error4 < error6) byte = four;
        }
    }
    const float e = encode_multiplier(q, byte, d, q.flags & FLAG_RANGE_16_17);
    const bool centric = mx && q.rule == RULE_ENCODE_CENTRIC;
    uint4 bits = make_uint4(0, 0, 0, 0);
    const bool by_element = q.stochastic && q.transposed && follows_source;
    if (q.stochastic && !by_element)
        bits = sr_bits(seed, copy_col / 16 + col / 16, copy_row + row, q.transposed && !follows_source);
    uint32_t code[2] = {0, 0};
    uint32_t saturated = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float v = __fmul_rn(y[i], e);
        if (centric) v = __fmul_rn(6.0f, v);
        saturated += fabsf(v) > 6.0f;
        const float a = fminf(fabsf(v), 6.0f);
        uint32_t c;
        if (q.stochastic) {
            uint32_t random;
            if (by_element) {
                // The rowwise copy's bits: row and column of the source.
                const int64_t source_row = p.origin_row + col + i, source_col = p.origin_col + row;
                random = random_byte(sr_bits(seed, source_col / 16, source_row, false), (int)(source_col % 16));
            } else {
                random = random_byte(bits, i);
            }
            c = e2m1_stochastic_bits<0>(a, random);
        } else {
            c = e2m1_nearest_bits(a);
        }
        code[i / 8] |= ((c & 7u) | (as_uint(y[i]) >> 31 << 3)) << (4 * (i % 8));
    }
    if (q.select == SELECT_MS_EDEN) {
        float numerator = 0.0f, denominator = 0.0f;
        const float factor = decode_factor(q, bad ? E4M3_NAN : byte, d.amax);
        for (int k = 0; k < RUNS; k++) {  // in order: one accumulator walks along the row
            if (run == k) eden_sums(q, y, code, factor, numerator, denominator);
            numerator = __shfl_sync(0xFFFFFFFFu, numerator, (threadIdx.x & 24) | k);
            denominator = __shfl_sync(0xFFFFFFFFu, denominator, (threadIdx.x & 24) | k);
        }
        const uint4 words = sr_bits(seed, copy_col / 16 + col / 16, copy_row + row, q.transposed);
        if (!bad) byte = eden_correct(byte, eden_correction(numerator, denominator), words.x);
    }
    if (bad) {
        byte = mx ? E8M0_NAN : E4M3_NAN;
        code[0] = code[1] = 0;
    }
    if (p.saturated) {
        saturated = __reduce_add_sync(0xFFFFFFFFu, exists && !bad ? saturated : 0);
        if (threadIdx.x % 32 == 0 && saturated) atomicAdd(p.saturated, saturated);
    }
    if (exists) {
        const int count = (int)min((int64_t)16, q.cols - col);
        if (count < 16) {  // the tail's padding is +0, code 0, but a tile's neighbours do not matter either
            code[0] &= count >= 8 ? 0xFFFFFFFFu : (1u << (4 * count)) - 1;
            code[1] &= count >= 8 ? (1u << (4 * (count - 8))) - 1 : 0;
        }
        uint8_t* to = q.codes + row * q.code_stride + col / 2;
        for (int i = 0; i < (count + 1) / 2; i++) to[i] = (uint8_t)(code[i >= 4] >> (8 * (i % 4)));
        if (!mx || run % 2 == 0) q.scales[scale_offset(q, row, col / side)] = (uint8_t)byte;
    }
}
