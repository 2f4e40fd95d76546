// Kinds F and O that are about products: bounds of K, scale factors, accumulation, output types.
#include "faults.hpp"

#include <cstring>

namespace faults {
namespace {

const Options one_level = [] { return chain(NVFP4_CHAIN_SINGLE); }();
constexpr std::uint8_t e4m3_one = 0x38, e8m0_one = 127;
std::uint8_t unit(const Options& o) { return o.format == NVFP4_FORMAT_MXFP4 ? e8m0_one : e4m3_one; }

/// A batched product whose first and last operands are NaN: the middle one is exactly K.
void f3(Check& check) {
  for (const Options& o : {one_level, mx(NVFP4_RULE_FLOOR), swizzled(one_level)})
    for (const std::int64_t k : {272, 528, 1040})
      for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{1, 7}, {5, 1}, {5, 7}, {33, 18}})
        for (const std::uint32_t mode : {NVFP4_ACCUMULATE_BLOCK, NVFP4_ACCUMULATE_FAST, NVFP4_ACCUMULATE_HARDWARE}) {
          const std::uint8_t bad = o.format == NVFP4_FORMAT_MXFP4 ? 0xFF : 0x7F;
          const auto batch = [&](std::int64_t rows, Quantized& first) {
            Bytes codes, scales;
            for (const std::uint8_t s : {bad, unit(o), bad}) {
              const Quantized q = parts(o, rows, k, 2, s);
              codes.insert(codes.end(), q.codes().begin(), q.codes().end());
              scales.insert(scales.end(), q.scales().begin(), q.scales().end());
            }
            first = Quantized(meta(o, rows, k), codes, scales, Floats(1, 1.0f));
          };
          Quantized a, b;
          batch(m, a);
          batch(n, b);
          nvfp4::GemmDesc desc;
          desc.accumulate = mode;
          desc.batch = 3;
          desc.a_codes_batch_stride = static_cast<std::int64_t>(a.codes().size()) / 3;
          desc.a_scales_batch_stride = static_cast<std::int64_t>(a.scales().size()) / 3;
          desc.b_codes_batch_stride = static_cast<std::int64_t>(b.codes().size()) / 3;
          desc.b_scales_batch_stride = static_cast<std::int64_t>(b.scales().size()) / 3;
          desc.d_batch_stride = m * n;
          Floats d(static_cast<std::size_t>(3 * m * n), -1.0f);
          nvfp4::gemm(ctx(), a, b, {d.data(), m, n}, desc);
          bool exact = true, bad_is_nan = true;
          for (std::size_t i = 0; i < d.size(); ++i) {
            const bool middle = i / static_cast<std::size_t>(m * n) == 1;
            exact = exact && (!middle || d[i] == static_cast<float>(k));
            bad_is_nan = bad_is_nan && (middle || std::isnan(d[i]));
          }
          const std::string at = "M " + std::to_string(m) + " N " + std::to_string(n) + " K " + std::to_string(k) + " mode " + std::to_string(mode);
          check.that(exact, at + ": the middle product is not K");
          check.that(bad_is_nan, at + ": a NaN operand gives a number");
        }
}

void f4(Check& check) {
  for (const Options& o : {one_level, mx(NVFP4_RULE_FLOOR)}) {
    const Quantized a = parts(o, 4, 64, 2, unit(o)), b = parts(o, 6, 64, 2, unit(o));
    Floats d(24, nan);
    nvfp4::gemm(ctx(), a, b, {d.data(), 4, 6});
    check.that(d == Floats(24, 64.0f), "all ones over K = 64 is " + std::to_string(d[0]));
    const int blocks = o.format == NVFP4_FORMAT_MXFP4 ? 2 : 4;
    nvfp4_quantized half = a.view();
    half.scales_bytes = static_cast<std::size_t>(2 * blocks);
    check.fails(NVFP4_ERR_BUFFER_SIZE, std::to_string(4 * blocks), [&] { nvfp4::gemm(ctx(), half, b, {d.data(), 4, 6}); });
    check.fails(NVFP4_ERR_BUFFER_SIZE, std::to_string(4 * blocks), [&] { nvfp4::dequantize(ctx(), half, {d.data(), 4, 6}); });
    half = a.view();
    half.scale_stride = blocks / 2;
    check.fails(NVFP4_ERR_SHAPE, std::to_string(blocks), [&] { nvfp4::gemm(ctx(), half, b, {d.data(), 4, 6}); });
    half = a.view();
    half.cols = 32;
    check.fails(NVFP4_ERR_SHAPE, "32", [&] { nvfp4::gemm(ctx(), half, b, {d.data(), 4, 6}); });
  }
}

