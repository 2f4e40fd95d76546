// nvfp4.hpp: the C++17 face of libnvfp4. Header only, on top of nvfp4.h; needs nothing but the standard library.
//
//   nvfp4::Context ctx;                                        // the CPU; Context::cuda(0) for a GPU
//   nvfp4::Quantized q = nvfp4::quantize(ctx, {x, rows, cols});  // owns its codes, scales and amax
//   nvfp4::gemm(ctx, a, b, {d, m, n});                         // D = A B^T
//
// Every function of the C library has its wrapper here, under its name without the prefix. A failed call throws
// nvfp4::Error, which carries the status and the library's sentence; outputs are then as they were.
//
// Memory: owning types (Quantized, Workspace) hold host memory. For a CUDA context pass device pointers in the C
// structs (Matrix, nvfp4_quantized), whose memory stays yours, and set the descriptor's workspace.
// Threads: a Context may be used from many threads at once. Everything else is a plain value.
#ifndef NVFP4_HPP
#define NVFP4_HPP

#include <nvfp4.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace nvfp4 {

// ---------------------------------------------------------------------------------------------------- errors

/// A failed call: what() is the library's sentence with the values in it, status() the C ABI's code.
class Error : public std::runtime_error {
 public:
  Error(nvfp4_status status, const char* message) : std::runtime_error(message), status_(status) {}
  nvfp4_status status() const noexcept { return status_; }
  /// "NVFP4_ERR_SHAPE" and so on.
  const char* name() const noexcept { return nvfp4_status_name(status_); }

 private:
  nvfp4_status status_;
};

/// Throws Error unless the call returned NVFP4_OK.
inline void check(nvfp4_status status) {
  if (status != NVFP4_OK) throw Error(status, nvfp4_last_error());
}

inline const char* last_error() noexcept { return nvfp4_last_error(); }
inline const char* status_name(nvfp4_status status) noexcept { return nvfp4_status_name(status); }
/// major << 16 | minor << 8 | patch of the library that is loaded.
inline std::uint32_t version() noexcept { return nvfp4_version(); }
inline const char* version_string() noexcept { return nvfp4_version_string(); }
/// Passes log lines up to `level` to `fn`, from whichever thread makes them; NVFP4_LOG_OFF or nullptr ends it.
inline void set_log(nvfp4_log_fn fn, void* user, std::uint32_t level) { check(nvfp4_set_log(fn, user, level)); }

// ----------------------------------------------------------------------------------------------- descriptors

/// A C descriptor with every field at its default and struct_size set.
template <class C>
struct Descriptor : C {
  Descriptor() noexcept : C{} { this->struct_size = sizeof(C); }
  Descriptor(const C& from) noexcept : C(from) {}  // NOLINT: a C struct is one of these
};

using ContextDesc = Descriptor<nvfp4_context_desc>;
using Options = Descriptor<nvfp4_options>;
using HadamardDesc = Descriptor<nvfp4_hadamard_desc>;
using LinearDesc = Descriptor<nvfp4_linear_desc>;
using Stats = nvfp4_stats;
using Sizes = nvfp4_sizes;

struct QuantizeDesc : Descriptor<nvfp4_quantize_desc> {
  QuantizeDesc() noexcept { rowwise = columnwise = Options(); }
  QuantizeDesc(const nvfp4_quantize_desc& from) noexcept : Descriptor(from) {}  // NOLINT
  /// The same options for both copies.
  explicit QuantizeDesc(const nvfp4_options& both) noexcept { rowwise = columnwise = both; }
};

struct GemmDesc : Descriptor<nvfp4_gemm_desc> {
  GemmDesc() noexcept { d_options = Options(); }
  GemmDesc(const nvfp4_gemm_desc& from) noexcept : Descriptor(from) {}  // NOLINT
};

