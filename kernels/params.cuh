// Kernel parameters: what src/cuda/params.rs fills in, field for field. One plan of one call; see docs/format.md for
// what each choice means. Sizes are asserted on both sides.
#pragma once
#include <cstdint>

// Values of the C ABI's constants (src/abi.rs).
enum : uint32_t { DTYPE_F32 = 0, DTYPE_BF16 = 1, DTYPE_F16 = 2, DTYPE_QUANTIZED = 3 };
enum : uint32_t { FORMAT_NVFP4 = 0, FORMAT_MXFP4 = 1, FORMAT_BF16 = 2 };
enum : uint32_t { CHAIN_TE = 0, CHAIN_DIV6 = 1, CHAIN_SINGLE = 2 };
enum : uint32_t { RULE_FLOOR = 0, RULE_CEIL = 1, RULE_EVEN = 2, RULE_ENCODE_CENTRIC = 3 };
enum : uint32_t { SELECT_SINGLE = 0, SELECT_MAE = 1, SELECT_MSE = 2, SELECT_ABSMAX = 3, SELECT_MS_EDEN = 4 };
enum : uint32_t { SCALES_LINEAR = 0, SCALES_SWIZZLED = 1 };
enum : uint32_t { FLAG_KEEP_F32 = 1, FLAG_RANGE_16_17 = 2, FLAG_HALF_SCALE = 4 };

// An unquantized matrix, row-major.
struct Matrix {
    void* data;
    int64_t rows;
    int64_t cols;
    int64_t stride;  // elements from one row to the next
    uint32_t dtype;
    uint32_t pad;
};

// A quantized matrix [rows, cols] and how it is made.
struct Quantized {
    uint8_t* codes;
    uint8_t* scales;
    float* amax;  // one f32 a scale domain; read by quantize, written by amax
    int64_t rows;
    int64_t cols;         // after a transform's padding
    int64_t source_cols;  // before it
    int64_t code_stride;   // bytes from one row of codes to the next
    int64_t scale_stride;  // linear: bytes from one row of scales to the next; swizzled: blocks a row, rounded up to 4
    int64_t domain_rows;   // rows that share one amax; 0 = the whole tensor
    uint32_t format;
    uint32_t block2d;
    uint32_t chain;
    uint32_t rule;
    uint32_t stochastic;
    uint32_t layout;
    uint32_t select;
    uint32_t hadamard;
    uint32_t flags;
    uint32_t transposed;  // the columnwise copy: its rows are the input's columns
    float c;              // C of the contract
    uint32_t sign_mask[4];
    uint32_t pad;
};

// One quantize (or amax) call. The general kernels make one copy, `row`, whichever it is; with DTYPE_QUANTIZED their
// source is `col`.
struct QuantizeParams {
    Matrix x;
    Quantized row;  // codes null (amax null for the amax kernels): this copy is not wanted
    Quantized col;
    const unsigned long long* seed_offset;  // device memory, or null; then `offset` holds bits to set in the one read there
    unsigned long long seed;
    unsigned long long offset;
    int64_t origin_row;
    int64_t origin_col;
    unsigned long long* saturated;  // if not null: gets the number of scaled magnitudes above 6 added (general only)
    uint32_t saturate;  // policy for NaN and Inf: 0 propagate, 1 saturate
    uint32_t pad;
};

static_assert(sizeof(Matrix) == 40, "src/cuda/params.rs");
static_assert(sizeof(Quantized) == 136, "src/cuda/params.rs");
static_assert(sizeof(QuantizeParams) == 368, "src/cuda/params.rs");
