// Kinds A to E: zero and tiny values, saturation, NaN and Inf, rounding.
#include "faults.hpp"

#include <cstring>

namespace faults {
namespace {

void each_side(const How& base, const std::function<void(const How&)>& body) {
  for (const Side side : sides) {
    How how = base;
    how.side = side;
    body(how);
  }
}

/// Rows that a test needs so that a 2D tile is full; 1 for 1D blocks.
std::int64_t rows_for(const Options& o) { return o.block == NVFP4_BLOCK_2D ? block_of(o) : 1; }

/// `row` repeated on each of `rows` rows.
Floats repeated(const Floats& row, std::int64_t rows) {
  Floats x;
  for (std::int64_t r = 0; r < rows; ++r) x.insert(x.end(), row.begin(), row.end());
  return x;
}

Floats block_row(std::initializer_list<std::pair<float, int>> runs) {
  Floats row;
  for (const auto& [value, times] : runs) row.insert(row.end(), static_cast<std::size_t>(times), value);
  return row;
}

/// Quantizes one row (repeated to fill a tile) on every side, in 1D and 2D blocks, and hands each result over.
void every_way(Check& check, const Options& options, const Floats& row, const float* amax,
               const std::function<void(const Quantized&, const Floats&, const std::string&)>& body,
               const std::vector<std::uint32_t>& dtypes = {NVFP4_F32, NVFP4_BF16, NVFP4_F16}) {
  for (const Options& o : {options, tiles(options)})
    for (const std::uint32_t dtype : dtypes) {
      How base;
      base.options = o;
      base.dtype = dtype;
      base.amax = amax;
      each_side(base, [&](const How& how) {
        const std::int64_t rows = rows_for(o);
        const Quantized q = quantize(check, repeated(row, rows), rows, static_cast<std::int64_t>(row.size()), how);
        body(q, dequantize(q), words(how));
      });
    }
}

/// 0x7F is NaN in E4M3 and 1.0 in E8M0.
bool has_nan_scale(const Quantized& q) {
  for (const std::uint8_t s : q.scales())
    if (s == 0xFF || (s == 0x7F && q.format() == NVFP4_FORMAT_NVFP4)) return true;
  return false;
}

void a1(Check& check) {
  for (const Options& o : two_level())
    every_way(check, o, block_row({{0.0f, 16}, {0.006f, 16}}), nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
      check.equal(scale(q, 0, 0), 0x00, how + ": scale byte of the zero block");
      check.equal(scale(q, 0, 1), 0x7E, how + ": scale byte of the tiny block");
      const float want = q.amax()[0];
      for (std::int64_t c = 0; c < 32; ++c) {
        check.equal(code(q, 0, c), c < 16 ? 0 : 7, how + ": code");
        const float v = y[static_cast<std::size_t>(c)];
        check.that(c < 16 ? v == 0 : ulps(v, want) <= 1 && std::fabs(v - 0.006f) < 2e-5f, how + ": value");
      }
    });
  for (const Options& o : formats())
    every_way(check, o, block_row({{0.0f, 32}, {0.006f, 32}}), nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
      check.that(!has_nan_scale(q), how + ": a NaN scale from finite input");
      check.that(all(y, [](float v) { return std::isfinite(v); }), how + ": a value that is not finite");
    }, {NVFP4_F32, NVFP4_BF16});
}