struct GroupedQuantizeDesc : Descriptor<nvfp4_grouped_quantize_desc> {
  GroupedQuantizeDesc() noexcept = default;
  /// `groups_` + 1 offsets, in the context's memory; `quantize_` (or nullptr) must outlive this.
  GroupedQuantizeDesc(std::int64_t groups_, const std::int64_t* offsets_, const nvfp4_quantize_desc* quantize_) noexcept {
    groups = groups_;
    offsets = offsets_;
    quantize = quantize_;
  }
};

using GroupedGemmDesc = Descriptor<nvfp4_grouped_gemm_desc>;

// ---------------------------------------------------------------------------------------------------- values

/// A bfloat16 as its 16 bits. Conversion from float rounds to nearest, ties to even; a NaN stays a NaN.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  explicit bf16(float value) noexcept {
    std::uint32_t u;
    std::memcpy(&u, &value, sizeof u);
    const bool nan = (u & 0x7FFFFFFFu) > 0x7F800000u;
    u = nan ? (u >> 16) | 0x40u : (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    bits = static_cast<std::uint16_t>(u);
  }
  explicit operator float() const noexcept {
    const std::uint32_t u = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &u, sizeof value);
    return value;
  }
  static bf16 from_bits(std::uint16_t b) noexcept {
    bf16 v;
    v.bits = b;
    return v;
  }
};

/// An IEEE binary16 as its 16 bits.
struct f16 {
  std::uint16_t bits;
};

/// NVFP4_F32, NVFP4_BF16 or NVFP4_F16 of an element type. Specialize it for your own 2-byte types.
template <class T>
struct dtype_of;
template <>
struct dtype_of<float> : std::integral_constant<std::uint32_t, NVFP4_F32> {};
template <>
struct dtype_of<bf16> : std::integral_constant<std::uint32_t, NVFP4_BF16> {};
template <>
struct dtype_of<f16> : std::integral_constant<std::uint32_t, NVFP4_F16> {};

/// A matrix that a call reads: a view, row-major, `stride` elements from row to row (0 = cols).
struct ConstMatrix : nvfp4_matrix {
  template <class T>
  ConstMatrix(const T* data_, std::int64_t rows_, std::int64_t cols_, std::int64_t stride_ = 0) noexcept
      : ConstMatrix(data_, dtype_of<T>::value, rows_, cols_, stride_) {}
  /// For memory whose element type C++ does not know, such as a device pointer.
  ConstMatrix(const void* data_, std::uint32_t dtype_, std::int64_t rows_, std::int64_t cols_,
              std::int64_t stride_) noexcept
      : nvfp4_matrix{} {
    struct_size = sizeof(nvfp4_matrix);
    data = const_cast<void*>(data_);  // calls that take a ConstMatrix never write through it
    dtype = dtype_;
    rows = rows_;
    cols = cols_;
    stride = stride_;
  }
};

/// A matrix that a call may write.
struct Matrix : ConstMatrix {
  template <class T, class = std::enable_if_t<!std::is_const<T>::value>>
  Matrix(T* data_, std::int64_t rows_, std::int64_t cols_, std::int64_t stride_ = 0) noexcept
      : ConstMatrix(data_, rows_, cols_, stride_) {}
  Matrix(void* data_, std::uint32_t dtype_, std::int64_t rows_, std::int64_t cols_, std::int64_t stride_) noexcept
      : ConstMatrix(data_, dtype_, rows_, cols_, stride_) {}
};

// --------------------------------------------------------------------------------------------------- context

