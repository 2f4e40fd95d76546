// y = x W^T through libnvfp4: each operand is quantized once, rowwise and columnwise from one read, and serves every
// product it takes part in. On a GPU the layer's products are the library's nvfp4_linear_*, which quantize as they go: the
// same bits, and in mode BLOCK the same sums.
//   fprop  y  = x(rowwise)      w(rowwise)^T
//   dgrad  dx = dy(rowwise)     w(columnwise)^T
//   wgrad  dw = dy(columnwise)  x(columnwise)^T
#pragma once
#include "gpu.hpp"

#include <nvfp4.hpp>

#include <cstdint>
#include <memory>
#include <utility>

namespace trainer {

// Where products run: a context, and the memory of its GPU if it is one. `block`: mode BLOCK there too, for comparison with a CPU.
struct Place {
    nvfp4::Context library;
    std::unique_ptr<Gpu> gpu;
    bool block = false;
};

class QuantizedLinear {
public:
    QuantizedLinear(Place& place, const char* recipe, int in, int out) : place_(&place), recipe_(recipe), in_(in), out_(out) {
        if (place.block) recipe_.accumulate = NVFP4_ACCUMULATE_BLOCK;
    }

    // x is [tokens, in], w is [out, in], y is [tokens, out]. Without `keep` nothing is left for a backward pass.
    // `draw` numbers this call's random bits.
    void forward(const float* w, const float* x, int tokens, float* y, bool keep, std::uint64_t draw) {
        if (place_->gpu) return forward_on_gpu(w, x, tokens, y, draw);
        weight_ = quantize(NVFP4_OPERAND_WEIGHT, {w, out_, in_}, keep, draw);
        input_ = quantize(NVFP4_OPERAND_ACTIVATION, {x, tokens, in_}, keep, draw);
        multiply(input_.first, weight_.first, {y, tokens, out_});
    }

    // dy is [tokens, out]; overwrites dx [tokens, in] and dw [out, in].
    void backward(const float* dy, int tokens, float* dx, float* dw, std::uint64_t draw) {
        if (place_->gpu) return backward_on_gpu(dy, tokens, dx, dw, draw);
        const Copies gradient = quantize(NVFP4_OPERAND_GRADIENT, {dy, tokens, out_}, true, draw);
        multiply(gradient.first, weight_.second, {dx, tokens, in_});
        multiply(gradient.second, input_.second, {dw, out_, in_});
    }

private:
    using Copies = std::pair<nvfp4::Quantized, nvfp4::Quantized>;  // rowwise, columnwise

    Copies quantize(std::uint32_t operand, const nvfp4::ConstMatrix& x, bool both, std::uint64_t draw) const {
        nvfp4::QuantizeDesc desc = nvfp4::recipe_quantize_desc(recipe_, operand);
        desc.seed = kSeed;
        desc.offset = draw + (std::uint64_t(operand) << 60);  // as nvfp4_linear_* keeps the operands' bits apart
        if (both) return nvfp4::quantize_both(place_->library, x, desc);
        return {nvfp4::quantize(place_->library, x, desc), nvfp4::Quantized()};
    }

    void multiply(const nvfp4::Quantized& a, const nvfp4::Quantized& b, const nvfp4::Matrix& d) const {
        nvfp4::GemmDesc desc;
        desc.accumulate = recipe_.accumulate;
        nvfp4::gemm(place_->library, a, b, d, desc);
    }

    void forward_on_gpu(const float* w, const float* x, int tokens, float* y, std::uint64_t draw) {
        const Gpu& gpu = *place_->gpu;
        const std::size_t in = std::size_t(tokens) * in_, out = std::size_t(tokens) * out_;
        const nvfp4::ConstMatrix input{x_.put(gpu, x, in), tokens, in_}, weight{w_.put(gpu, w, weights()), out_, in_};
        nvfp4::linear_fprop(place_->library, desc(draw, tokens), input, weight, nullptr, {y_.room(gpu, out), tokens, out_});
        y_.get(gpu, y, out);
    }

    void backward_on_gpu(const float* dy, int tokens, float* dx, float* dw, std::uint64_t draw) {
        const Gpu& gpu = *place_->gpu;
        const std::size_t in = std::size_t(tokens) * in_, out = std::size_t(tokens) * out_;
        const nvfp4::LinearDesc d = desc(draw, tokens);
        const nvfp4::ConstMatrix gradient{y_.put(gpu, dy, out), tokens, out_};
        nvfp4::linear_dgrad(place_->library, d, gradient, {w_.room(gpu, weights()), out_, in_}, {dx_.room(gpu, in), tokens, in_});
        nvfp4::linear_wgrad(place_->library, d, gradient, {x_.room(gpu, in), tokens, in_}, {dw_.room(gpu, weights()), out_, in_});
        dx_.get(gpu, dx, in);
        dw_.get(gpu, dw, weights());
    }

    // With a workspace on the GPU.
    nvfp4::LinearDesc desc(std::uint64_t draw, int tokens) {
        nvfp4::LinearDesc d;
        d.recipe = &recipe_;
        d.seed = kSeed;
        d.offset = draw;
        const std::size_t bytes = nvfp4::linear_workspace(place_->library, d, tokens, in_, out_, NVFP4_F32);
        d.workspace = workspace_.room(*place_->gpu, bytes / sizeof(float) + 1);
        d.workspace_bytes = bytes;
        return d;
    }

    std::size_t weights() const { return std::size_t(in_) * out_; }

    static constexpr std::uint64_t kSeed = 20251;
    Place* place_;
    nvfp4::Recipe recipe_;
    int in_, out_;
    Copies weight_, input_;
    Gpu::Array x_, w_, y_, dx_, dw_, workspace_;
};

}  // namespace trainer