void a2(Check& check) {
  const std::int64_t shapes[][2] = {{1, 16}, {33, 48}, {256, 4096}};
  for (const auto& shape : shapes)
    for (const Options& format : formats())
      for (const Options& o : {format, tiles(format), rht(format, 16)})
        for (const std::uint32_t dtype : {NVFP4_F32, NVFP4_BF16, NVFP4_F16}) {
          if (shape[0] == 256 && (dtype == NVFP4_F16 || o.chain != 0 || o.scale_rule != 0)) continue;  // large: once each
          How how;
          how.options = o;
          how.dtype = dtype;
          how.side = shape[0] == 33 ? Side::column : Side::row;
          const Floats zeros = constant(static_cast<std::size_t>(shape[0] * shape[1]), 0.0f);
          const Quantized q = quantize(check, zeros, shape[0], shape[1], how);
          check.that(q.codes() == Bytes(q.codes().size(), 0), words(how) + ": codes of zeros");
          check.that(q.scales() == Bytes(q.scales().size(), 0), words(how) + ": scales of zeros");
          if (q.format() == NVFP4_FORMAT_NVFP4 && o.chain != NVFP4_CHAIN_SINGLE) check.equal(q.amax()[0], 0.0f, words(how) + ": amax");
          check.that(all(dequantize(q), [](float v) { return v == 0; }), words(how) + ": values");
          const Floats ones = normal(static_cast<std::size_t>(7 * shape[1]), 3);
          How other = how;
          other.side = Side::row;
          const Quantized b = quantize(check, ones, 7, shape[1], other);
          if (b.cols() != q.cols()) continue;
          Floats d(static_cast<std::size_t>(shape[0] * 7), nan);
          nvfp4::gemm(ctx(), q, b, {d.data(), shape[0], 7});
          check.that(all(d, [](float v) { return v == 0; }), words(how) + ": a product with zeros");
        }
}

void a3(Check& check) {
  Floats x = normal(4 * 64, 5), less;
  for (std::size_t c = 0; c < 64; ++c) x[2 * 64 + c] = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (i / 64 != 2) less.push_back(x[i]);
  const float amax = 6, row_amax[4] = {6, 6, 6, 6};
  for (const Options& format : formats())
    for (const Options& variant : {format, tiles(format), rht(format, 16), rht(format, 64)}) {
      for (const std::int64_t domain : {0, 1}) {
        How how;
        how.options = variant;
        how.options.domain_rows = domain;
        if (domain == 1 && (variant.block == NVFP4_BLOCK_2D || format.format == NVFP4_FORMAT_MXFP4 || format.chain == NVFP4_CHAIN_SINGLE)) continue;
        for (const Side side : sides) {
          how.side = side;
          if (domain == 1 && side != Side::row) continue;  // the column's other copy would have one domain a column
          how.amax = nullptr;
          const Floats y = dequantize(quantize(check, x, 4, 64, how));
          for (std::size_t c = 0; c < 64; ++c) check.that(y[2 * 64 + c] == 0, words(how) + ": the zero row");
          check.that(!all(y, [](float v) { return v == 0; }) && all(y, [](float v) { return std::isfinite(v); }), words(how) + ": the other rows");
        }
        how.side = Side::row;
        how.amax = domain == 1 ? row_amax : &amax;
        const Quantized with = quantize(check, x, 4, 64, how), without = quantize(check, less, 3, 64, how);
        for (std::int64_t r = 0; r < 3; ++r)
          for (std::int64_t c = 0; c < 64; ++c) {
            const std::int64_t from = r < 2 ? r : 3;
            check.that(code(with, from, c) == code(without, r, c) && scale(with, from, c / block_of(variant)) == scale(without, r, c / block_of(variant)),
                       words(how) + ": a zero row changes other rows");
          }
      }
    }
}

void a7(Check& check) {
  struct Rule {
    std::uint32_t rule;
    int byte, code;
  };
  for (const Rule& rule : {Rule{NVFP4_RULE_FLOOR, 126, 7}, Rule{NVFP4_RULE_CEIL, 126, 7}, Rule{NVFP4_RULE_EVEN, 126, 7},
                           Rule{NVFP4_RULE_ENCODE_CENTRIC, 129, 6}})
    every_way(check, mx(rule.rule), block_row({{0.0f, 32}, {3.0f, 32}}), nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
      check.equal(scale(q, 0, 0), 0, how + ": byte of the zero block");
      check.equal(static_cast<int>(scale(q, 0, 1)), rule.byte, how + ": byte of the block of 3.0");
      check.that(code(q, 0, 0) == 0 && code(q, 0, 63) == rule.code, how + ": codes");
      check.that(y[0] == 0 && (rule.rule == NVFP4_RULE_ENCODE_CENTRIC ? std::fabs(y[63] - 8.0f / 3) < 1e-6f : y[63] == 3), how + ": values");
    });
}

