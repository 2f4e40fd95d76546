// Faults that other 4-bit libraries had, each a test with the outcome it must have here. One line of output a fault.
#include "faults.hpp"

#include <cstring>
#include <random>

namespace faults {

const Context& ctx() {
  static const Context context = Context::cpu(3);
  return context;
}

void Check::that(bool condition, const std::string& what) {
  ++count;
  if (condition) return;
  ++failed;
  if (first.empty()) first = what;
}

void Check::fails(nvfp4_status status, const std::string& words, const std::function<void()>& call) {
  try {
    call();
    that(false, std::string("no ") + nvfp4::status_name(status));
  } catch (const nvfp4::Error& e) {
    that(e.status() == status, std::string(e.name()) + " instead of " + nvfp4::status_name(status) + ": " + e.what());
    that(std::string(e.what()).find(words) != std::string::npos, "\"" + words + "\" is not in: " + e.what());
  }
}

const char* name(Side side) {
  return side == Side::row ? "rowwise" : side == Side::column ? "columnwise" : "both";
}

std::string words(const How& how) {
  const Options& o = how.options;
  std::string s = o.format == NVFP4_FORMAT_MXFP4   ? "mxfp4 rule " + std::to_string(o.scale_rule)
                  : o.format == NVFP4_FORMAT_BF16 ? "bf16"
                                                  : "nvfp4 chain " + std::to_string(o.chain);
  if (o.block == NVFP4_BLOCK_2D) s += " 2D";
  if (o.hadamard != 0) s += " RHT " + std::to_string(o.hadamard);
  if (o.rounding != 0) s += " SR";
  if (o.scale_layout != 0) s += " swizzled";
  if (o.domain_rows != 0) s += " domain " + std::to_string(o.domain_rows);
  return s + ", " + name(how.side) + ", dtype " + std::to_string(how.dtype);
}

namespace {

std::uint16_t half_bits(float x) {  // nearest even, for values that are normal or zero in f16
  std::uint32_t u;
  std::memcpy(&u, &x, 4);
  const std::uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) return static_cast<std::uint16_t>(sign);
  const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

Bytes as_dtype(const Floats& x, std::uint32_t dtype) {
  const std::size_t size = dtype == NVFP4_F32 ? 4 : 2;
  Bytes bytes(x.size() * size + 8);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint16_t narrow = dtype == NVFP4_BF16 ? nvfp4::bf16(x[i]).bits : half_bits(x[i]);
    std::memcpy(&bytes[i * size], dtype == NVFP4_F32 ? static_cast<const void*>(&x[i]) : &narrow, size);
  }
  return bytes;
}

}  // namespace

Quantized quantize(Check& check, const Floats& x, std::int64_t rows, std::int64_t cols, const How& how) {
  const bool turned = how.side == Side::column;
  const Bytes data = as_dtype(turned ? transposed(x, rows, cols) : x, how.dtype);
  const ConstMatrix m(data.data(), how.dtype, turned ? cols : rows, turned ? rows : cols, 0);
  QuantizeDesc desc(how.options);
  desc.nonfinite = how.nonfinite;
  desc.seed = how.seed;
  desc.offset = how.offset;
  desc.origin_row = turned ? how.origin_col : how.origin_row;
  desc.origin_col = turned ? how.origin_row : how.origin_col;
  (turned ? desc.columnwise_amax : desc.rowwise_amax) = how.amax;
  desc.stats = how.stats;
  const std::uint32_t copies = turned                   ? nvfp4::columnwise_copy
                               : how.side == Side::both ? nvfp4::both_copies
                                                        : nvfp4::rowwise_copy;
  const nvfp4::Sizes s = nvfp4::quantize_sizes(ctx(), desc, m.rows, m.cols, m.dtype, copies);
  nvfp4::Workspace workspace;
  workspace.lend(desc, s.workspace_bytes);
  Quantized answers[2];
  for (int round = 0; round < 2; ++round) {
    const std::uint8_t poison = round == 0 ? 0xFF : 0x00;
    const auto fresh = [&](std::size_t codes, std::size_t scales, std::size_t amax) {
      return Quantized(nvfp4::Descriptor<nvfp4_quantized>(), Bytes(codes, poison), Bytes(scales, poison),
                       Floats(amax, round == 0 ? nan : 0.0f));
    };
    if (workspace.data() != nullptr) std::memset(workspace.data(), poison, workspace.bytes());
    Quantized row = fresh(s.rowwise_codes_bytes, s.rowwise_scales_bytes, s.rowwise_amax_count);
    Quantized column = fresh(s.columnwise_codes_bytes, s.columnwise_scales_bytes, s.columnwise_amax_count);
    nvfp4_quantized r = row.view(), c = column.view();
    nvfp4::quantize(ctx(), desc, m, (copies & 1) != 0 ? &r : nullptr, (copies & 2) != 0 ? &c : nullptr);
    row.adopt(r);
    column.adopt(c);
    answers[round] = turned ? column : row;
  }
  check.that(same_bytes(answers[0], answers[1]), words(how) + ": the bytes depend on what was in the buffers");
  check.that(answers[0].rows() == rows, words(how) + ": rows");
  return answers[0];
}

Floats dequantize(const Quantized& q) {
  Floats y(static_cast<std::size_t>(q.rows() * q.cols()), nan);
  nvfp4::dequantize(ctx(), q, {y.data(), q.rows(), q.cols()});
  return y;
}

