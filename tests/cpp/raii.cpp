// nvfp4.hpp: ownership, exceptions, and each wrapper once, against the C function it wraps.
#include <nvfp4.hpp>

#include <cmath>
#include <cstdio>
#include <thread>

namespace {

int passed = 0, failed = 0;

void expect(bool condition, const char* what) {
  ++(condition ? passed : failed);
  if (!condition) std::printf("FAILED %s (%s)\n", what, nvfp4::last_error());
}

std::vector<float> values(std::size_t count) {
  std::vector<float> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = static_cast<float>((i * 37 + 11) % 101) / 8.0f - 6.0f;
  return v;
}

void contexts() {
  nvfp4::Context a, b = nvfp4::Context::cpu(2);
  nvfp4_context* const handle = a.get();
  nvfp4::Context moved(std::move(a));
  expect(moved.get() == handle && handle != nullptr, "a moved context keeps its handle");
  b = std::move(moved);
  expect(b.get() == handle, "assignment moves the handle");
  nvfp4::Context& self = b;
  b = std::move(self);
  expect(b.get() == handle, "self-move keeps the handle");
  static_assert(!std::is_copy_constructible<nvfp4::Context>::value, "one owner");
  static_assert(!std::is_copy_constructible<nvfp4::Workspace>::value, "one owner");
  static_assert(std::is_nothrow_move_constructible<nvfp4::Quantized>::value, "moves do not throw");
  expect(nvfp4::version() == (NVFP4_VERSION_MAJOR << 16 | NVFP4_VERSION_MINOR << 8 | NVFP4_VERSION_PATCH), "version");
}

void errors(const nvfp4::Context& ctx) {
  const std::vector<float> x = values(64);
  try {
    nvfp4::quantize(ctx, {x.data(), -3, 16});
    expect(false, "-3 rows must throw");
  } catch (const nvfp4::Error& e) {
    expect(e.status() == NVFP4_ERR_SHAPE && std::string(e.name()) == "NVFP4_ERR_SHAPE", "status of the exception");
    expect(std::string(e.what()).find("-3") != std::string::npos, "the sentence is in the exception");
  }
  try {
    nvfp4::Recipe recipe("nvfp5");
    expect(false, "an unknown recipe must throw");
  } catch (const std::runtime_error& e) {
    expect(std::string(e.what()).find("nvfp5") != std::string::npos, "the recipe's name is in the exception");
  }
  nvfp4::QuantizeDesc desc;
  desc.rowwise.format = 91;
  expect(nvfp4::supports_quantize(ctx, desc, 4, 16, NVFP4_F32, nvfp4::rowwise_copy) == NVFP4_ERR_INVALID_ARGUMENT,
         "supports answers without throwing");
}

void numbers() {
  expect(static_cast<float>(nvfp4::bf16(1.0f)) == 1.0f, "bf16 of 1");
  expect(nvfp4::bf16(1.00390625f).bits == 0x3F80, "ties to even, down");
  expect(nvfp4::bf16(1.01171875f).bits == 0x3F82, "ties to even, up");
  expect(nvfp4::bf16(3.4e38f).bits == 0x7F80, "overflow to Inf");
  expect(std::isnan(static_cast<float>(nvfp4::bf16(std::nanf("")))), "NaN stays NaN");
}

void quantized(const nvfp4::Context& ctx) {
  const std::vector<float> x = values(33 * 48);
  const nvfp4::ConstMatrix m(x.data(), 33, 48);
  auto [row, column] = nvfp4::quantize_both(ctx, m);
  const nvfp4::Quantized alone = nvfp4::quantize(ctx, m);
  expect(row.codes() == alone.codes() && row.scales() == alone.scales(), "one copy equals the same of two");
  expect(nvfp4::quantize_columnwise(ctx, m).codes() == column.codes(), "columnwise alone");
  expect(column.rows() == 48 && column.cols() == 33 && column.meta().transposed == 1, "columnwise is transposed");

  nvfp4::Quantized copy = row;
  expect(copy.view().codes != row.view().codes, "copies are deep");
  const void* const codes = copy.view().codes;
  const nvfp4::Quantized moved = std::move(copy);
  expect(moved.view().codes == codes, "moves are not");

  std::vector<float> y(x.size()), turned(x.size());
  nvfp4::dequantize(ctx, row, {y.data(), 33, 48});
  nvfp4::dequantize(ctx, row, {turned.data(), 48, 33}, true);
  bool same = true;
  for (std::size_t r = 0; r < 33; ++r)
    for (std::size_t c = 0; c < 48; ++c) same = same && y[r * 48 + c] == turned[c * 33 + r];
  expect(same, "dequantize to the transpose");

  const auto again = nvfp4::requantize(ctx, row, nvfp4::QuantizeDesc(), nvfp4::both_copies);
  const auto direct = nvfp4::quantize_both(ctx, {y.data(), 33, 48});
  expect(again.first.codes() == direct.first.codes() && again.second.codes() == direct.second.codes(), "requantize");

  const nvfp4::Quantized parts(row.meta(), row.codes(), row.scales(), row.amax());
  std::vector<float> z(x.size());
  nvfp4::dequantize(ctx, parts, {z.data(), 33, 48});
  expect(z == y, "from parts");

  float amax[2] = {0, 0};
  nvfp4::amax(ctx, nvfp4::QuantizeDesc(), m, &amax[0], &amax[1]);
  expect(amax[0] == row.amax()[0] && amax[1] == column.amax()[0] && amax[0] > 0, "amax");

  nvfp4::Options tiles;
  tiles.block = NVFP4_BLOCK_2D;
  const auto both = nvfp4::quantize_both(ctx, m, nvfp4::QuantizeDesc(tiles));
  nvfp4::Quantized out(both.second.codes().size(), both.second.scales().size(), 1);
  nvfp4_quantized view = out.view();
  nvfp4::transpose(ctx, both.first, view);
  out.adopt(view);
  expect(out.codes() == both.second.codes() && out.scales() == both.second.scales(), "transpose");

  std::vector<std::uint8_t> swizzled(nvfp4::scales_bytes(33, 3, NVFP4_SCALES_SWIZZLED)), back(33 * 3);
  nvfp4::swizzle_scales(ctx, 33, 3, row.scales().data(), 0, swizzled.data(), swizzled.size());
  nvfp4::unswizzle_scales(ctx, 33, 3, swizzled.data(), swizzled.size(), back.data(), 0);
  expect(back == row.scales(), "swizzle and back");

  std::vector<float> h(x.size()), home(x.size());
  nvfp4::HadamardDesc desc;
  nvfp4::hadamard(ctx, m, {h.data(), 33, 48}, desc);
  desc.inverse = 1;
  nvfp4::hadamard(ctx, {h.data(), 33, 48}, {home.data(), 33, 48}, desc);
  for (std::size_t i = 0; i < x.size(); ++i) same = same && std::fabs(home[i] - x[i]) < 1e-4f;
  expect(same && h != x, "hadamard and back");
}

void products(const nvfp4::Context& ctx) {
  const std::vector<float> x = values(20 * 48), w = values(12 * 48);
  const nvfp4::Quantized a = nvfp4::quantize(ctx, {x.data(), 20, 48}), b = nvfp4::quantize(ctx, {w.data(), 12, 48});
  std::vector<float> d(20 * 12), packed_d(20 * 12);
  nvfp4::gemm(ctx, a, b, {d.data(), 20, 12});
  const nvfp4::PackedWeight packed(ctx, b);
  nvfp4::GemmDesc desc;
  packed.lend(desc);
  nvfp4::gemm(ctx, a, b, {packed_d.data(), 20, 12}, desc);
  expect(d == packed_d && d[0] != 0, "packed weight");
  const std::vector<float> v = values(12 * 48 + 1);
  const nvfp4::Quantized other = nvfp4::quantize(ctx, {v.data() + 1, 12, 48});
  nvfp4_status status = NVFP4_OK;
  try {
    nvfp4::gemm(ctx, a, other, {packed_d.data(), 20, 12}, desc);
  } catch (const nvfp4::Error& e) {
    status = e.status();
  }
  expect(status == NVFP4_ERR_MISMATCH && d == packed_d, "a packed weight of another matrix");
  expect(nvfp4::supports_gemm(ctx, nvfp4::GemmDesc(), 20, 12, 48, a, b, NVFP4_F32) == NVFP4_OK, "supports gemm");

  nvfp4::Linear layer(ctx, nvfp4::Recipe("bf16"));
  std::vector<float> y(20 * 12), dx(20 * 48), dw(12 * 48), twice(12 * 48);
  layer.fprop({x.data(), 20, 48}, {w.data(), 12, 48}, nullptr, {y.data(), 20, 12});
  double error = 0, size = 0;
  for (std::size_t i = 0; i < 20; ++i)
    for (std::size_t j = 0; j < 12; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 48; ++k) sum += static_cast<double>(x[i * 48 + k]) * w[j * 48 + k];
      error += (y[i * 12 + j] - sum) * (y[i * 12 + j] - sum);
      size += sum * sum;
    }
  expect(size > 0 && error < 1e-4 * size, "bf16 fprop");
  layer.dgrad({y.data(), 20, 12}, {w.data(), 12, 48}, {dx.data(), 20, 48});
  layer.wgrad({y.data(), 20, 12}, {x.data(), 20, 48}, {dw.data(), 12, 48});
  twice = dw;
  layer.wgrad({y.data(), 20, 12}, {x.data(), 20, 48}, {twice.data(), 12, 48}, true);
  bool doubled = true;
  for (std::size_t i = 0; i < dw.size(); ++i) doubled = doubled && twice[i] == dw[i] + dw[i];
  expect(doubled && dx[0] != 0, "dgrad and wgrad");

  nvfp4::Recipe recipe("nvfp4");
  nvfp4::Linear gradients(ctx, recipe);
  const auto with = [&](std::uint64_t offset) {
    gradients.offset = offset;
    gradients.wgrad({y.data(), 20, 12}, {x.data(), 20, 48}, {dw.data(), 12, 48});
    return dw;
  };
  const std::vector<float> first = with(1);
  expect(with(2) != first && with(1) == first, "the offset is the draw");
  expect(nvfp4::recipe_quantize_desc(recipe, NVFP4_OPERAND_WEIGHT).rowwise.block == NVFP4_BLOCK_2D, "recipe");
}

}  // namespace

int main() {
  const nvfp4::Context ctx = nvfp4::Context::cpu(2);
  contexts();
  errors(ctx);
  numbers();
  quantized(ctx);
  products(ctx);
  const auto [failures, report] = nvfp4::selftest(ctx);
  expect(failures == 0 && !report.empty(), "selftest");
  std::printf("raii: %d checks passed, %d failed\n", passed, failed);
  return failed != 0;
}