void b1(Check& check) {
  every_way(check, mx(NVFP4_RULE_FLOOR), constant(32, 0x1p-126f), nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
    check.equal(scale(q, 0, 0), 0, how + ": byte");
    check.that(code(q, 0, 0) == 4 && code(q, 0, 31) == 4, how + ": codes");
    check.that(all(y, [](float v) { return v == 0x1p-126f; }), how + ": values");
  }, {NVFP4_F32, NVFP4_BF16});
  Floats mix = constant(32, 1e-38f);
  mix[7] = 1;
  for (const Options& o : formats())
    for (const Floats& row : {constant(32, 9.2e-40f), mix})
      every_way(check, o, row, nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
        check.that(!has_nan_scale(q), how + ": NaN scale");
        for (std::size_t i = 0; i < 32; ++i) {
          const float x = nvfp4::bf16(row[i]).bits == 0 ? 0 : static_cast<float>(nvfp4::bf16(row[i]));
          check.that(std::isfinite(y[i]) && std::fabs(y[i] - x) <= std::fabs(x), how + ": value");
        }
      }, {NVFP4_BF16});
}

void b2(Check& check) {
  for (int byte = 0; byte < 256; ++byte) {
    if (byte > 0x80 && byte < 0xFF) continue;  // a scale has no sign
    const Floats exact = dequantize(parts(chain(NVFP4_CHAIN_SINGLE), 1, 16, 2, static_cast<std::uint8_t>(byte)));
    const Floats scaled = dequantize(parts(chain(NVFP4_CHAIN_TE), 1, 16, 2, static_cast<std::uint8_t>(byte)));
    const float want = byte == 0x80 ? 0 : e4m3(static_cast<std::uint8_t>(byte));
    for (std::size_t i = 0; i < 16; ++i) {
      check.that(std::isnan(want) ? std::isnan(exact[i]) && std::isnan(scaled[i]) : exact[i] == want && ulps(scaled[i], want) <= 1,
                 "byte " + std::to_string(byte) + " decodes to " + std::to_string(exact[i]));
    }
  }
  check.equal(e4m3(1), 0.001953125f, "this file's own decoder");
  check.equal(e4m3(0x7E), 448.0f, "this file's own decoder");
}

void b3(Check& check) {
  const std::pair<int, float> table[] = {{0, 0x1p-127f}, {1, 0x1p-126f}, {127, 1.0f}, {254, 0x1p127f}, {255, nan}};
  for (const auto& [byte, want] : table) {
    const Floats y = dequantize(parts(mx(NVFP4_RULE_FLOOR), 1, 32, 2, static_cast<std::uint8_t>(byte)));
    const float w = want;
    check.that(all(y, [w](float v) { return std::isnan(w) ? std::isnan(v) : v == w; }), "byte " + std::to_string(byte));
  }
  every_way(check, mx(NVFP4_RULE_FLOOR), constant(32, 0x1p127f), nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
    check.that(scale(q, 0, 0) == 252 && code(q, 0, 3) == 6, how + ": 2^127 is 4 times 2^125");
    check.that(all(y, [](float v) { return v == 0x1p127f; }), how + ": values");
  }, {NVFP4_F32, NVFP4_BF16});
}

