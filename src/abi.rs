//! The C view of the library: every `#[repr(C)]` descriptor and constant. This is all that cbindgen reads, besides
//! the functions in `ffi`. Law of the ABI: docs/abi.md.
//!
//! Zero means default in every field. A descriptor starts with `struct_size` (its `sizeof` where the caller was
//! compiled): a shorter one is read as if its missing tail were zero, a longer one is accepted when its unknown tail
//! is zero. Enumerations are `uint32_t` fields with named constants, so that a value C made up is an error, not UB.
// Brackets here are shapes and indices of C, not links.
#![allow(non_camel_case_types, rustdoc::broken_intra_doc_links)]

use std::ffi::{c_char, c_void};

/// Result of a call. 0 is success; the sentence behind any other value is in `nvfp4_last_error()`.
pub type nvfp4_status = i32;
/// The call did what it says.
pub const NVFP4_OK: nvfp4_status = 0;
/// A value is outside what its field allows (unknown constant, non-finite alpha where one is not legal, ...).
pub const NVFP4_ERR_INVALID_ARGUMENT: nvfp4_status = 1;
/// A required pointer is NULL.
pub const NVFP4_ERR_NULL_POINTER: nvfp4_status = 2;
/// `struct_size` is too small for the fields that must be there, or an unknown tail is not zero.
pub const NVFP4_ERR_STRUCT_SIZE: nvfp4_status = 3;
/// Rows, columns or strides that are negative, overflow, or do not belong together.
pub const NVFP4_ERR_SHAPE: nvfp4_status = 4;
/// A pointer or stride is not aligned to its element.
pub const NVFP4_ERR_ALIGNMENT: nvfp4_status = 5;
/// A caller's buffer holds fewer bytes than the call writes or needs.
pub const NVFP4_ERR_BUFFER_SIZE: nvfp4_status = 6;
/// The combination is legal but this version or this device does not do it.
pub const NVFP4_ERR_NOT_SUPPORTED: nvfp4_status = 7;
/// Operands that must not meet in one call (another format, transform signs or scale layout than the call needs).
pub const NVFP4_ERR_MISMATCH: nvfp4_status = 8;
/// No driver, or no usable device of that number.
pub const NVFP4_ERR_NO_DEVICE: nvfp4_status = 9;
/// The library holds no kernel image that this device can run.
pub const NVFP4_ERR_NO_KERNEL: nvfp4_status = 10;
/// The CUDA driver or cuBLASLt returned an error.
pub const NVFP4_ERR_DRIVER: nvfp4_status = 11;
/// Memory could not be had.
pub const NVFP4_ERR_OUT_OF_MEMORY: nvfp4_status = 12;
/// A bug in the library: a panic was caught at the boundary.
pub const NVFP4_ERR_INTERNAL: nvfp4_status = 13;

/// Element types of unquantized matrices.
pub const NVFP4_F32: u32 = 0;
pub const NVFP4_BF16: u32 = 1;
pub const NVFP4_F16: u32 = 2;

/// Formats of a quantized matrix (docs/format.md, sections 2 and 4).
/// E2M1 codes, blocks of 16 with an E4M3 scale, one f32 amax a scale domain.
pub const NVFP4_FORMAT_NVFP4: u32 = 0;
/// E2M1 codes, blocks of 32 with an E8M0 scale.
pub const NVFP4_FORMAT_MXFP4: u32 = 1;
/// Pass-through: `codes` holds bfloat16 values (2 bytes each), no scales, no amax. Used by the `bf16` recipe and for
/// weight-only products.
pub const NVFP4_FORMAT_BF16: u32 = 2;

/// Blocks of 16 (MXFP4: 32) along the row.
pub const NVFP4_BLOCK_1D: u32 = 0;
/// Square tiles of 16x16 (MXFP4: 32x32); the tile's scale byte is repeated on each of its rows.
pub const NVFP4_BLOCK_2D: u32 = 1;