void o2(Check& check) {
  const Floats threes = constant(64 * 128, 3.0f), fives = constant(24 * 128, 5.0f);
  for (const Options& o : two_level()) {
    const QuantizeDesc desc(o);
    const Quantized b = nvfp4::quantize(ctx(), {fives.data(), 24, 128}, desc);
    Floats one(24, nan), many(64 * 24, nan);
    nvfp4::gemm(ctx(), nvfp4::quantize(ctx(), {threes.data(), 1, 128}, desc), b, {one.data(), 1, 24});
    nvfp4::gemm(ctx(), nvfp4::quantize(ctx(), {threes.data(), 64, 128}, desc), b, {many.data(), 64, 24});
    check.that(all(many, [](float v) { return ulps(v, 1920) <= 2; }), "M = 64: " + std::to_string(many[0]));
    for (std::size_t i = 0; i < many.size(); ++i) check.that(many[i] == one[i % 24], "the row of M = 1 differs from those of M = 64");
    nvfp4_quantized lost = b.view();
    lost.amax = nullptr;
    check.fails(NVFP4_ERR_NULL_POINTER, "amax", [&] { nvfp4::gemm(ctx(), b, lost, {many.data(), 24, 24}); });
    check.fails(NVFP4_ERR_NULL_POINTER, "amax", [&] { nvfp4::dequantize(ctx(), lost, {many.data(), 24, 64}); });
  }
  const Quantized ones = parts(one_level, 2, 16, 2, e4m3_one);
  nvfp4_quantized single = ones.view();
  single.amax = nullptr;
  single.amax_count = 0;
  Floats d(4, nan);
  nvfp4::gemm(ctx(), single, single, {d.data(), 2, 2});
  check.that(d == Floats(4, 16.0f), "one level needs no amax");
}

void o3(Check& check) {
  Bytes scales;
  for (int r = 0; r < 32; ++r)
    for (int j = 0; j < 32; ++j) scales.push_back(static_cast<std::uint8_t>(e4m3_one + 8 * (j % 3)));  // 1, 2, 4
  const Quantized one = parts(one_level, 32, 512, 2, e4m3_one);
  const Quantized q(one.meta(), one.codes(), scales, {});
  for (const std::uint32_t threads : {1u, 2u, 4u, 8u})
    for (const std::uint32_t mode : {NVFP4_ACCUMULATE_DEFAULT, NVFP4_ACCUMULATE_BLOCK, NVFP4_ACCUMULATE_FAST, NVFP4_ACCUMULATE_HARDWARE}) {
      const Context context = Context::cpu(threads);
      nvfp4::GemmDesc desc;
      desc.accumulate = mode;
      Floats d(32 * 32, nan);
      nvfp4::gemm(context, q, q, {d.data(), 32, 32}, desc);
      check.that(d == Floats(32 * 32, 3440.0f), std::to_string(threads) + " threads, mode " + std::to_string(mode) + ": " + std::to_string(d[0]));
    }
}

