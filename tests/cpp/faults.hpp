// What the fault tests share: presenting one logical matrix to every entry point, small decoders of their own, and the
// table. A fault is one row: its letter, what went wrong elsewhere, and a function that shows it does not here.
#ifndef FAULTS_HPP
#define FAULTS_HPP

#include <nvfp4.hpp>

#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>

namespace faults {

using nvfp4::ConstMatrix;
using nvfp4::Context;
using nvfp4::Matrix;
using nvfp4::Options;
using nvfp4::Quantized;
using nvfp4::QuantizeDesc;
using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

constexpr float inf = std::numeric_limits<float>::infinity();
inline const float nan = std::nanf("");

/// The context of all faults, several threads.
const Context& ctx();

/// Collects what one fault's checks found.
class Check {
 public:
  /// `what` is only built for a failure's line when it is cheap to build always: keep it a literal or a short sum.
  void that(bool condition, const std::string& what);
  /// The call throws this status, and the sentence holds `words`.
  void fails(nvfp4_status status, const std::string& words, const std::function<void()>& call);
  template <class A, class B>
  void equal(const A& got, const B& want, const std::string& what) {
    that(got == want, what);
  }
  int count = 0;
  int failed = 0;
  std::string first;  // the first failure's words
};

struct Fault {
  const char* name;
  const char* symptom;  // as others saw it
  void (*run)(Check&);
};
std::vector<Fault> quantize_faults();
std::vector<Fault> shape_faults();
std::vector<Fault> random_faults();
std::vector<Fault> gemm_faults();

// ------------------------------------------------------------------------------------------- presenting a matrix

/// Through which copy a logical [rows, cols] matrix is quantized. `column`: its transpose is given, and the columnwise
/// copy, which is stored transposed, is the answer. `both` copies are made and the rowwise one is the answer.
enum class Side { row, column, both };
constexpr Side sides[] = {Side::row, Side::column, Side::both};
const char* name(Side side);

struct How {
  Options options;
  Side side = Side::row;
  std::uint32_t dtype = NVFP4_F32;
  const float* amax = nullptr;  // given, one a domain
  std::uint32_t nonfinite = NVFP4_NONFINITE_PROPAGATE;
  std::uint64_t seed = 0, offset = 0;
  std::int64_t origin_row = 0, origin_col = 0;
  nvfp4_stats* stats = nullptr;
};
std::string words(const How& how);

/// Quantizes a logical [rows, cols] matrix, with every output buffer full of 0xFF and again full of 0x00, and checks
/// that the two agree. The copy has that logical shape.
Quantized quantize(Check& check, const Floats& x, std::int64_t rows, std::int64_t cols, const How& how);
Floats dequantize(const Quantized& q);

Floats transposed(const Floats& x, std::int64_t rows, std::int64_t cols);
/// `count` values of one kind; random ones are standard normal, always the same for a seed.
Floats constant(std::size_t count, float value);
Floats normal(std::size_t count, unsigned seed);

// ------------------------------------------------------------------------------------------------------- options

/// Options by name of what differs from the default.
Options chain(std::uint32_t chain);
Options mx(std::uint32_t rule);
Options tiles(Options options);
Options rht(Options options, std::uint32_t n);
Options stochastic(Options options);
Options swizzled(Options options);
/// Every format, chain and rule, with 1D blocks: what most faults are tried on.
std::vector<Options> formats();
/// The two-level chains of NVFP4, whose bytes the fault list states.
std::vector<Options> two_level();
inline std::int64_t block_of(const Options& o) { return o.format == NVFP4_FORMAT_MXFP4 ? 32 : 16; }

// ------------------------------------------------------------------------- small decoders, written here once more

/// Code of element (r, c): the low nibble is the even column.
int code(const Quantized& q, std::int64_t r, std::int64_t c);
std::uint8_t scale(const Quantized& q, std::int64_t r, std::int64_t block);
float e2m1(int code);
float e4m3(std::uint8_t byte);
/// Distance in units of the last place of `want`.
double ulps(float got, float want);
bool all(const Floats& x, const std::function<bool(float)>& test);
bool same_bytes(const Quantized& a, const Quantized& b);
/// `got` and `want` bit for bit, so that NaN equals itself and -0 differs from 0.
bool same_bits(const Floats& got, const Floats& want);

/// A quantized matrix from parts, packed: every code and every scale byte the same, or as given.
Quantized parts(const Options& o, std::int64_t rows, std::int64_t cols, int code, std::uint8_t scale, float amax = 2688);
nvfp4_quantized meta(const Options& o, std::int64_t rows, std::int64_t cols);

}  // namespace faults

#endif