/// Scale chains of NVFP4 (docs/format.md, section 2).
pub const NVFP4_CHAIN_TE: u32 = 0;
pub const NVFP4_CHAIN_DIV6: u32 = 1;
pub const NVFP4_CHAIN_SINGLE: u32 = 2;

/// Exponent rules of MXFP4 (docs/format.md, section 4).
pub const NVFP4_RULE_FLOOR: u32 = 0;
pub const NVFP4_RULE_CEIL: u32 = 1;
pub const NVFP4_RULE_EVEN: u32 = 2;
pub const NVFP4_RULE_ENCODE_CENTRIC: u32 = 3;

/// Round to nearest, ties to the even code.
pub const NVFP4_ROUND_NEAREST: u32 = 0;
/// Stochastic rounding keyed by (seed, offset, row, column) (docs/format.md, section 7).
pub const NVFP4_ROUND_STOCHASTIC: u32 = 1;

/// Scale bytes row after row, `scale_stride` bytes apart.
pub const NVFP4_SCALES_LINEAR: u32 = 0;
/// The 128x4 tile order that Blackwell's tensor cores read (docs/format.md, section "Layouts").
pub const NVFP4_SCALES_SWIZZLED: u32 = 1;

/// Signs of the Hadamard transform: TransformerEngine's 16-bit mask 0xD7E8, repeated.
pub const NVFP4_SIGNS_DEFAULT: u32 = 0;
/// The low 16 bits of `sign_mask[0]`, repeated every 16 elements; 0 is the plain transform.
pub const NVFP4_SIGNS_MASK16: u32 = 1;
/// All n bits from `sign_mask` (bit i of word i/32).
pub const NVFP4_SIGNS_MASK: u32 = 2;
/// Drawn from (seed, offset) of the call (docs/format.md, section 6).
pub const NVFP4_SIGNS_SEEDED: u32 = 3;

/// A block that holds a NaN or an Inf decodes to NaN; others are unaffected.
pub const NVFP4_NONFINITE_PROPAGATE: u32 = 0;
/// Inf becomes the largest finite value of the input type, NaN becomes 0.
pub const NVFP4_NONFINITE_SATURATE: u32 = 1;

/// Choice of the block scale: one scale, or the better of two (docs/format.md, section 8).
pub const NVFP4_SELECT_SINGLE: u32 = 0;
pub const NVFP4_SELECT_4OVER6_MAE: u32 = 1;
pub const NVFP4_SELECT_4OVER6_MSE: u32 = 2;
pub const NVFP4_SELECT_4OVER6_ABSMAX: u32 = 3;
/// Scales corrected stochastically after a seeded transform of 128 (docs/format.md, section 9).
pub const NVFP4_SELECT_MS_EDEN: u32 = 4;

/// `nvfp4_options.flags`: the transform's output stays f32 instead of being rounded to bf16.
pub const NVFP4_KEEP_F32: u32 = 1;
/// `nvfp4_options.flags`: encode with 16/17 of the multiplier so that stochastic rounding never clips.
pub const NVFP4_RANGE_16_17: u32 = 2;
/// `nvfp4_options.flags`: MXFP4 ENCODE_CENTRIC tiles take half the scale iff amax/scale < 0.87.
pub const NVFP4_MX_HALF_SCALE: u32 = 4;

/// Numerics of the accumulator (docs/format.md, section 10): the context's default (BLOCK on the CPU, FAST on a GPU).
pub const NVFP4_ACCUMULATE_DEFAULT: u32 = 0;
pub const NVFP4_ACCUMULATE_FAST: u32 = 1;
pub const NVFP4_ACCUMULATE_BLOCK: u32 = 2;
pub const NVFP4_ACCUMULATE_HARDWARE: u32 = 3;
pub const NVFP4_ACCUMULATE_HARDWARE_K96: u32 = 4;