void b4(Check& check) {
  struct Tiny {
    float value;
    int byte;
    float want, tolerance;
  };
  for (const Tiny& t : {Tiny{1e-36f, 0x66, 9.874e-37f, 1e-3f}, Tiny{8e-36f, 0x7E, 8e-36f, 5e-3f}, Tiny{0.01f, 0x7E, 0.01f, 5e-3f}})
    every_way(check, chain(NVFP4_CHAIN_DIV6), constant(16, t.value), nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
      check.equal(static_cast<int>(scale(q, 0, 0)), t.byte, how + ": byte");
      check.that(code(q, 0, 0) == 7 && code(q, 0, 15) == 7, how + ": codes");
      check.that(all(y, [&](float v) { return std::fabs(v - t.want) < t.tolerance * t.want; }), how + ": values");
      if (t.byte == 0x7E) check.that(ulps(y[0], q.amax()[0]) <= 1, how + ": amax comes back");
    }, {NVFP4_F32, NVFP4_BF16});
}

void c1(Check& check) {
  const float amax = 1;
  for (const Options& o : two_level())
    every_way(check, o, block_row({{10.0f, 1}, {1.0f, 15}}), &amax, [&](const Quantized& q, const Floats& y, const std::string& how) {
      check.equal(scale(q, 0, 0), 0x7E, how + ": byte");
      check.that(all(y, [](float v) { return ulps(v, 1.0f) <= 1; }), how + ": clips at the given amax");
      check.equal(q.amax()[0], 1.0f, how + ": the given amax is recorded");
    });
  nvfp4_stats stats{};
  How how;
  how.amax = &amax;
  how.stats = &stats;
  quantize(check, block_row({{10.0f, 1}, {1.0f, 15}}), 1, 16, how);
  check.that(stats.saturated == 1, "saturated: " + std::to_string(stats.saturated));
}

void c2(Check& check) {
  const Floats row = block_row({{3000.0f, 1}, {-2900.0f, 1}, {100.0f, 1}, {0.0f, 13}});
  every_way(check, chain(NVFP4_CHAIN_SINGLE), row, nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
    check.equal(scale(q, 0, 0), 0x7E, how + ": byte");
    check.that(y[0] == 2688 && y[1] == -2688 && y[2] == 0, how + ": one level saturates with its sign");
  });
  for (const Options& o : two_level())
    every_way(check, o, row, nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
      check.that(ulps(y[0], q.amax()[0]) <= 1 && y[0] > 2990, how + ": two levels reach 3000");
    });
}

void d1(Check& check) {
  for (const Options& format : formats())
    for (const Options& o : {format, tiles(format)})
      for (const float bad : {nan, inf, -inf})
        for (const std::int64_t at : {0, 1, 15, 31})
          for (const std::uint32_t dtype : {NVFP4_F32, NVFP4_BF16, NVFP4_F16}) {
            const std::int64_t rows = rows_for(o), size = block_of(o);
            Floats x = constant(static_cast<std::size_t>(rows * 96), 1.0f);
            const Quantized clean = quantize(check, x, rows, 96, [&] { How h; h.options = o; h.dtype = dtype; return h; }());
            x[static_cast<std::size_t>((rows - 1) * 96 + at)] = bad;
            How base;
            base.options = o;
            base.dtype = dtype;
            each_side(base, [&](const How& how) {
              const Quantized q = quantize(check, x, rows, 96, how);
              const Floats y = dequantize(q);
              for (std::int64_t r = 0; r < rows; ++r)
                for (std::int64_t b = 0; b < 96 / size; ++b) {
                  const bool hit = b == at / size;
                  check.equal(static_cast<int>(scale(q, r, b)), hit ? (o.format == NVFP4_FORMAT_MXFP4 ? 0xFF : 0x7F) : scale(clean, r, b), words(how) + ": byte");
                  check.equal(code(q, r, b * size), hit ? 0 : code(clean, r, b * size), words(how) + ": code");
                  const float v = y[static_cast<std::size_t>(r * 96 + b * size + 3)];
                  check.that(hit ? std::isnan(v) : std::isfinite(v), words(how) + ": the bad block, and it alone, is NaN");
                }
            });
            How saturate = base;
            saturate.nonfinite = NVFP4_NONFINITE_SATURATE;
            check.that(all(dequantize(quantize(check, x, rows, 96, saturate)), [](float v) { return std::isfinite(v); }),
                       words(saturate) + ": SATURATE leaves no NaN");
            nvfp4_stats stats{};
            base.stats = &stats;
            quantize(check, x, rows, 96, base);
            check.that(stats.nonfinite == 1, words(base) + ": counted " + std::to_string(stats.nonfinite));
          }
}

