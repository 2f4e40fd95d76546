// Kinds M and N: stochastic rounding, transform, transpose and 2D scaling. L1: calls side by side.
#include "faults.hpp"

#include <thread>

namespace faults {
namespace {

const float unit_amax = 2688;
const float* amax_for(const Options& o) {
  return o.format == NVFP4_FORMAT_MXFP4 || o.chain == NVFP4_CHAIN_SINGLE ? nullptr : &unit_amax;
}
std::vector<Options> unit_scale() {
  return {chain(NVFP4_CHAIN_TE), chain(NVFP4_CHAIN_DIV6), chain(NVFP4_CHAIN_SINGLE), mx(NVFP4_RULE_FLOOR), mx(NVFP4_RULE_CEIL)};
}

/// `value` everywhere but for a 6 in each 16, which fixes the scale at 1.
Floats with_sixes(std::size_t count, float value) {
  Floats x(count, value);
  for (std::size_t i = 0; i < count; i += 16) x[i] = 6;
  return x;
}

void m1(Check& check) {
  for (const Options& format : unit_scale())
    for (const Options& o : {format, tiles(format)})
      for (const Side side : sides)
        for (const std::uint32_t dtype : {NVFP4_F32, NVFP4_BF16, NVFP4_F16}) {
          How how;
          how.options = stochastic(o);
          how.side = side;
          how.dtype = dtype;
          how.amax = amax_for(o);
          how.seed = 3;
          const Floats y = dequantize(quantize(check, with_sixes(32 * 64, 2.25f), 32, 64, how));
          int up = 0;
          bool neighbours = true;
          for (std::size_t i = 0; i < y.size(); ++i) {
            neighbours = neighbours && (i % 16 == 0 ? y[i] == 6 : y[i] == 2 || y[i] == 3);
            up += y[i] == 3;
          }
          check.that(neighbours, words(how) + ": another value than the two neighbours");
          check.that(up > 300 && up < 680, words(how) + ": " + std::to_string(up) + " of 1920 went up");
        }
}

void m2(Check& check) {
  struct Value {
    float x, sigma5, gap;
  };
  const std::int64_t rows = 1024, cols = 1024;
  for (const Options& format : {chain(NVFP4_CHAIN_TE), mx(NVFP4_RULE_FLOOR)})
    for (const float sign : {1.0f, -1.0f})
      for (const Value& v : {Value{2.25f, 0.0022f, 1}, Value{0.1f, 0.001f, 0.5f}, Value{1.3f, 0.0012f, 0.5f}, Value{5.9f, 0.0022f, 2}}) {
        QuantizeDesc desc(stochastic(format));
        desc.seed = 17;
        desc.rowwise_amax = amax_for(format);
        const Floats x = with_sixes(static_cast<std::size_t>(rows * cols), sign * v.x);
        const Floats y = dequantize(nvfp4::quantize(ctx(), {x.data(), rows, cols}, desc));
        double sum = 0;
        std::size_t count = 0;
        for (std::size_t i = 0; i < y.size(); ++i)
          if (i % 16 != 0) sum += static_cast<double>(y[i]), ++count;
        const double off = sign * sum / static_cast<double>(count) - static_cast<double>(v.x);
        check.that(off < static_cast<double>(v.sigma5) && off > -static_cast<double>(v.sigma5) - static_cast<double>(v.gap) / 256,
                   "mean of " + std::to_string(sign * v.x) + " is off by " + std::to_string(off));
      }
  for (const Options& format : unit_scale())  // values on the grid never move
    for (const Side side : sides)
      for (const std::uint64_t seed : {1u, 2u, 3u}) {
        Floats grid(16 * 64);
        for (std::size_t i = 0; i < grid.size(); ++i) grid[i] = i % 16 == 0 ? 6 : e2m1(static_cast<int>(i * 7 % 16));
        How how;
        how.options = stochastic(format);
        how.side = side;
        how.seed = seed;
        how.amax = amax_for(format);
        check.that(same_bits(dequantize(quantize(check, grid, 16, 64, how)), grid), words(how) + ": a value on the grid moved");
      }
}

/// Correlation of two series of 0 and 1 with mean p.
double correlation(const std::vector<char>& a, const std::vector<char>& b, std::size_t shift) {
  double sum = 0, mean = 0;
  for (std::size_t i = 0; i < a.size(); ++i) mean += a[i];
  mean /= static_cast<double>(a.size());
  for (std::size_t i = 0; i + shift < a.size(); ++i) sum += (a[i] - mean) * (b[i + shift] - mean);
  return sum / static_cast<double>(a.size() - shift) / (mean * (1 - mean));
}

void m3(Check& check) {
  const std::int64_t rows = 1024, cols = 1024;
  const Floats x = with_sixes(static_cast<std::size_t>(rows * cols), 2.25f);
  const auto ups = [&](std::uint64_t seed, std::uint64_t offset, bool column) {
    QuantizeDesc desc(stochastic(chain(NVFP4_CHAIN_TE)));
    desc.seed = seed;
    desc.offset = offset;
    desc.rowwise_amax = desc.columnwise_amax = &unit_amax;
    // The columnwise copy of the transpose is laid out as x itself.
    const Floats turned = column ? transposed(x, rows, cols) : Floats();
    const Floats y = dequantize(column ? nvfp4::quantize_columnwise(ctx(), {turned.data(), cols, rows}, desc)
                                       : nvfp4::quantize(ctx(), {x.data(), rows, cols}, desc));
    std::vector<char> up;
    for (std::size_t i = 0; i < y.size(); ++i)
      if (i % 16 != 0) up.push_back(y[i] == 3);
    return up;
  };
  const std::vector<char> first = ups(1, 1, false);
  check.that(first == ups(1, 1, false), "the same call gives other bytes");
  const auto differs = [&](const std::vector<char>& other, const std::string& what) {
    double different = 0;
    for (std::size_t i = 0; i < first.size(); ++i) different += first[i] != other[i];
    different /= static_cast<double>(first.size());
    check.that(std::fabs(different - 0.375) < 0.005, what + ": " + std::to_string(different) + " of the codes differ");
    const double r = correlation(first, other, 0);
    check.that(std::fabs(r) < 0.006, what + ": correlation " + std::to_string(r));
  };
  differs(ups(1, 2, false), "the next offset");
  differs(ups(2, 1, false), "another seed");
  differs(ups(1, UINT64_C(1) << 40, false), "a high offset");
  differs(ups(UINT64_C(1) << 40, 1, false), "a high seed");
  differs(ups(1, 1, true), "the columnwise copy");
  for (const std::size_t shift : {1, 2, 3, 14, 15, 16, 30, 960, 961})  // next element, next block, next row
    check.that(std::fabs(correlation(first, first, shift)) < 0.006, "elements " + std::to_string(shift) + " apart are correlated");
}

void n1(Check& check) {
  Floats e0(16, 0.0f);
  e0[0] = 1;
  const auto side = [&](std::uint32_t mask) {
    Options o = rht(Options(), 16);
    o.signs = NVFP4_SIGNS_MASK16;
    o.sign_mask[0] = mask;
    return nvfp4::quantize_columnwise(ctx(), {e0.data(), 16, 1}, QuantizeDesc(o));
  };
  float d = nan;
  nvfp4::gemm(ctx(), side(0xD7E8), side(0xD7E8), {&d, 1, 1});
  check.that(ulps(d, 1) <= 2, "same signs: " + std::to_string(d));
  check.fails(NVFP4_ERR_MISMATCH, "", [&] { nvfp4::gemm(ctx(), side(0xD7E8), side(0xD7E9), {&d, 1, 1}); });
  const Quantized plain = nvfp4::quantize_columnwise(ctx(), {e0.data(), 16, 1});
  check.fails(NVFP4_ERR_MISMATCH, "16", [&] { nvfp4::gemm(ctx(), side(0xD7E8), plain, {&d, 1, 1}); });

  // (HX)^T (HY) = X^T Y.
  for (const std::uint32_t n : {16u, 32u, 64u, 128u}) {
    const Floats x = normal(256 * 6, 20), y = normal(256 * 9, 21);
    Floats hx(x.size()), hy(y.size());
    nvfp4::HadamardDesc desc;
    desc.n = n;
    desc.axis = 1;
    nvfp4::hadamard(ctx(), {x.data(), 256, 6}, {hx.data(), 256, 6}, desc);
    nvfp4::hadamard(ctx(), {y.data(), 256, 9}, {hy.data(), 256, 9}, desc);
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t j = 0; j < 9; ++j) {
        double want = 0, got = 0, size = 0;
        for (std::size_t k = 0; k < 256; ++k) {
          want += static_cast<double>(x[k * 6 + i]) * y[k * 9 + j];
          got += static_cast<double>(hx[k * 6 + i]) * hy[k * 9 + j];
          size += std::fabs(static_cast<double>(x[k * 6 + i]) * y[k * 9 + j]);
        }
        check.that(std::fabs(got - want) < 1e-6 * size, "n = " + std::to_string(n) + ": the transform changes a product");
      }
  }
}

void n2(Check& check) {
  Floats x(16, 0.0f);
  x[0] = 1;
  x[1] = 0x1p-9f;
  Options o = rht(Options(), 16);
  o.signs = NVFP4_SIGNS_MASK16;
  for (const bool keep : {false, true}) {
    o.flags = keep ? NVFP4_KEEP_F32 : 0;
    const float want = keep ? 0.25048828125f : 0.25f;
    const QuantizeDesc desc(o);
    float row = nan, column = nan;
    nvfp4::amax(ctx(), desc, {x.data(), 1, 16}, &row, nullptr);
    nvfp4::amax(ctx(), desc, {x.data(), 16, 1}, nullptr, &column);
    check.that(row == want && column == want, "amax is " + std::to_string(row));
    check.that(nvfp4::quantize(ctx(), {x.data(), 1, 16}, desc).amax()[0] == want, "amax of quantize");
    check.that(nvfp4::quantize_columnwise(ctx(), {x.data(), 16, 1}, desc).amax()[0] == want, "amax of the columnwise copy");
  }
}

void n3(Check& check) {
  Floats w(48 * 32);
  for (int i = 0; i < 48; ++i)
    for (int j = 0; j < 32; ++j) w[static_cast<std::size_t>(i * 32 + j)] = static_cast<float>((37 * i + 11 * j) % 29 - 14) / 8;
  const Floats wt = transposed(w, 48, 32);
  for (const Options& format : formats()) {
    const QuantizeDesc desc(tiles(format));
    const Quantized row = nvfp4::quantize(ctx(), {w.data(), 48, 32}, desc);
    const Quantized column = nvfp4::quantize_columnwise(ctx(), {w.data(), 48, 32}, desc);
    const auto both = nvfp4::quantize_both(ctx(), {w.data(), 48, 32}, desc);
    const Quantized turned = nvfp4::quantize(ctx(), {wt.data(), 32, 48}, desc);
    check.that(same_bytes(row, both.first) && same_bytes(column, both.second), "alone differs from both");
    check.that(same_bytes(column, turned), "columnwise differs from the transpose quantized");
    check.that(same_bits(transposed(dequantize(row), 48, 32), dequantize(turned)), "values of the transpose");
    Quantized out(column.codes().size(), column.scales().size(), column.amax().size());
    nvfp4_quantized view = out.view();
    nvfp4::transpose(ctx(), row, view);
    out.adopt(view);
    check.that(same_bytes(out, column), "transpose");
    // With SR the rowwise copy draws, and the columnwise one of the same call is its transpose.
    QuantizeDesc random(stochastic(tiles(format)));
    random.seed = 9;
    const auto drawn = nvfp4::quantize_both(ctx(), {w.data(), 48, 32}, random);
    check.that(same_bits(transposed(dequantize(drawn.first), 48, 32), dequantize(drawn.second)), "SR: two draws for one weight");
    // 1D blocks have no transpose, and say so.
    const Quantized flat = nvfp4::quantize(ctx(), {w.data(), 48, 32}, QuantizeDesc(format));
    check.fails(NVFP4_ERR_INVALID_ARGUMENT, "NVFP4_BLOCK_2D", [&] { nvfp4::transpose(ctx(), flat, view); });
  }
}

void n4(Check& check) {
  for (const Options& o : two_level())
    for (const Side side : sides) {
      Floats row;
      for (const float v : {1.0f, 100.0f, 1.0f, 100.0f}) row.insert(row.end(), 16, v);
      How how;
      how.options = o;
      how.side = side;
      const Quantized q = quantize(check, row, 1, 64, how);
      check.that(q.scales() == Bytes({0x49, 0x7E, 0x49, 0x7E}), words(how) + ": scale bytes");
      const Floats y = dequantize(q);
      check.that(std::fabs(y[5] - 1.00446f) < 1e-5f && ulps(y[20], 100) <= 1, words(how) + ": values");
    }
}

/// Calls side by side on one context: every result equals the one of a lone call.
void l1(Check& check) {
  const std::int64_t rows = 256, cols = 512;
  struct Side2 {
    Floats x, d;
    Quantized q;
    int wrong = 0;
  } work[2];
  const auto call = [&](const Floats& x, Quantized& q, Floats& d) {
    QuantizeDesc desc(stochastic(chain(NVFP4_CHAIN_TE)));
    q = nvfp4::quantize(ctx(), {x.data(), rows, cols}, desc);
    d.assign(64 * 64, nan);
    nvfp4_quantized part = q.view();
    part.rows = 64;
    nvfp4::gemm(ctx(), part, part, {d.data(), 64, 64});
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; ++t) {
    work[t].x = normal(static_cast<std::size_t>(rows * cols), 30 + t);
    call(work[t].x, work[t].q, work[t].d);
  }
  for (Side2& w : work)
    threads.emplace_back([&w, &call] {
      for (int i = 0; i < 20; ++i) {
        Quantized q;
        Floats d;
        call(w.x, q, d);
        w.wrong += !same_bytes(q, w.q) || !same_bits(d, w.d);
      }
    });
  for (std::thread& t : threads) t.join();
  check.that(work[0].wrong == 0 && work[1].wrong == 0, "calls disturb each other");
  check.that(!same_bits(work[0].d, work[1].d), "the two threads had one result");
}

}  // namespace

std::vector<Fault> random_faults() {
  return {
      {"L1", "results that other calls disturb", l1},
      {"M1", "zeros where SR has no instruction", m1},
      {"M2", "biased SR", m2},
      {"M3", "SR bits used again", m3},
      {"N1", "other signs on the two sides of a contraction", n1},
      {"N2", "amax of values that are not the quantized ones", n2},
      {"N3", "2D copies that drift apart", n3},
      {"N4", "amax of a neighbour's block", n4},
  };
}

}  // namespace faults