pub const NVFP4_ACTIVATION_NONE: u32 = 0;
/// tanh form of GELU.
pub const NVFP4_ACTIVATION_GELU: u32 = 1;
pub const NVFP4_ACTIVATION_SILU: u32 = 2;
/// max(x, 0) squared.
pub const NVFP4_ACTIVATION_RELU2: u32 = 3;

/// Which extent of a grouped product differs from group to group.
/// D [sum M_g, N] = A [sum M_g, K] times B_g [N, K]: fprop and dgrad of a layer of experts.
pub const NVFP4_RAGGED_M: u32 = 0;
/// D_g [M, N] = A [M, K_g] times B [N, K_g]: wgrad; A and B are columnwise copies of nvfp4_grouped_quantize.
pub const NVFP4_RAGGED_K: u32 = 1;

/// Device of a context.
pub const NVFP4_DEVICE_CPU: u32 = 0;
pub const NVFP4_DEVICE_CUDA: u32 = 1;

/// Roles of an operand in a training step.
pub const NVFP4_OPERAND_ACTIVATION: u32 = 0;
pub const NVFP4_OPERAND_WEIGHT: u32 = 1;
pub const NVFP4_OPERAND_GRADIENT: u32 = 2;

/// Log levels of `nvfp4_set_log`: a message is passed on when its level is at most the one set.
pub const NVFP4_LOG_OFF: u32 = 0;
pub const NVFP4_LOG_ERROR: u32 = 1;
pub const NVFP4_LOG_WARN: u32 = 2;
pub const NVFP4_LOG_INFO: u32 = 3;
pub const NVFP4_LOG_PLAN: u32 = 4;

/// Receives one log line, NUL-terminated and valid during the call, from whichever thread made it.
pub type nvfp4_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, level: u32, message: *const c_char)>;

/// What a context is made for. All zero: the CPU with as many threads as the process may use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_context_desc {
    pub struct_size: usize,
    /// NVFP4_DEVICE_*.
    pub device: u32,
    /// CUDA device number.
    pub ordinal: u32,
    /// CPU threads of one call, caller included; 0 = all that the process may use. Never changes a byte of a result.
    pub threads: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// An unquantized matrix, row-major, in the caller's memory (device memory for a CUDA context). As an output, the
/// memory `data` points to is written.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_matrix {
    pub struct_size: usize,
    pub data: *mut c_void,
    /// NVFP4_F32, NVFP4_BF16 or NVFP4_F16.
    pub dtype: u32,
    /// Must be 0.
    pub reserved: u32,
    pub rows: i64,
    pub cols: i64,
    /// Elements from one row to the next; 0 = cols. At least cols.
    pub stride: i64,
}

/// How one copy (rowwise or columnwise) is quantized. All zero: NVFP4, 1x16, chain TE, nearest, no transform.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_options {
    pub struct_size: usize,
    /// NVFP4_FORMAT_*.
    pub format: u32,
    /// NVFP4_BLOCK_*.
    pub block: u32,
    /// NVFP4_CHAIN_* (NVFP4 only).
    pub chain: u32,
    /// NVFP4_RULE_* (MXFP4 only).
    pub scale_rule: u32,
    /// NVFP4_ROUND_*.
    pub rounding: u32,
    /// NVFP4_SCALES_*.
    pub scale_layout: u32,
    /// NVFP4_SELECT_*.
    pub select: u32,
    /// Length of the Hadamard transform along the copy's rows: 0 (none), 16, 32, 64 or 128.
    pub hadamard: u32,
    /// NVFP4_SIGNS_*.
    pub signs: u32,
    /// NVFP4_KEEP_F32 | NVFP4_RANGE_16_17 | NVFP4_MX_HALF_SCALE.
    pub flags: u32,
    pub sign_mask: [u32; 4],
    /// Rows of the copy that share one amax; 0 = the whole tensor.
    pub domain_rows: i64,
    /// C of docs/format.md section 2: 0 = 2688 (4/6: 1536), else 2688 or 1536.
    pub c: f32,
    /// Must be 0.
    pub reserved: u32,
}

