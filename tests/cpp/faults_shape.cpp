// Kinds F to J, and what belongs to shapes elsewhere: any shape, swizzled scales and padding, empty matrices, strides
// and alignment, offsets beyond 32 bits, shards.
#include "faults.hpp"

#include <cstring>

#include <sys/mman.h>

namespace faults {
namespace {

std::size_t n(std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); }

void f1(Check& check) {
  const std::int64_t shapes[][2] = {{1, 16}, {33, 16}, {3, 48}, {5, 80}};
  const Context alone = Context::cpu(1);
  for (const auto& [rows, cols] : shapes)
    for (const Options& format : formats())
      for (const Options& o : {format, tiles(format), swizzled(format)})
        for (const Side side : sides) {
          How how;
          how.options = o;
          how.side = side;
          const Floats x = normal(n(rows, cols), 1);
          const Quantized q = quantize(check, x, rows, cols, how);
          if (side == Side::row)
            check.that(same_bytes(q, nvfp4::quantize(alone, {x.data(), rows, cols}, QuantizeDesc(o))), words(how) + ": bytes at one thread");
          check.that(dequantize(q)[0] != 0, words(how) + ": all zero");
        }
}

/// A tail is quantized as if padded with zeros: equal to the padded matrix, cut.
void f2(Check& check) {
  const std::int64_t shapes[][2] = {{1, 15}, {2, 17}, {3, 24}, {2, 1000}, {40, 24}, {1, 64}, {5743, 40}};
  for (const auto& [rows, cols] : shapes)
    for (const Options& format : formats())
      for (const Options& o : {format, tiles(format), rht(format, 16)})
        for (const Side side : {Side::row, Side::column}) {
          if (rows > 1000 && (o.scale_rule != 0 || o.chain != 0)) continue;
          const bool up = o.hadamard != 0;
          const std::int64_t size = block_of(o), wide = (cols + size - 1) / size * size, tall = (rows + size - 1) / size * size;
          const Floats x = normal(n(rows, cols), 2);
          Floats padded(n(tall, wide), 0.0f);
          for (std::int64_t r = 0; r < rows; ++r) std::memcpy(&padded[n(r, wide)], &x[n(r, cols)], n(cols, 4));
          How how;
          how.options = o;
          how.side = side;
          const Quantized q = quantize(check, x, rows, cols, how), whole = quantize(check, padded, tall, wide, how);
          check.that(q.cols() == (up ? (cols + 15) / 16 * 16 : cols), words(how) + ": columns of the copy");
          check.that(q.amax().empty() || q.amax() == whole.amax(), words(how) + ": padding changes amax");
          bool same = true;
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c < q.cols(); ++c) same = same && code(q, r, c) == code(whole, r, c);
            for (std::int64_t b = 0; b < (q.cols() + size - 1) / size; ++b) same = same && scale(q, r, b) == scale(whole, r, b);
            if (q.cols() % 2 == 1) same = same && code(q, r, q.cols()) == 0;  // the spare nibble
          }
          check.that(same, words(how) + ": " + std::to_string(rows) + " x " + std::to_string(cols) + " differs from its padded self");
        }
}

/// Swizzled scales: no byte of the output is left as it was, padding is 0, products do not depend on what it holds.
void g1(Check& check) {
  for (const std::int64_t rows : {1, 5, 33, 129, 255})
    for (const std::int64_t cols : {16, 48, 80})
      for (const Options& format : formats())
        for (const Options& o : {format, tiles(format)}) {
          How how, linear;
          linear.options = o;
          how.options = swizzled(o);
          const Floats x = normal(n(rows, cols), 3), w = normal(n(9, cols), 4);
          const Quantized q = quantize(check, x, rows, cols, how), l = quantize(check, x, rows, cols, linear);
          Bytes seen = q.scales();
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t b = 0; b < (cols + block_of(o) - 1) / block_of(o); ++b) {
              check.that(scale(q, r, b) == scale(l, r, b), words(how) + ": a scale byte is not in its place");
              const std::int64_t blocks = (cols + block_of(o) - 1) / block_of(o);
              seen[static_cast<std::size_t>((r / 128 * ((blocks + 3) / 4) + b / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + b % 4)] = 0;
            }
          check.that(seen == Bytes(seen.size(), 0), words(how) + ": padding is not 0");
          const Quantized b = quantize(check, w, 9, cols, linear);
          Floats d(n(rows, 9), nan), e(n(rows, 9), nan);
          nvfp4::gemm(ctx(), q, b, {d.data(), rows, 9});
          nvfp4::gemm(ctx(), l, b, {e.data(), rows, 9});
          check.that(same_bits(d, e) && d[0] != 0 && all(d, [](float v) { return std::isfinite(v); }), words(how) + ": product");
        }
}

