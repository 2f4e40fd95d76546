// y = x W^T through libnvfp4: each operand is quantized once, rowwise and columnwise from one read, and serves every
// product it takes part in.
//   fprop  y  = x(rowwise)      w(rowwise)^T
//   dgrad  dx = dy(rowwise)     w(columnwise)^T
//   wgrad  dw = dy(columnwise)  x(columnwise)^T
#pragma once
#include <nvfp4.hpp>

#include <cstdint>
#include <utility>

namespace trainer {

class QuantizedLinear {
public:
    QuantizedLinear(nvfp4::Context& library, const char* recipe, int in, int out)
        : library_(&library), recipe_(recipe), in_(in), out_(out) {}

    // x is [tokens, in], w is [out, in], y is [tokens, out]. Without `keep` nothing is left for a backward pass.
    // `draw` numbers this call's random bits.
    void forward(const float* w, const float* x, int tokens, float* y, bool keep, std::uint64_t draw) {
        weight_ = quantize(NVFP4_OPERAND_WEIGHT, {w, out_, in_}, keep, draw);
        input_ = quantize(NVFP4_OPERAND_ACTIVATION, {x, tokens, in_}, keep, draw);
        multiply(input_.first, weight_.first, {y, tokens, out_});
    }

    // dy is [tokens, out]; overwrites dx [tokens, in] and dw [out, in].
    void backward(const float* dy, int tokens, float* dx, float* dw, std::uint64_t draw) {
        const Copies gradient = quantize(NVFP4_OPERAND_GRADIENT, {dy, tokens, out_}, true, draw);
        multiply(gradient.first, weight_.second, {dx, tokens, in_});
        multiply(gradient.second, input_.second, {dw, out_, in_});
    }

private:
    using Copies = std::pair<nvfp4::Quantized, nvfp4::Quantized>;  // rowwise, columnwise

    Copies quantize(std::uint32_t operand, const nvfp4::ConstMatrix& x, bool both, std::uint64_t draw) const {
        nvfp4::QuantizeDesc desc = nvfp4::recipe_quantize_desc(recipe_, operand);
        desc.seed = 20251;
        desc.offset = draw;
        if (both) return nvfp4::quantize_both(*library_, x, desc);
        return {nvfp4::quantize(*library_, x, desc), nvfp4::Quantized()};
    }

    void multiply(const nvfp4::Quantized& a, const nvfp4::Quantized& b, const nvfp4::Matrix& d) const {
        nvfp4::GemmDesc desc;
        desc.accumulate = recipe_.accumulate;
        nvfp4::gemm(*library_, a, b, d, desc);
    }

    nvfp4::Context* library_;
    nvfp4::Recipe recipe_;
    int in_, out_;
    Copies weight_, input_;
};

}  // namespace trainer