/// One call of quantize, requantize or amax: options of each copy and what they share.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_quantize_desc {
    pub struct_size: usize,
    /// Options of the rowwise copy, [rows, cols].
    pub rowwise: nvfp4_options,
    /// Options of the columnwise copy, which is stored transposed, [cols, rows].
    pub columnwise: nvfp4_options,
    /// NVFP4_NONFINITE_*.
    pub nonfinite: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Key of stochastic rounding and of seeded signs.
    pub seed: u64,
    /// Number of the draw; below 2^62. Use another one for each call that must draw other bits.
    pub offset: u64,
    /// If not NULL: device memory (host memory for a CPU context) with two u64, seed and offset, used instead.
    pub seed_offset: *const u64,
    /// Row and column of this slice's first element in the whole matrix; multiples of the block and transform lengths
    /// along each axis that is blocked or transformed.
    pub origin_row: i64,
    pub origin_col: i64,
    /// Given amax (scale domain GIVEN): one f32 a scale domain of that copy, or NULL to compute it.
    pub rowwise_amax: *const f32,
    pub columnwise_amax: *const f32,
    /// If not NULL: receives statistics of the rowwise copy (of the columnwise one if it is the only one).
    pub stats: *mut nvfp4_stats,
    /// Scratch memory of at least `nvfp4_quantize_sizes().workspace_bytes`; may be NULL when that is 0.
    pub workspace: *mut c_void,
    pub workspace_bytes: usize,
}

/// What a quantizer did to its input.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nvfp4_stats {
    /// Input elements that are NaN or Inf.
    pub nonfinite: u64,
    /// Finite elements whose scaled magnitude exceeded 6, the largest code.
    pub saturated: u64,
    /// Non-zero finite elements that decode to 0.
    pub underflowed: u64,
    /// Sum of x^2, and of (decoded - x)^2, over finite elements that decode to finite values.
    pub sum_squares: f64,
    pub sum_squared_error: f64,
}

/// A quantized matrix in the caller's buffers. Before quantize the caller sets struct_size, the pointers, their sizes
/// and, if wanted, the strides; quantize fills in the rest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_quantized {
    pub struct_size: usize,
    /// Two E2M1 codes a byte, element 2i in the low nibble (BF16: 2 bytes an element).
    pub codes: *mut c_void,
    /// Bytes at `codes`.
    pub codes_bytes: usize,
    /// E4M3 or E8M0 bytes. Unused by BF16.
    pub scales: *mut c_void,
    /// Bytes at `scales`.
    pub scales_bytes: usize,
    /// One f32 a scale domain. Unused by MXFP4, BF16 and chain SINGLE (may be NULL).
    pub amax: *mut f32,
    /// Values at `amax`.
    pub amax_count: usize,
    /// Logical shape of this copy; a columnwise copy of an [R, C] matrix has rows = C, cols = R, and with a transform
    /// of n its cols are R rounded up to n.
    pub rows: i64,
    pub cols: i64,
    /// Bytes from one row of codes to the next; 0 = ceil(cols/2) (BF16: 2*cols).
    pub code_stride: i64,
    /// Linear layout: bytes from one row of scales to the next; 0 = ceil(cols/block).
    pub scale_stride: i64,
    /// NVFP4_FORMAT_*, NVFP4_BLOCK_*, NVFP4_CHAIN_*, NVFP4_RULE_*, NVFP4_SCALES_*.
    pub format: u32,
    pub block: u32,
    pub chain: u32,
    pub scale_rule: u32,
    pub scale_layout: u32,
    /// Flags that change decoding: NVFP4_RANGE_16_17.
    pub flags: u32,
    /// Transform that the data went through, so that two operands of one contraction can be checked against each
    /// other: its length (0: none) and the signs as applied.
    pub hadamard: u32,
    /// 1 = this is the transposed (columnwise) copy of its source.
    pub transposed: u32,
    pub sign_mask: [u32; 4],
    /// Rows that share one amax; 0 = the whole tensor.
    pub domain_rows: i64,
    /// C of docs/format.md section 2; 0 = 2688.
    pub c: f32,
    /// Columns of the source before a transform's padding; 0 = cols.
    pub source_cols: i64,
    /// 0: one matrix. Else this copy was made by nvfp4_grouped_quantize, for that many groups, with one amax a group;
    /// only nvfp4_grouped_gemm reads it.
    pub groups: i64,
}