void g2(Check& check) {
  struct Case {
    Options o;
    std::int64_t cols;
  };
  for (const Case& c : {Case{mx(NVFP4_RULE_FLOOR), 1504}, Case{mx(NVFP4_RULE_FLOOR), 32}, Case{chain(NVFP4_CHAIN_TE), 1008}, Case{chain(NVFP4_CHAIN_SINGLE), 16}}) {
    How how;
    how.options = swizzled(c.o);
    const Floats x = normal(n(35, c.cols), 5);
    const Quantized q = quantize(check, x, 35, c.cols, how);
    Floats want_d(n(35, 35), nan);
    nvfp4::gemm(ctx(), q, q, {want_d.data(), 35, 35});
    for (const int dirt : {0x01, 0x7E, 0x7F, 0xFE, 0xFF}) {
      Bytes scales = q.scales();
      const std::int64_t blocks = (c.cols + block_of(c.o) - 1) / block_of(c.o), tile = (blocks + 3) / 4 * 512;
      for (std::int64_t at = 0; at < tile; ++at) {
        const std::int64_t r = at % 512 / 16 + at % 16 / 4 * 32, b = at / 512 * 4 + at % 4;
        if (r >= 35 || b >= blocks) scales[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(dirt);
      }
      const Quantized dirty(q.meta(), q.codes(), scales, q.amax());
      Floats d(n(35, 35), nan);
      nvfp4::gemm(ctx(), dirty, dirty, {d.data(), 35, 35});
      check.that(same_bits(d, want_d) && d[0] != 0, "the product depends on padding 0x" + std::to_string(dirt));
      check.that(same_bits(dequantize(dirty), dequantize(q)), "dequantize depends on padding");
    }
  }
}

void g3(Check& check) {
  const std::int64_t shapes[][2] = {{1, 1}, {33, 2}, {128, 4}, {130, 2}, {300, 7}, {34, 8}};
  for (const auto& [rows, cols] : shapes) {
    Bytes linear(n(rows, cols)), back(n(rows, cols), 0xFF);
    for (std::size_t i = 0; i < linear.size(); ++i) linear[i] = static_cast<std::uint8_t>(i % 251 + 1);
    Bytes tiled(nvfp4::scales_bytes(rows, cols, NVFP4_SCALES_SWIZZLED), 0xFF);
    check.that(tiled.size() == n(128 * ((rows + 127) / 128), 4 * ((cols + 3) / 4)), "size");
    nvfp4::swizzle_scales(ctx(), rows, cols, linear.data(), 0, tiled.data(), tiled.size());
    nvfp4::unswizzle_scales(ctx(), rows, cols, tiled.data(), tiled.size(), back.data(), 0);
    check.that(back == linear, "round trip");
    if (rows == 34) check.that(tiled[533] == linear[33 * 8 + 5], "C = 8: (33, 5) is at 533");
    if (rows == 130) check.that(tiled[528] == linear[129 * 2], "C = 2: (129, 0) is at 528");
    if (rows == 128) check.that(tiled[511] == linear[127 * 4 + 3], "C = 4: (127, 3) is at 511");
  }
  check.equal(nvfp4::scales_bytes(130, 2, NVFP4_SCALES_SWIZZLED), std::size_t{1024}, "130 x 2 takes 1024 bytes");
}

/// The layout travels with the matrix, so a product of one linear and one swizzled operand is right.
void g4(Check& check) {
  const Floats x = normal(128 * 64, 6), w = normal(72 * 64, 7);
  for (const Options& o : formats()) {
    How linear, tiled;
    linear.options = o;
    tiled.options = swizzled(o);
    const Quantized a[2] = {quantize(check, x, 128, 64, linear), quantize(check, x, 128, 64, tiled)};
    const Quantized b[2] = {quantize(check, w, 72, 64, linear), quantize(check, w, 72, 64, tiled)};
    check.that(a[0].meta().scale_layout == NVFP4_SCALES_LINEAR && a[1].meta().scale_layout == NVFP4_SCALES_SWIZZLED, "recorded");
    check.that(a[0].scales() != a[1].scales(), "the layouts do not differ");
    check.that(same_bits(dequantize(a[0]), dequantize(a[1])), words(tiled) + ": dequantize");
    Floats want(128 * 72, nan);
    nvfp4::gemm(ctx(), a[0], b[0], {want.data(), 128, 72});
    for (int i = 1; i < 4; ++i) {
      Floats d(128 * 72, nan);
      nvfp4::gemm(ctx(), a[i & 1], b[i >> 1], {d.data(), 128, 72});
      check.that(same_bits(d, want) && d[0] != 0, words(tiled) + ": product of layouts " + std::to_string(i));
    }
  }
}

void g5(Check& check) {
  Bytes linear(300), tiled(512, 0xFF), back(300, 0), again(512, 0xAA);
  for (std::size_t i = 0; i < 300; ++i) linear[i] = static_cast<std::uint8_t>(i % 120 + 1);
  nvfp4::swizzle_scales(ctx(), 100, 3, linear.data(), 0, tiled.data(), tiled.size());
  int zeros = 0;
  for (const std::uint8_t byte : tiled) zeros += byte == 0;
  check.equal(zeros, 212, "padding is 0, and only padding");
  for (std::uint8_t& byte : tiled) byte = byte == 0 ? 0xFF : byte;
  nvfp4::unswizzle_scales(ctx(), 100, 3, tiled.data(), tiled.size(), back.data(), 0);
  check.that(back == linear, "300 real bytes");
  nvfp4::swizzle_scales(ctx(), 100, 3, back.data(), 0, again.data(), again.size());
  zeros = 0;
  for (const std::uint8_t byte : again) zeros += byte == 0;
  check.equal(zeros, 212, "poison in the padding survived");
}

void h1(Check& check) {
  const std::int64_t shapes[][2] = {{0, 64}, {64, 0}, {0, 0}};
  for (const auto& [rows, cols] : shapes)
    for (const Options& format : formats())
      for (const Options& o : {format, tiles(format), rht(format, 16), swizzled(format), stochastic(format)})
        for (const Side side : sides) {
          How how;
          how.options = o;
          how.side = side;
          const Quantized q = quantize(check, {}, rows, cols, how);
          check.that(q.codes().empty() && q.scales().empty() && q.cols() == cols, words(how) + ": sizes of nothing");
          check.that(q.amax().empty() || q.amax()[0] == 0, words(how) + ": amax of nothing");
          check.that(dequantize(q).empty(), "dequantize");
        }
  float none = 0;
  nvfp4::hadamard(ctx(), {&none, 0, 64}, {&none, 0, 64});
  nvfp4::hadamard(ctx(), {&none, 64, 0}, {&none, 64, 0});
  const auto product = [&](std::int64_t m, std::int64_t columns, std::int64_t k, float beta) {
    How how;
    const Quantized a = quantize(check, normal(n(m, k), 8), m, k, how), b = quantize(check, normal(n(columns, k), 9), columns, k, how);
    Floats c = constant(n(m, columns), 3.0f), d(n(m, columns), nan);
    nvfp4::GemmDesc desc;
    desc.beta = &beta;
    const ConstMatrix cm(c.data(), m, columns);
    nvfp4::gemm(ctx(), a, b, {d.data(), m, columns}, desc, &cm);
    return d;
  };
  check.that(product(0, 5, 32, 2).empty() && product(5, 0, 32, 2).empty(), "M = 0, N = 0");
  check.that(product(3, 5, 0, 2) == constant(15, 6.0f), "K = 0 is beta C");
  check.that(product(3, 5, 0, 0) == constant(15, 0.0f), "K = 0 and beta = 0 is 0");
}

void i1(Check& check) {
  Floats base = normal(64 * 256, 10);
  std::vector<nvfp4::bf16> narrow;
  for (float& v : base) narrow.push_back(nvfp4::bf16(v)), v = static_cast<float>(narrow.back());
  for (const Options& format : formats())
    for (const Options& o : {format, tiles(format), rht(format, 16), stochastic(format)}) {
      const QuantizeDesc desc(o);
      Floats slice(64 * 64), odd(32 * 256);
      for (std::size_t r = 0; r < 64; ++r) std::memcpy(&slice[r * 64], &base[r * 256 + 64], 256);
      for (std::size_t r = 0; r < 32; ++r) std::memcpy(&odd[r * 256], &base[r * 512], 1024);
      const auto [row, column] = nvfp4::quantize_both(ctx(), {slice.data(), 64, 64}, desc);
      const auto [row2, column2] = nvfp4::quantize_both(ctx(), {&base[64], 64, 64, 256}, desc);
      const auto [row3, column3] = nvfp4::quantize_both(ctx(), {&narrow[64], 64, 64, 256}, desc);
      check.that(same_bytes(row, row2) && same_bytes(column, column2), "a column slice");
      check.that(same_bytes(row, row3) && same_bytes(column, column3), "a column slice in bf16");
      check.that(same_bytes(nvfp4::quantize(ctx(), {odd.data(), 32, 256}, desc), nvfp4::quantize(ctx(), {base.data(), 32, 256, 512}, desc)), "every second row");
    }
  check.fails(NVFP4_ERR_SHAPE, "63", [&] { nvfp4::quantize(ctx(), {base.data(), 64, 64, 63}); });
  check.fails(NVFP4_ERR_SHAPE, "-256", [&] { nvfp4::quantize(ctx(), {base.data(), 64, 64, -256}); });
}

void i2(Check& check) {
  std::vector<nvfp4::bf16> base;
  for (const float v : normal(4100, 11)) base.push_back(nvfp4::bf16(v));
  const std::vector<nvfp4::bf16> aligned(base.begin() + 1, base.begin() + 1 + 4096);
  const Quantized want = nvfp4::quantize(ctx(), {aligned.data(), 16, 256});
  check.that(same_bytes(want, nvfp4::quantize(ctx(), {&base[1], 16, 256})), "an input 2 bytes off");
  for (const std::size_t off : {1, 2, 4, 8}) {
    Bytes codes(want.codes().size() + 16, 0xEE), scales(want.scales().size() + 16, 0xEE);
    float amax = 0;
    nvfp4_quantized view = Quantized().view();
    view.codes = codes.data() + off;
    view.codes_bytes = want.codes().size();
    view.scales = scales.data() + off;
    view.scales_bytes = want.scales().size();
    view.amax = &amax;
    view.amax_count = 1;
    QuantizeDesc desc;
    const std::size_t bytes = nvfp4::quantize_sizes(ctx(), desc, 16, 256, NVFP4_BF16, 1).workspace_bytes;
    nvfp4::Workspace workspace(bytes + 16);
    desc.workspace = static_cast<char*>(workspace.data()) + off;
    desc.workspace_bytes = bytes;
    try {
      nvfp4::quantize(ctx(), desc, {aligned.data(), 16, 256}, &view, nullptr);
      check.that(std::memcmp(codes.data() + off, want.codes().data(), want.codes().size()) == 0, "codes at an odd address");
      check.that(std::memcmp(scales.data() + off, want.scales().data(), want.scales().size()) == 0, "scales at an odd address");
      check.that(codes[off - 1] == 0xEE && codes[off + want.codes().size()] == 0xEE, "wrote outside the codes");
    } catch (const nvfp4::Error& e) {
      check.equal(e.status(), NVFP4_ERR_ALIGNMENT, e.what());
    }
    Bytes out(want.codes().size() * 8 + 16, 0xEE);
    check.fails(NVFP4_ERR_ALIGNMENT, "4", [&] { nvfp4::dequantize(ctx(), want, {out.data() + (off == 4 || off == 8 ? 2 : off), NVFP4_F32, 16, 256, 0}); });
  }
}

/// Offsets beyond 2^31 and 2^32, on memory that is only reserved: three rows far apart, input, codes and scales.
void j1(Check& check) {
  const std::int64_t stride = (INT64_C(1) << 31) + 48, code_stride = (INT64_C(1) << 31) + 24, scale_stride = (INT64_C(1) << 31) + 3;
  const auto reserve = [](std::int64_t bytes) {
    void* p = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(p);
  };
  const std::int64_t size[3] = {2 * stride * 4 + 192, 2 * code_stride + 24, 2 * scale_stride + 3};
  std::uint8_t* area[3] = {reserve(size[0]), reserve(size[1]), reserve(size[2])};
  if (area[0] == nullptr || area[1] == nullptr || area[2] == nullptr) {
    std::printf("SKIPPED: J1, as 25 GiB of addresses can't be reserved here\n");
    check.that(true, "");
    return;
  }
  const Floats x = normal(3 * 48, 12);
  for (std::int64_t r = 0; r < 3; ++r) std::memcpy(area[0] + r * stride * 4, &x[n(r, 48)], 192);
  const ConstMatrix far(reinterpret_cast<float*>(area[0]), 3, 48, stride);
  const Quantized want = nvfp4::quantize(ctx(), {x.data(), 3, 48}), packed = nvfp4::quantize(ctx(), far);
  check.that(same_bytes(want, packed), "rows beyond 2^32 bytes");
  check.that(same_bytes(nvfp4::quantize_columnwise(ctx(), {x.data(), 3, 48}), nvfp4::quantize_columnwise(ctx(), far)), "columnwise");
  float amax = 0;
  nvfp4_quantized view = Quantized().view();
  view.codes = area[1];
  view.codes_bytes = static_cast<std::size_t>(size[1]);
  view.code_stride = code_stride;
  view.scales = area[2];
  view.scales_bytes = static_cast<std::size_t>(size[2]);
  view.scale_stride = scale_stride;
  view.amax = &amax;
  view.amax_count = 1;
  QuantizeDesc desc;
  nvfp4::Workspace workspace;
  workspace.lend(desc, nvfp4::quantize_sizes(ctx(), desc, 3, 48, NVFP4_F32, 1).workspace_bytes);
  nvfp4::quantize(ctx(), desc, far, &view, nullptr);
  for (std::int64_t r = 0; r < 3; ++r) {
    check.that(std::memcmp(area[1] + r * code_stride, &want.codes()[n(r, 24)], 24) == 0, "codes of row " + std::to_string(r));
    check.that(std::memcmp(area[2] + r * scale_stride, &want.scales()[n(r, 3)], 3) == 0, "scales of row " + std::to_string(r));
  }
  std::memset(area[0], 0, 192);
  std::memset(area[0] + 2 * stride * 4, 0, 192);
  nvfp4::dequantize(ctx(), view, {reinterpret_cast<float*>(area[0]), 3, 48, stride});
  check.that(std::memcmp(area[0] + 2 * stride * 4, dequantize(want).data() + 96, 192) == 0, "dequantize of the last row");
  for (int i = 0; i < 3; ++i) munmap(area[i], static_cast<std::size_t>(size[i]));
}

/// Two shards quantized with the amax of the whole are the whole, cut: rows and columns, SR included.
void r5(Check& check) {
  Floats x = normal(64 * 96, 13);
  x[0] = 1, x[40 * 96 + 3] = 8;
  const float amax = 8;
  for (const Options& format : formats())
    for (const Options& o : {format, tiles(format), stochastic(format), stochastic(tiles(format)), rht(format, 32)})
      for (const Side side : {Side::row, Side::column}) {
        How how;
        how.options = o;
        how.side = side;
        how.seed = 5;
        how.offset = 3;
        how.amax = format.format == NVFP4_FORMAT_MXFP4 || format.chain == NVFP4_CHAIN_SINGLE ? nullptr : &amax;
        const Quantized whole = quantize(check, x, 64, 96, how);
        Floats half(32 * 96), right(64 * 32);
        std::memcpy(half.data(), &x[32 * 96], half.size() * 4);
        for (std::size_t r = 0; r < 64; ++r) std::memcpy(&right[r * 32], &x[r * 96 + 64], 128);
        how.origin_row = 32;
        const Quantized lower = quantize(check, half, 32, 96, how);
        how.origin_row = 0;
        how.origin_col = 64;
        const Quantized corner = quantize(check, right, 64, 32, how);
        bool same_rows = true, same_cols = true;
        for (std::int64_t r = 0; r < 32; ++r)
          for (std::int64_t c = 0; c < 96; ++c)
            same_rows = same_rows && code(lower, r, c) == code(whole, r + 32, c) && scale(lower, r, c / block_of(o)) == scale(whole, r + 32, c / block_of(o));
        for (std::int64_t r = 0; r < 64; ++r)
          for (std::int64_t c = 0; c < 32; ++c)
            same_cols = same_cols && code(corner, r, c) == code(whole, r, c + 64) && scale(corner, r, c / block_of(o)) == scale(whole, r, (c + 64) / block_of(o));
        check.that(same_rows, words(how) + ": a shard of rows differs");
        check.that(same_cols, words(how) + ": a shard of columns differs");
      }
}

}  // namespace

std::vector<Fault> shape_faults() {
  return {
      {"F1", "shapes that one path takes and another refuses", f1},
      {"F2", "crash or changed values from a tail", f2},
      {"G1", "padding of swizzled scales left as it was", g1},
      {"G2", "product that depends on scale padding", g2},
      {"G3", "unclear place of a scale byte", g3},
      {"G4", "scales read in another layout than written", g4},
      {"G5", "poison in scale padding taken for data", g5},
      {"H1", "crash on an empty matrix", h1},
      {"I1", "strided view read as if packed", i1},
      {"I2", "fault from an unaligned slice", i2},
      {"J1", "offsets cut to 32 bits", j1},
      {"R5", "shards scaled by their own amax", r5},
  };
}

}  // namespace faults