/// Formats and an amax under which a block whose largest value is 6 gets the scale 1.
const float unit_amax = 2688;
std::vector<Options> unit_scale() {
  return {chain(NVFP4_CHAIN_TE), chain(NVFP4_CHAIN_DIV6), chain(NVFP4_CHAIN_SINGLE), mx(NVFP4_RULE_FLOOR), mx(NVFP4_RULE_CEIL), mx(NVFP4_RULE_EVEN)};
}
const float* amax_for(const Options& o) {
  return o.format == NVFP4_FORMAT_MXFP4 || o.chain == NVFP4_CHAIN_SINGLE ? nullptr : &unit_amax;
}

/// Rows of 32 with a 6 first in each 16: quantizes `values` at scale 1 and checks their codes, plain and negated.
void codes_at_unit_scale(Check& check, const Floats& values, const std::vector<int>& want, const std::vector<std::uint32_t>& dtypes) {
  for (const float sign : {1.0f, -1.0f}) {
    Floats row = constant(32, 0.0f);
    row[0] = row[16] = 6;
    for (std::size_t i = 0; i < values.size(); ++i) row[i + 1 + (i >= 15 ? 1 : 0)] = sign * values[i];
    for (const Options& o : unit_scale())
      every_way(check, o, row, amax_for(o), [&](const Quantized& q, const Floats&, const std::string& how) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          const auto at = static_cast<std::int64_t>(i + 1 + (i >= 15 ? 1 : 0));
          check.that(code(q, 0, at) == (sign < 0 ? want[i] | 8 : want[i]), how + ": " + std::to_string(sign * values[i]) + " becomes code " + std::to_string(code(q, 0, at)));
        }
      }, dtypes);
  }
}

void e1(Check& check) {
  codes_at_unit_scale(check, {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}, {0, 2, 2, 4, 4, 6, 6}, {NVFP4_F32, NVFP4_BF16, NVFP4_F16});
  Floats values;
  std::vector<int> want;
  const std::pair<float, int> up[] = {{0.25f, 1}, {1.25f, 3}, {2.5f, 5}, {5.0f, 7}}, down[] = {{0.75f, 1}, {1.75f, 3}, {3.5f, 5}};
  for (const auto& [v, c] : up) values.push_back(std::nextafter(v, inf)), want.push_back(c);
  for (const auto& [v, c] : down) values.push_back(std::nextafter(v, 0.0f)), want.push_back(c);
  codes_at_unit_scale(check, values, want, {NVFP4_F32});
}

void e2(Check& check) {
  Floats row;
  for (int c = 0; c < 16; ++c) row.push_back(e2m1(c));
  for (int c = 15; c >= 0; --c) row.push_back(e2m1(c));  // each code once more, in the other nibble
  for (const Options& o : unit_scale())
    every_way(check, o, row, amax_for(o), [&](const Quantized& q, const Floats& y, const std::string& how) {
      for (std::int64_t c = 0; c < 32; ++c) {
        check.equal(code(q, 0, c), c < 16 ? static_cast<int>(c) : static_cast<int>(31 - c), how + ": code " + std::to_string(c));
        const float v = y[static_cast<std::size_t>(c)], want = row[static_cast<std::size_t>(c)];
        check.that(v == want && std::signbit(v) == std::signbit(want), how + ": value, and its sign");
      }
    });
}