/// Buffer sizes of one quantize call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nvfp4_sizes {
    pub rowwise_codes_bytes: usize,
    pub rowwise_scales_bytes: usize,
    pub rowwise_amax_count: usize,
    pub columnwise_codes_bytes: usize,
    pub columnwise_scales_bytes: usize,
    pub columnwise_amax_count: usize,
    pub workspace_bytes: usize,
}

/// D[i] = act(alpha' * A[i] B[i]^T + beta * C[i] + bias) for i in 0..batch. A is [M, K], B is [N, K], D and C are
/// [M, N], bias has N values.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_gemm_desc {
    pub struct_size: usize,
    /// NVFP4_ACCUMULATE_*.
    pub accumulate: u32,
    /// NVFP4_ACTIVATION_*.
    pub activation: u32,
    /// Pointers to one f32 (device memory for a CUDA context); NULL = 1 and 0.
    pub alpha: *const f32,
    pub beta: *const f32,
    /// If not NULL: N values of `bias_dtype`.
    pub bias: *const c_void,
    pub bias_dtype: u32,
    /// Force a candidate (0 = the first that accepts); names are in the plan log.
    pub provider: u32,
    /// Number of products; 0 = 1. Product i uses the operands shifted by i times the strides below.
    pub batch: i64,
    /// Bytes between the codes (scales) of consecutive A (B); 0 = the same operand every time.
    pub a_codes_batch_stride: i64,
    pub a_scales_batch_stride: i64,
    pub b_codes_batch_stride: i64,
    pub b_scales_batch_stride: i64,
    /// f32 values between the amax of consecutive A (B); 0 = the same.
    pub a_amax_batch_stride: i64,
    pub b_amax_batch_stride: i64,
    /// Elements between consecutive C, D; bias is shared.
    pub c_batch_stride: i64,
    pub d_batch_stride: i64,
    /// Optional factors, one f32 a row of D, one a column of D, multiplied into alpha'.
    pub row_factors: *const f32,
    pub col_factors: *const f32,
    /// NVFP4 output instead of `d`: quantized with `d_options` and the given amax `d_quantized_amax`
    /// (one a scale domain; required unless the chain is SINGLE or the format MXFP4).
    pub d_quantized: *mut nvfp4_quantized,
    pub d_options: nvfp4_options,
    pub d_quantized_amax: *const f32,
    /// Key of stochastic rounding of the NVFP4 output.
    pub seed: u64,
    pub offset: u64,
    /// If not NULL: B prepacked by `nvfp4_pack_weight`; `b` still describes it.
    pub b_packed: *const c_void,
    pub b_packed_bytes: usize,
    pub workspace: *mut c_void,
    pub workspace_bytes: usize,
}

/// A Hadamard transform of a matrix, y = (x .* sign) H / sqrt(n) on blocks of n along `axis`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_hadamard_desc {
    pub struct_size: usize,
    /// 16, 32, 64 or 128; 0 = 16.
    pub n: u32,
    /// 0: along each row. 1: along each column.
    pub axis: u32,
    /// 1: y = (x H / sqrt(n)) .* sign, which undoes the transform.
    pub inverse: u32,
    /// NVFP4_SIGNS_*.
    pub signs: u32,
    pub sign_mask: [u32; 4],
    pub seed: u64,
    pub offset: u64,
}