/// The CPU or one CUDA device. Movable; destroyed with the object.
class Context {
 public:
  /// The CPU with as many threads as the process may use.
  Context() : Context(ContextDesc()) {}
  explicit Context(const nvfp4_context_desc& desc) { check(nvfp4_context_create(&desc, &handle_)); }
  /// The CPU with that many threads in a call. The number never changes a byte of a result.
  static Context cpu(std::uint32_t threads = 0) {
    ContextDesc desc;
    desc.threads = threads;
    return Context(desc);
  }
  static Context cuda(std::uint32_t ordinal = 0) {
    ContextDesc desc;
    desc.device = NVFP4_DEVICE_CUDA;
    desc.ordinal = ordinal;
    return Context(desc);
  }
  Context(Context&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Context& operator=(Context&& other) noexcept {
    if (this != &other) {
      nvfp4_context_destroy(handle_);
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { nvfp4_context_destroy(handle_); }

  /// The C handle; it stays the object's.
  nvfp4_context* get() const noexcept { return handle_; }

 private:
  nvfp4_context* handle_ = nullptr;
};

/// Scratch memory for a descriptor's `workspace` on the CPU, 256-byte aligned. Grows, never shrinks.
class Workspace {
 public:
  Workspace() = default;
  explicit Workspace(std::size_t bytes) { reserve(bytes); }
  Workspace(Workspace&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Workspace& operator=(Workspace&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { release(); }

  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    void* fresh = ::operator new(bytes, alignment);
    release();
    data_ = fresh;
    bytes_ = bytes;
  }
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Lends this memory to a descriptor that brings none, if it needs any.
  template <class Desc>
  void lend(Desc& desc, std::size_t bytes) {
    if (bytes == 0 || desc.workspace != nullptr) return;
    reserve(bytes);
    desc.workspace = data_;
    desc.workspace_bytes = bytes_;
  }

 private:
  static constexpr std::align_val_t alignment{256};
  void release() noexcept {
    if (data_ != nullptr) ::operator delete(data_, alignment);
    data_ = nullptr;
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// ------------------------------------------------------------------------------------------- quantized matrix

/// A quantized matrix that owns its buffers in host memory; converts to the C view wherever one is asked for.
/// Copies are deep. What the bytes mean: docs/format.md.
class Quantized {
 public:
  Quantized() = default;
  /// Room for one copy, to be filled by a quantize call.
  Quantized(std::size_t codes_bytes, std::size_t scales_bytes, std::size_t amax_count)
      : codes_(codes_bytes), scales_(scales_bytes), amax_(amax_count) {}
  /// From parts made elsewhere; `meta` gives rows, cols, format, block, chain and the other fields, its pointers and
  /// sizes are ignored.
  Quantized(const nvfp4_quantized& meta, std::vector<std::uint8_t> codes, std::vector<std::uint8_t> scales,
            std::vector<float> amax)
      : meta_(meta), codes_(std::move(codes)), scales_(std::move(scales)), amax_(std::move(amax)) {}

  std::int64_t rows() const noexcept { return meta_.rows; }
  std::int64_t cols() const noexcept { return meta_.cols; }
  std::uint32_t format() const noexcept { return meta_.format; }
  /// Two E2M1 codes a byte, element 2i in the low nibble; ceil(cols/2) bytes a row.
  const std::vector<std::uint8_t>& codes() const noexcept { return codes_; }
  const std::vector<std::uint8_t>& scales() const noexcept { return scales_; }
  /// One value a scale domain.
  const std::vector<float>& amax() const noexcept { return amax_; }
  /// Every field but the pointers and sizes.
  const nvfp4_quantized& meta() const noexcept { return meta_; }

  /// The C view of this matrix, valid while the object lives and is not assigned to. A call that takes a
  /// `const nvfp4_quantized*` never writes through it.
  nvfp4_quantized view() const noexcept {
    nvfp4_quantized v = meta_;
    v.struct_size = sizeof(nvfp4_quantized);
    v.codes = const_cast<std::uint8_t*>(codes_.data());
    v.codes_bytes = codes_.size();
    v.scales = const_cast<std::uint8_t*>(scales_.data());
    v.scales_bytes = scales_.size();
    v.amax = const_cast<float*>(amax_.data());
    v.amax_count = amax_.size();
    return v;
  }
  operator nvfp4_quantized() const noexcept { return view(); }  // NOLINT: it is one

  /// Takes the fields that a call filled in through a view of this object.
  void adopt(const nvfp4_quantized& filled) noexcept { meta_ = filled; }

 private:
  Descriptor<nvfp4_quantized> meta_;
  std::vector<std::uint8_t> codes_;
  std::vector<std::uint8_t> scales_;
  std::vector<float> amax_;
};

/// Which copies a quantize call makes.
enum : std::uint32_t { rowwise_copy = 1, columnwise_copy = 2, both_copies = 3 };

inline Sizes quantize_sizes(const Context& ctx, const nvfp4_quantize_desc& desc, std::int64_t rows, std::int64_t cols,
                            std::uint32_t dtype, std::uint32_t copies) {
  Sizes sizes{};
  check(nvfp4_quantize_sizes(ctx.get(), &desc, rows, cols, dtype, copies, &sizes));
  return sizes;
}

namespace detail {

/// Room for both copies (those not asked for stay empty), then one call through their views.
template <class Call>
std::pair<Quantized, Quantized> filled(const Context& ctx, nvfp4_quantize_desc desc, std::int64_t rows,
                                       std::int64_t cols, std::uint32_t dtype, std::uint32_t copies, Call call) {
  const Sizes s = quantize_sizes(ctx, desc, rows, cols, dtype, copies);
  Workspace workspace;
  workspace.lend(desc, s.workspace_bytes);
  Quantized row(s.rowwise_codes_bytes, s.rowwise_scales_bytes, s.rowwise_amax_count);
  Quantized column(s.columnwise_codes_bytes, s.columnwise_scales_bytes, s.columnwise_amax_count);
  nvfp4_quantized r = row.view();
  nvfp4_quantized c = column.view();
  const bool want_row = (copies & rowwise_copy) != 0;
  const bool want_column = (copies & columnwise_copy) != 0;
  check(call(&desc, want_row ? &r : nullptr, want_column ? &c : nullptr));
  if (want_row) row.adopt(r);
  if (want_column) column.adopt(c);
  return {std::move(row), std::move(column)};
}

inline std::pair<Quantized, Quantized> quantized(const Context& ctx, const ConstMatrix& x,
                                                 const nvfp4_quantize_desc& desc, std::uint32_t copies, void* stream) {
  return filled(ctx, desc, x.rows, x.cols, x.dtype, copies,
                [&](const nvfp4_quantize_desc* d, nvfp4_quantized* row, nvfp4_quantized* column) {
                  return nvfp4_quantize(ctx.get(), d, &x, row, column, stream);
                });
}

}  // namespace detail

/// The rowwise copy of x, [rows, cols].
inline Quantized quantize(const Context& ctx, const ConstMatrix& x, const nvfp4_quantize_desc& desc = QuantizeDesc(),
                          void* stream = nullptr) {
  return detail::quantized(ctx, x, desc, rowwise_copy, stream).first;
}

/// The columnwise copy of x, stored transposed: [cols, rows].
inline Quantized quantize_columnwise(const Context& ctx, const ConstMatrix& x,
                                     const nvfp4_quantize_desc& desc = QuantizeDesc(), void* stream = nullptr) {
  return detail::quantized(ctx, x, desc, columnwise_copy, stream).second;
}

/// Both copies from one read of x: {rowwise, columnwise}.
inline std::pair<Quantized, Quantized> quantize_both(const Context& ctx, const ConstMatrix& x,
                                                     const nvfp4_quantize_desc& desc = QuantizeDesc(),
                                                     void* stream = nullptr) {
  return detail::quantized(ctx, x, desc, both_copies, stream);
}

/// Into buffers of yours; either copy may be nullptr. The descriptor must bring the workspace.
inline void quantize(const Context& ctx, const nvfp4_quantize_desc& desc, const ConstMatrix& x,
                     nvfp4_quantized* rowwise, nvfp4_quantized* columnwise, void* stream = nullptr) {
  check(nvfp4_quantize(ctx.get(), &desc, &x, rowwise, columnwise, stream));
}

/// amax of each copy that is asked for, after its transform: one value a scale domain.
inline void amax(const Context& ctx, const nvfp4_quantize_desc& desc, const ConstMatrix& x, float* rowwise,
                 float* columnwise, void* stream = nullptr) {
  check(nvfp4_amax(ctx.get(), &desc, &x, rowwise, columnwise, stream));
}

/// Quantizes the values of a quantized matrix again, with other options or along the other axis. Copies as in
/// `rowwise_copy`; {rowwise, columnwise}.
inline std::pair<Quantized, Quantized> requantize(const Context& ctx, const nvfp4_quantized& x,
                                                  const nvfp4_quantize_desc& desc, std::uint32_t copies,
                                                  void* stream = nullptr) {
  return detail::filled(ctx, desc, x.rows, x.cols, NVFP4_F32, copies,
                        [&](const nvfp4_quantize_desc* d, nvfp4_quantized* row, nvfp4_quantized* column) {
                          return nvfp4_requantize(ctx.get(), d, &x, row, column, stream);
                        });
}

/// Into buffers of yours, as `quantize` above.
inline void requantize(const Context& ctx, const nvfp4_quantize_desc& desc, const nvfp4_quantized& x,
                       nvfp4_quantized* rowwise, nvfp4_quantized* columnwise, void* stream = nullptr) {
  check(nvfp4_requantize(ctx.get(), &desc, &x, rowwise, columnwise, stream));
}

/// out = x, or x^T with `transpose`.
inline void dequantize(const Context& ctx, const nvfp4_quantized& x, const Matrix& out, bool transpose = false,
                       void* stream = nullptr) {
  check(nvfp4_dequantize(ctx.get(), &x, transpose ? 1u : 0u, &out, stream));
}

/// The transpose of a 2D-quantized matrix, from its codes and scales alone.
inline void transpose(const Context& ctx, const nvfp4_quantized& x, nvfp4_quantized& out, void* stream = nullptr) {
  check(nvfp4_transpose(ctx.get(), &x, &out, stream));
}

// ------------------------------------------------------------------------------------- transform and layouts

/// y = (x .* sign) H / sqrt(n) on blocks of n along an axis, or its inverse.
inline void hadamard(const Context& ctx, const ConstMatrix& x, const Matrix& y,
                     const nvfp4_hadamard_desc& desc = HadamardDesc(), void* stream = nullptr) {
  check(nvfp4_hadamard(ctx.get(), &desc, &x, &y, stream));
}

/// Bytes of the scales of a [rows, scale_cols] matrix of scale bytes in a layout (NVFP4_SCALES_*).
inline std::size_t scales_bytes(std::int64_t rows, std::int64_t scale_cols, std::uint32_t layout) {
  std::size_t bytes = 0;
  check(nvfp4_scales_bytes(rows, scale_cols, layout, &bytes));
  return bytes;
}

inline void swizzle_scales(const Context& ctx, std::int64_t rows, std::int64_t scale_cols, const std::uint8_t* linear,
                           std::int64_t stride, std::uint8_t* swizzled, std::size_t swizzled_bytes,
                           void* stream = nullptr) {
  check(nvfp4_swizzle_scales(ctx.get(), rows, scale_cols, linear, stride, swizzled, swizzled_bytes, stream));
}

inline void unswizzle_scales(const Context& ctx, std::int64_t rows, std::int64_t scale_cols,
                             const std::uint8_t* swizzled, std::size_t swizzled_bytes, std::uint8_t* linear,
                             std::int64_t stride, void* stream = nullptr) {
  check(nvfp4_unswizzle_scales(ctx.get(), rows, scale_cols, swizzled, swizzled_bytes, linear, stride, stream));
}

// ------------------------------------------------------------------------------------------------------ gemm

inline std::size_t gemm_workspace(const Context& ctx, const nvfp4_gemm_desc& desc, const nvfp4_quantized& a,
                                  const nvfp4_quantized& b, const ConstMatrix* d) {
  std::size_t bytes = 0;
  check(nvfp4_gemm_workspace(ctx.get(), &desc, &a, &b, d, &bytes));
  return bytes;
}

/// D = act(alpha' * A B^T + beta * C + bias): A is [M, K], B is [N, K], C and D are [M, N]. On the CPU a missing
/// workspace is allocated for the call.
inline void gemm(const Context& ctx, const nvfp4_quantized& a, const nvfp4_quantized& b, const Matrix& d,
                 nvfp4_gemm_desc desc = GemmDesc(), const ConstMatrix* c = nullptr, void* stream = nullptr) {
  Workspace workspace;
  workspace.lend(desc, desc.workspace ? 0 : gemm_workspace(ctx, desc, a, b, &d));
  check(nvfp4_gemm(ctx.get(), &desc, &a, &b, c, &d, stream));
}

inline std::size_t pack_weight_bytes(const Context& ctx, const nvfp4_quantized& b) {
  std::size_t bytes = 0;
  check(nvfp4_pack_weight_bytes(ctx.get(), &b, &bytes));
  return bytes;
}

/// B in the order that gemm reads fastest, for GemmDesc::b_packed.
inline void pack_weight(const Context& ctx, const nvfp4_quantized& b, void* packed, std::size_t packed_bytes,
                        void* stream = nullptr) {
  check(nvfp4_pack_weight(ctx.get(), &b, packed, packed_bytes, stream));
}

/// A weight packed for the products of a context, with its memory. B itself must stay, unchanged: pack again when it
/// changes. Empty on a CUDA context, where gemm reads B as it is.
class PackedWeight {
 public:
  PackedWeight(const Context& ctx, const nvfp4_quantized& b, void* stream = nullptr) : data_(pack_weight_bytes(ctx, b)) {
    if (!data_.empty()) pack_weight(ctx, b, data_.data(), data_.size(), stream);
  }
  std::size_t bytes() const noexcept { return data_.size(); }
  /// For products with this B; the object must outlive them.
  void lend(nvfp4_gemm_desc& desc) const noexcept {
    desc.b_packed = data_.empty() ? nullptr : data_.data();
    desc.b_packed_bytes = data_.size();
  }

 private:
  std::vector<std::uint8_t> data_;
};

// ---------------------------------------------------------------------------------------------------- groups

inline Sizes grouped_quantize_sizes(const Context& ctx, const nvfp4_grouped_quantize_desc& desc, std::int64_t rows,
                                    std::int64_t cols, std::uint32_t dtype, std::uint32_t copies) {
  Sizes sizes{};
  check(nvfp4_grouped_quantize_sizes(ctx.get(), &desc, rows, cols, dtype, copies, &sizes));
  return sizes;
}

/// Copies of groups of rows of x, one amax a group (docs/abi.md, "Groups"): {rowwise, columnwise}, `copies` as in
/// `rowwise_copy`. On the CPU; what belongs to no group is 0.
inline std::pair<Quantized, Quantized> grouped_quantize(const Context& ctx, const ConstMatrix& x,
                                                        const nvfp4_grouped_quantize_desc& desc, std::uint32_t copies) {
  const Sizes s = grouped_quantize_sizes(ctx, desc, x.rows, x.cols, x.dtype, copies);
  Quantized row(s.rowwise_codes_bytes, s.rowwise_scales_bytes, s.rowwise_amax_count);
  Quantized column(s.columnwise_codes_bytes, s.columnwise_scales_bytes, s.columnwise_amax_count);
  nvfp4_quantized r = row.view();
  nvfp4_quantized c = column.view();
  const bool want_row = (copies & rowwise_copy) != 0;
  const bool want_column = (copies & columnwise_copy) != 0;
  check(nvfp4_grouped_quantize(ctx.get(), &desc, &x, want_row ? &r : nullptr, want_column ? &c : nullptr, nullptr));
  if (want_row) row.adopt(r);
  if (want_column) column.adopt(c);
  return {std::move(row), std::move(column)};
}

/// Into buffers of yours; either copy may be nullptr. desc.quantize must bring the workspace.
inline void grouped_quantize(const Context& ctx, const nvfp4_grouped_quantize_desc& desc, const ConstMatrix& x,
                             nvfp4_quantized* rowwise, nvfp4_quantized* columnwise, void* stream = nullptr) {
  check(nvfp4_grouped_quantize(ctx.get(), &desc, &x, rowwise, columnwise, stream));
}

inline std::size_t grouped_gemm_workspace(const Context& ctx, const nvfp4_grouped_gemm_desc& desc,
                                          const nvfp4_quantized& a, const nvfp4_quantized& b, const Matrix& d) {
  std::size_t bytes = 0;
  check(nvfp4_grouped_gemm_workspace(ctx.get(), &desc, &a, &b, &d, &bytes));
  return bytes;
}

/// One product a group. On the CPU a missing workspace is allocated for the call.
inline void grouped_gemm(const Context& ctx, const nvfp4_quantized& a, const nvfp4_quantized& b, const Matrix& d,
                         nvfp4_grouped_gemm_desc desc, const ConstMatrix* c = nullptr, void* stream = nullptr) {
  Workspace workspace;
  workspace.lend(desc, desc.workspace ? 0 : grouped_gemm_workspace(ctx, desc, a, b, d));
  check(nvfp4_grouped_gemm(ctx.get(), &desc, &a, &b, c, &d, stream));
}

// --------------------------------------------------------------------------------- recipes and linear layers

/// How a linear layer is trained, by name ("nvfp4", "nvfp4_no_rht", "mxfp4", "bf16"); every field may be changed.
struct Recipe : Descriptor<nvfp4_recipe> {
  explicit Recipe(const char* name) { check(nvfp4_recipe_init(name, this)); }
  explicit Recipe(const std::string& name) : Recipe(name.c_str()) {}
  Recipe(const nvfp4_recipe& from) noexcept : Descriptor(from) {}  // NOLINT
};

/// The quantize descriptor that a recipe means for an operand (NVFP4_OPERAND_*).
inline QuantizeDesc recipe_quantize_desc(const nvfp4_recipe& recipe, std::uint32_t operand) {
  QuantizeDesc desc;
  check(nvfp4_recipe_quantize_desc(&recipe, operand, &desc));
  return desc;
}

inline std::size_t linear_workspace(const Context& ctx, const nvfp4_linear_desc& desc, std::int64_t tokens,
                                    std::int64_t in_features, std::int64_t out_features, std::uint32_t dtype) {
  std::size_t bytes = 0;
  check(nvfp4_linear_workspace(ctx.get(), &desc, tokens, in_features, out_features, dtype, &bytes));
  return bytes;
}

/// One linear layer under a recipe, y = x W^T + bias: x is [tokens, in], W is [out, in], y is [tokens, out]. Keeps a
/// workspace, so one object serves one call at a time. The context must outlive it.
class Linear {
 public:
  Linear(const Context& ctx, const nvfp4_recipe& recipe) : ctx_(&ctx), recipe_(recipe) {}

  /// Key of stochastic rounding and of seeded signs. Give each layer its own seed and each step its own offset.
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;

  /// y = x W^T + bias; `bias` is 1 x out, or nullptr.
  void fprop(const ConstMatrix& x, const ConstMatrix& w, const ConstMatrix* bias, const Matrix& y,
             void* stream = nullptr) {
    const LinearDesc d = desc(x.rows, w.cols, w.rows, x.dtype);
    check(nvfp4_linear_fprop(ctx_->get(), &d, &x, &w, bias, &y, stream));
  }
  /// dx = dy W.
  void dgrad(const ConstMatrix& dy, const ConstMatrix& w, const Matrix& dx, void* stream = nullptr) {
    const LinearDesc d = desc(dy.rows, w.cols, w.rows, dy.dtype);
    check(nvfp4_linear_dgrad(ctx_->get(), &d, &dy, &w, &dx, stream));
  }
  /// dw = dy^T x, or dw += dy^T x with `accumulate`.
  void wgrad(const ConstMatrix& dy, const ConstMatrix& x, const Matrix& dw, bool accumulate = false,
             void* stream = nullptr) {
    LinearDesc d = desc(x.rows, x.cols, dy.cols, x.dtype);
    d.accumulate_wgrad = accumulate ? 1u : 0u;
    check(nvfp4_linear_wgrad(ctx_->get(), &d, &dy, &x, &dw, stream));
  }

 private:
  LinearDesc desc(std::int64_t tokens, std::int64_t in, std::int64_t out, std::uint32_t dtype) {
    LinearDesc d;
    d.recipe = &recipe_;
    d.seed = seed;
    d.offset = offset;
    workspace_.lend(d, linear_workspace(*ctx_, d, tokens, in, out, dtype));
    return d;
  }
  const Context* ctx_;
  Recipe recipe_;
  Workspace workspace_;
};

// The three products with a descriptor (and workspace) of yours.
inline void linear_fprop(const Context& ctx, const nvfp4_linear_desc& desc, const ConstMatrix& x, const ConstMatrix& w,
                         const ConstMatrix* bias, const Matrix& y, void* stream = nullptr) {
  check(nvfp4_linear_fprop(ctx.get(), &desc, &x, &w, bias, &y, stream));
}
inline void linear_dgrad(const Context& ctx, const nvfp4_linear_desc& desc, const ConstMatrix& dy,
                         const ConstMatrix& w, const Matrix& dx, void* stream = nullptr) {
  check(nvfp4_linear_dgrad(ctx.get(), &desc, &dy, &w, &dx, stream));
}
inline void linear_wgrad(const Context& ctx, const nvfp4_linear_desc& desc, const ConstMatrix& dy,
                         const ConstMatrix& x, const Matrix& dw, void* stream = nullptr) {
  check(nvfp4_linear_wgrad(ctx.get(), &desc, &dy, &x, &dw, stream));
}

// ------------------------------------------------------------------------------------------------- questions

/// NVFP4_OK, or the status that quantize would return; why is in last_error().
inline nvfp4_status supports_quantize(const Context& ctx, const nvfp4_quantize_desc& desc, std::int64_t rows,
                                      std::int64_t cols, std::uint32_t dtype, std::uint32_t copies) noexcept {
  return nvfp4_supports_quantize(ctx.get(), &desc, rows, cols, dtype, copies);
}

/// NVFP4_OK, or the status that gemm would return; `a_like` and `b_like` need no memory behind them.
inline nvfp4_status supports_gemm(const Context& ctx, const nvfp4_gemm_desc& desc, std::int64_t m, std::int64_t n,
                                  std::int64_t k, const nvfp4_quantized& a_like, const nvfp4_quantized& b_like,
                                  std::uint32_t out_dtype) noexcept {
  return nvfp4_supports_gemm(ctx.get(), &desc, m, n, k, &a_like, &b_like, out_dtype);
}

/// As supports_quantize; the offsets need not be there.
inline nvfp4_status supports_grouped_quantize(const Context& ctx, const nvfp4_grouped_quantize_desc& desc,
                                              std::int64_t rows, std::int64_t cols, std::uint32_t dtype,
                                              std::uint32_t copies) noexcept {
  return nvfp4_supports_grouped_quantize(ctx.get(), &desc, rows, cols, dtype, copies);
}

/// As supports_gemm; m (ragged M) or k (ragged K) counts the tokens of all groups.
inline nvfp4_status supports_grouped_gemm(const Context& ctx, const nvfp4_grouped_gemm_desc& desc, std::int64_t m,
                                          std::int64_t n, std::int64_t k, const nvfp4_quantized& a_like,
                                          const nvfp4_quantized& b_like, std::uint32_t out_dtype) noexcept {
  return nvfp4_supports_grouped_gemm(ctx.get(), &desc, m, n, k, &a_like, &b_like, out_dtype);
}

/// Runs the library's own checks on this context's device: the number that failed, and the report.
inline std::pair<std::uint32_t, std::string> selftest(const Context& ctx) {
  std::uint32_t failures = 0;
  std::string report(8192, '\0');
  check(nvfp4_selftest(ctx.get(), &failures, &report[0], report.size()));
  report.resize(std::strlen(report.c_str()));
  return {failures, report};
}

}  // namespace nvfp4

#endif  // NVFP4_HPP