void e3(Check& check) {
  every_way(check, mx(NVFP4_RULE_CEIL), constant(32, 4.0f), nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
    check.that(scale(q, 0, 0) == 127 && code(q, 0, 0) == 6 && y[5] == 4, how + ": 4.0");
  });
  for (const Options& o : two_level())
    every_way(check, o, block_row({{6.3f, 1}, {2.6f, 1}, {0.0f, 14}}), &unit_amax, [&](const Quantized& q, const Floats&, const std::string& how) {
      check.equal(static_cast<int>(scale(q, 0, 0)), 0x38, how + ": byte");
      check.that(code(q, 0, 0) == 7 && code(q, 0, 1) == 5, how + ": encoded by the rounded scale");
    });
}

void e4(Check& check) {
  for (const auto& [value, byte] : {std::pair<float, int>{7.9999995f, 127}, std::pair<float, int>{3.9999998f, 126}})
    every_way(check, mx(NVFP4_RULE_FLOOR), constant(32, value), nullptr, [&](const Quantized& q, const Floats&, const std::string& how) {
      check.equal(static_cast<int>(scale(q, 0, 0)), byte, how + ": byte");
    }, {NVFP4_F32});
}

void e5(Check& check) {
  const float maxima[] = {4, 5, 6, std::nextafter(6.0f, 7.0f), 6.5f, 7.9f, 8};
  const int floor[] = {127, 127, 127, 127, 127, 127, 128}, ceil[] = {127, 127, 127, 128, 128, 128, 128};
  for (std::size_t i = 0; i < 7; ++i) {
    every_way(check, mx(NVFP4_RULE_FLOOR), constant(32, maxima[i]), nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
      check.equal(static_cast<int>(scale(q, 0, 0)), floor[i], how + ": FLOOR byte");
      check.that(i < 2 || i == 6 || y[0] == 6, how + ": FLOOR saturates to 6");
      check.that(q.meta().scale_rule == NVFP4_RULE_FLOOR, how + ": the rule is recorded");
    }, {NVFP4_F32});
    every_way(check, mx(NVFP4_RULE_CEIL), constant(32, maxima[i]), nullptr, [&](const Quantized& q, const Floats& y, const std::string& how) {
      check.equal(static_cast<int>(scale(q, 0, 0)), ceil[i], how + ": CEIL byte");
      check.that(y[0] <= 8 && y[0] >= maxima[i] * 0.79f, how + ": CEIL does not clip");
      check.that(q.meta().scale_rule == NVFP4_RULE_CEIL, how + ": the rule is recorded");
    }, {NVFP4_F32});
  }
}

void e8(Check& check) {
  codes_at_unit_scale(check, {0.49f, 0.74f, 1.74f, 2.6f, 3.6f, 5.1f}, {1, 1, 3, 5, 6, 7}, {NVFP4_F32, NVFP4_BF16, NVFP4_F16});
}

}  // namespace

std::vector<Fault> quantize_faults() {
  return {
      {"A1", "NaN scale byte for a zero block beside a tiny amax", a1},
      {"A2", "infinite scale of an all-zero tensor", a2},
      {"A3", "Inf from a zero row in one variant", a3},
      {"A7", "NaN byte for a zero MX block", a7},
      {"B1", "NaN from inputs near the smallest normal number", b1},
      {"B2", "normal-number formula for subnormal scale bytes", b2},
      {"B3", "zero or Inf for the end codes of E8M0", b3},
      {"B4", "clamped or overflowing scale of a tiny tensor", b4},
      {"C1", "NaN or wrong values above a given amax", c1},
      {"C2", "wrong values above 2688 with one level", c2},
      {"D1", "NaN that disappears in a block", d1},
      {"E1", "ties rounded away from zero", e1},
      {"E2", "codes that do not round-trip", e2},
      {"E3", "elements encoded by the unrounded scale", e3},
      {"E4", "scale one binade off by double rounding", e4},
      {"E5", "unnamed choice of the MX exponent", e5},
      {"E8", "truncation instead of rounding", e8},
  };
}

}  // namespace faults