void o4(Check& check) {
  const Floats x = constant(8 * 64, 100.0f);
  const Quantized a = nvfp4::quantize(ctx(), {x.data(), 8, 64}), b = nvfp4::quantize(ctx(), {x.data(), 3, 64});
  Floats f(24, nan);
  std::vector<nvfp4::bf16> narrow(24);
  std::vector<nvfp4::f16> half(24);
  nvfp4::gemm(ctx(), a, b, {f.data(), 8, 3});
  nvfp4::gemm(ctx(), a, b, {narrow.data(), 8, 3});
  nvfp4::gemm(ctx(), a, b, {half.data(), 8, 3});
  check.that(ulps(f[0], 640000) <= 2, "f32: " + std::to_string(f[0]));
  for (std::size_t i = 0; i < 24; ++i) {
    check.equal(static_cast<float>(narrow[i]), 638976.0f, "bf16");
    check.equal(static_cast<int>(half[i].bits), 0x7C00, "f16 overflows to Inf");
  }
}

/// The part of O4 that must be exact: alpha is applied in f32, before the cast.
void o4_alpha(Check& check) {
  const Quantized a = parts(one_level, 5, 4096, 7, 0x7E), b = parts(one_level, 3, 4096, 7, 0x7E);
  const float alpha = 0x1p-20f;
  nvfp4::GemmDesc desc;
  desc.alpha = &alpha;
  std::vector<nvfp4::f16> half(15);
  Floats f(15, nan);
  nvfp4::gemm(ctx(), a, b, {half.data(), 5, 3}, desc);
  nvfp4::gemm(ctx(), a, b, {f.data(), 5, 3}, desc);
  for (std::size_t i = 0; i < 15; ++i) {
    check.equal(f[i], 28224.0f, "f32");
    check.equal(static_cast<int>(half[i].bits), 0x76E4, "f16 28224");
  }
}

void o7(Check& check) {
  const Floats x = normal(3 * 32, 40), w = normal(5 * 32, 41);
  for (const Options& o : formats()) {
    const Quantized a = nvfp4::quantize(ctx(), {x.data(), 3, 32}, QuantizeDesc(o)), b = nvfp4::quantize(ctx(), {w.data(), 5, 32}, QuantizeDesc(o));
    const Floats da = dequantize(a), db = dequantize(b);
    Floats d(15, nan);
    nvfp4::gemm(ctx(), a, b, {d.data(), 3, 5});
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 5; ++j) {
        double want = 0, size = 0;
        for (std::size_t k = 0; k < 32; ++k) {
          want += static_cast<double>(da[i * 32 + k]) * db[j * 32 + k];
          size += std::fabs(static_cast<double>(da[i * 32 + k]) * db[j * 32 + k]);
        }
        check.that(size > 0 && std::fabs(d[i * 5 + j] - want) < 1e-5 * size, "3 x 5 x 32");
      }
    // B packed along N ([32, 5]) is no operand; nor is its columnwise copy, whose blocks run along N.
    const Floats wt = transposed(w, 5, 32);
    const Quantized packed_along_n = nvfp4::quantize(ctx(), {wt.data(), 32, 5}, QuantizeDesc(o));
    check.fails(NVFP4_ERR_SHAPE, "5", [&] { nvfp4::gemm(ctx(), a, packed_along_n, {d.data(), 3, 5}); });
    const Quantized along_k = nvfp4::quantize_columnwise(ctx(), {wt.data(), 32, 5}, QuantizeDesc(o));
    Floats e(15, nan);
    nvfp4::gemm(ctx(), a, along_k, {e.data(), 3, 5});
    check.that(same_bits(d, e), "the columnwise copy of B^T is B");
  }
}

}  // namespace

std::vector<Fault> gemm_faults() {
  return {
      {"F3", "products beyond K, or of a neighbour's batch", f3},
      {"F4", "K taken from packed bytes", f4},
      {"O2", "global scales dropped on one path", o2},
      {"O3", "block scales of another slice of K", o3},
      {"O4", "f16 overflow before alpha", o4},
      {"O4a", "alpha applied after the cast", o4_alpha},
      {"O7", "packing along the wrong axis taken silently", o7},
  };
}

}  // namespace faults
