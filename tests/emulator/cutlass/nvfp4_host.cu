// A host program of ours around CUTLASS's NVFP4 GEMM: reads codes and scale bytes, runs the
// kernel, writes the result. Compiled by tests/cutlass.rs against CUTLASS's headers.
//
//   nvfp4_host IN OUT
//   IN:  int32 m, n, k; A [m, k] and B [n, k] as packed codes; their scales as 128x4 tiles
//   OUT: D = A B^T, [m, n] f32, or bf16 with -DOUT_BF16
//
// CHIP, TILE_M, TILE_N, TILE_K, CLUSTER_M, CLUSTER_N choose the kernel: TILE_M = 256 on CHIP 100 is the
// form with pairs of CTAs.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "cutlass/cutlass.h"

#include "cute/tensor.hpp"
#include "cutlass/detail/sm100_blockscaled_layout.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

using namespace cute;
#if CHIP == 120
using GemmChip = cutlass::arch::Sm120;
#else
using GemmChip = cutlass::arch::Sm100;
#endif
using Fp4 = cutlass::nv_float4_t<cutlass::float_e2m1_t>;
using GemmUnit = cutlass::arch::OpClassBlockScaledTensorOp;
using GemmTile = Shape<Int<TILE_M>, Int<TILE_N>, Int<TILE_K>>;
using GemmCluster = Shape<Int<CLUSTER_M>, Int<CLUSTER_N>, _1>;
#ifdef OUT_BF16
using Out = cutlass::bfloat16_t;
#else
using Out = float;
#endif
constexpr int ALIGN = 16 / sizeof(Out);
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<GemmChip, GemmUnit, GemmTile, GemmCluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, Out, RowMajor, ALIGN, Out, RowMajor, ALIGN,
                                                                  cutlass::epilogue::collective::EpilogueScheduleAuto>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<GemmChip, GemmUnit, Fp4, RowMajor, 32, Fp4, ColumnMajor, 32, float, GemmTile, GemmCluster,
                                                              cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
                                                              cutlass::gemm::collective::KernelScheduleAuto>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue, void>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

#define CHECK(call)                                                                    \
  if ((call) != cudaSuccess) {                                                         \
    fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(cudaGetLastError()));        \
    return 1;                                                                          \
  }

static void* device(const std::vector<uint8_t>& bytes) {
  void* p = nullptr;
  if (cudaMalloc(&p, bytes.size()) != cudaSuccess || cudaMemcpy(p, bytes.data(), bytes.size(), cudaMemcpyHostToDevice) != cudaSuccess) return nullptr;
  return p;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  FILE* in = fopen(argv[1], "rb");
  int size[3];
  if (!in || fread(size, 4, 3, in) != 3) return 2;
  const int m = size[0], n = size[1], k = size[2];
  auto read = [&](size_t bytes) {
    std::vector<uint8_t> v(bytes);
    if (fread(v.data(), 1, bytes, in) != bytes) v.clear();
    return v;
  };
  auto tiles = [&](int rows) { return size_t(rows + 127) / 128 * 128 * (k / 16); };
  void *a = device(read(size_t(m) * k / 2)), *b = device(read(size_t(n) * k / 2));
  void *sfa = device(read(tiles(m))), *sfb = device(read(tiles(n)));
  std::vector<Out> d(size_t(m) * n);
  void *dd, *dc = device(std::vector<uint8_t>(d.size() * sizeof(Out), 0));
  CHECK(cudaMalloc(&dd, d.size() * sizeof(Out)));

  using Config = typename Mainloop::Sm1xxBlkScaledConfig;
  auto stride = [](auto s, int rows, int columns) { return cutlass::make_cute_packed_stride(s, {rows, columns, 1}); };
  const auto stride_d = stride(typename Kernel::StrideD{}, m, n);
  const auto shape = make_shape(m, n, k, 1);
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {static_cast<const cutlass::float_e2m1_t*>(a), stride(typename Kernel::StrideA{}, m, k), static_cast<const cutlass::float_e2m1_t*>(b), stride(typename Kernel::StrideB{}, n, k),
       static_cast<const cutlass::float_ue4m3_t*>(sfa), Config::tile_atom_to_shape_SFA(shape), static_cast<const cutlass::float_ue4m3_t*>(sfb), Config::tile_atom_to_shape_SFB(shape)},
      {{1.f, 0.f}, static_cast<const Out*>(dc), stride(typename Kernel::StrideC{}, m, n), static_cast<Out*>(dd), stride_d}};
  Gemm gemm;
  void* workspace = nullptr;
  CHECK(cudaMalloc(&workspace, Gemm::get_workspace_size(arguments) + 256));
  for (auto step : {gemm.can_implement(arguments), gemm.initialize(arguments, workspace), gemm.run()}) {
    if (step != cutlass::Status::kSuccess) {
      fprintf(stderr, "%s\n", cutlassGetStatusString(step));
      return 1;
    }
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(d.data(), dd, d.size() * sizeof(Out), cudaMemcpyDeviceToHost));
  FILE* out = fopen(argv[2], "wb");
  if (!out || fwrite(d.data(), sizeof(Out), d.size(), out) != d.size()) return 2;
  fclose(out);
  return 0;
}