/// How a linear layer is trained: options of each operand and direction. `nvfp4_recipe_init` fills it by name; any
/// field may be changed after.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_recipe {
    pub struct_size: usize,
    pub activation_rowwise: nvfp4_options,
    pub activation_columnwise: nvfp4_options,
    pub weight_rowwise: nvfp4_options,
    pub weight_columnwise: nvfp4_options,
    pub gradient_rowwise: nvfp4_options,
    pub gradient_columnwise: nvfp4_options,
    /// NVFP4_ACCUMULATE_* of all three products.
    pub accumulate: u32,
    /// NVFP4_NONFINITE_* of all quantizers.
    pub nonfinite: u32,
}

/// One linear layer, y = x W^T + bias: x is [tokens, in], W is [out, in], y is [tokens, out].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_linear_desc {
    pub struct_size: usize,
    pub recipe: *const nvfp4_recipe,
    pub seed: u64,
    pub offset: u64,
    /// As in nvfp4_quantize_desc.
    pub seed_offset: *const u64,
    /// wgrad adds to dw (f32) instead of overwriting it when not 0.
    pub accumulate_wgrad: u32,
    pub reserved: u32,
    /// At least `nvfp4_linear_workspace()` bytes.
    pub workspace: *mut c_void,
    pub workspace_bytes: usize,
}

/// One call of nvfp4_grouped_quantize: group g is the rows offsets[g]..offsets[g + 1] of x.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_grouped_quantize_desc {
    pub struct_size: usize,
    /// Options of the copies, seed, origin and workspace; NULL is all default. A given amax has one value a group.
    pub quantize: *const nvfp4_quantize_desc,
    /// G, at least 1.
    pub groups: i64,
    /// G + 1 values that ascend from at least 0 to at most the rows of x, in device memory for a CUDA context.
    pub offsets: *const i64,
    /// In the columnwise copy each group starts at a multiple of this many columns; see docs/abi.md, "Groups". 0 = the
    /// least that its block, transform and scale layout allow.
    pub column_align: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// One product a group. Ragged M: D[r] = act(alpha' * A[r] B_g^T + beta * C[r] + bias_g) for the rows r of group g.
/// Ragged K: D_g = act(alpha' * A_g B_g^T + beta * C_g + bias_g), over the columns of group g.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvfp4_grouped_gemm_desc {
    pub struct_size: usize,
    /// NVFP4_RAGGED_*.
    pub ragged: u32,
    /// NVFP4_ACCUMULATE_*.
    pub accumulate: u32,
    /// G, at least 1.
    pub groups: i64,
    /// As in nvfp4_grouped_quantize_desc.
    pub offsets: *const i64,
    /// Ragged K: as in nvfp4_grouped_quantize_desc; the same for both operands.
    pub column_align: u32,
    /// NVFP4_ACTIVATION_*.
    pub activation: u32,
    /// f32 in the context's memory: that of group g is alpha[g * alpha_stride]; NULL = 1.
    pub alpha: *const f32,
    pub alpha_stride: i64,
    /// One f32 in the context's memory; NULL = 0: C is not read.
    pub beta: *const f32,
    /// If not NULL: N values of `bias_dtype` for each group, `bias_stride` values apart (0: the same for all).
    pub bias: *const c_void,
    pub bias_stride: i64,
    pub bias_dtype: u32,
    /// Force a candidate, as in nvfp4_gemm_desc.
    pub provider: u32,
    /// Ragged M: from one group's B to the next, bytes of codes and of scales and values of amax; 0 = the same B.
    pub b_codes_stride: i64,
    pub b_scales_stride: i64,
    pub b_amax_stride: i64,
    /// Ragged K: elements from one group's C, D to the next; 0 = rows * stride.
    pub c_group_stride: i64,
    pub d_group_stride: i64,
    /// Ragged M: if not NULL one factor a row of D, multiplied into alpha'.
    pub row_factors: *const f32,
    pub workspace: *mut c_void,
    pub workspace_bytes: usize,
}