Floats transposed(const Floats& x, std::int64_t rows, std::int64_t cols) {
  Floats t(x.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      t[static_cast<std::size_t>(c * rows + r)] = x[static_cast<std::size_t>(r * cols + c)];
  return t;
}

Floats constant(std::size_t count, float value) { return Floats(count, value); }

Floats normal(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Floats x(count);
  for (float& v : x) {  // the sum of twelve uniform values: the same with every standard library
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random()) * 0x1p-32;
    v = static_cast<float>(sum);
  }
  return x;
}

Options chain(std::uint32_t value) {
  Options o;
  o.chain = value;
  return o;
}
Options mx(std::uint32_t rule) {
  Options o;
  o.format = NVFP4_FORMAT_MXFP4;
  o.scale_rule = rule;
  return o;
}
Options tiles(Options o) {
  o.block = NVFP4_BLOCK_2D;
  return o;
}
Options rht(Options o, std::uint32_t n) {
  o.hadamard = n;
  return o;
}
Options stochastic(Options o) {
  o.rounding = NVFP4_ROUND_STOCHASTIC;
  return o;
}
Options swizzled(Options o) {
  o.scale_layout = NVFP4_SCALES_SWIZZLED;
  return o;
}
std::vector<Options> formats() {
  return {chain(NVFP4_CHAIN_TE), chain(NVFP4_CHAIN_DIV6), chain(NVFP4_CHAIN_SINGLE), mx(NVFP4_RULE_FLOOR),
          mx(NVFP4_RULE_CEIL),   mx(NVFP4_RULE_EVEN),     mx(NVFP4_RULE_ENCODE_CENTRIC)};
}
std::vector<Options> two_level() { return {chain(NVFP4_CHAIN_TE), chain(NVFP4_CHAIN_DIV6)}; }

int code(const Quantized& q, std::int64_t r, std::int64_t c) {
  const std::uint8_t byte = q.codes()[static_cast<std::size_t>(r * ((q.cols() + 1) / 2) + c / 2)];
  return c % 2 == 0 ? byte & 15 : byte >> 4;
}

std::uint8_t scale(const Quantized& q, std::int64_t r, std::int64_t block) {
  const std::int64_t size = q.format() == NVFP4_FORMAT_MXFP4 ? 32 : 16;
  const std::int64_t blocks = (q.cols() + size - 1) / size;
  if (q.meta().scale_layout == NVFP4_SCALES_LINEAR) return q.scales()[static_cast<std::size_t>(r * blocks + block)];
  const std::int64_t at = (r / 128 * ((blocks + 3) / 4) + block / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + block % 4;
  return q.scales()[static_cast<std::size_t>(at)];
}

float e2m1(int c) {
  static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (c & 8) != 0 ? -values[c & 7] : values[c & 7];
}

float e4m3(std::uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if ((byte & 0x7F) == 0x7F) return nan;
  return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                       : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

double ulps(float got, float want) {
  const float up = std::nextafter(std::fabs(want), inf);
  const double unit = static_cast<double>(up) - std::fabs(want);
  return std::fabs(static_cast<double>(got) - want) / unit;
}

bool all(const Floats& x, const std::function<bool(float)>& test) {
  for (const float v : x)
    if (!test(v)) return false;
  return true;
}

bool same_bytes(const Quantized& a, const Quantized& b) {
  return a.codes() == b.codes() && a.scales() == b.scales() && same_bits(a.amax(), b.amax());
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

nvfp4_quantized meta(const Options& o, std::int64_t rows, std::int64_t cols) {
  nvfp4::Descriptor<nvfp4_quantized> m;
  m.rows = rows;
  m.cols = cols;
  m.format = o.format;
  m.block = o.block;
  m.chain = o.chain;
  m.scale_rule = o.scale_rule;
  m.scale_layout = o.scale_layout;
  m.hadamard = o.hadamard;
  return m;
}

Quantized parts(const Options& o, std::int64_t rows, std::int64_t cols, int c, std::uint8_t s, float amax) {
  const std::int64_t blocks = (cols + block_of(o) - 1) / block_of(o);
  const std::size_t scales = nvfp4::scales_bytes(rows, blocks, o.scale_layout);
  return Quantized(meta(o, rows, cols), Bytes(static_cast<std::size_t>(rows * ((cols + 1) / 2)), static_cast<std::uint8_t>(c * 17)),
                   Bytes(scales, s), Floats(1, amax));
}

}  // namespace faults

int main(int argc, char** argv) {
  std::vector<faults::Fault> table;
  for (auto part : {faults::quantize_faults(), faults::shape_faults(), faults::random_faults(), faults::gemm_faults()})
    table.insert(table.end(), part.begin(), part.end());
  int passed = 0, failed = 0;
  for (const faults::Fault& fault : table) {
    if (argc > 1 && std::strcmp(argv[1], fault.name) != 0) continue;
    faults::Check check;
    try {
      fault.run(check);
      check.that(check.count > 0, "it checks nothing");
    } catch (const std::exception& e) {
      check.that(false, std::string("unexpected: ") + e.what());
    }
    ++(check.failed == 0 ? passed : failed);
    if (check.failed == 0)
      std::printf("%-3s ok, %d checks: no %s\n", fault.name, check.count, fault.symptom);
    else
      std::printf("%-3s FAILED %d of %d checks (%s): %s\n", fault.name, check.failed, check.count, fault.symptom, check.first.c_str());
  }
  std::printf("SKIPPED: D2 (no call takes scales as floats), O1 (the compiler checks the type of amax), K and L2 (a GPU's)\n");
  std::printf("faults: %d passed, %d failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
