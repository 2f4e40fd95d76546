// A small GPT with its own forward and backward pass. The two MLP products of each block go through libnvfp4
// (quantized_linear.hpp); everything else is float.
#pragma once
#include "floats.hpp"
#include "quantized_linear.hpp"

#include <memory>
#include <random>

namespace trainer {

struct Shape {
    int vocab = 128, d = 256, layers = 2, heads = 4, context = 128, hidden = 1024;
    int reach = 3;  // a position's embedding is the sum of those of its last `reach` bytes, one table a distance
};

// One flat array of f32 master weights (gradients and optimizer state have the same layout).
struct Layout {
    struct Block { std::size_t norm1, qkv, out, norm2, up, down; };
    std::size_t token = 0, position, final_norm, head, size;
    std::vector<Block> blocks;
    explicit Layout(const Shape& s) {
        const std::size_t d = s.d;
        std::size_t at = 0;
        auto take = [&at](std::size_t n) { std::size_t here = at; at += n; return here; };
        token = take(s.reach * s.vocab * d);
        position = take(s.context * d);
        for (int l = 0; l < s.layers; ++l)
            blocks.push_back({take(d), take(3 * d * d), take(d * d), take(d), take(s.hidden * d), take(d * s.hidden)});
        final_norm = take(d);
        head = take(s.vocab * d);
        size = at;
    }
};

class Gpt {
public:
    Gpt(const Shape& shape, Pool& pool, Place& place, const char* recipe, std::uint64_t seed)
        : shape_(shape), layout_(shape), pool_(pool), weights(layout_.size), gradients(layout_.size) {
        std::mt19937_64 random(seed);
        auto fill = [&](std::size_t at, std::size_t n, float deviation) {
            // Sum of four uniforms: near normal, and the same on every standard library.
            for (std::size_t i = 0; i < n; ++i) {
                float sum = 0;
                for (int j = 0; j < 4; ++j) sum += float(random() >> 40) * 0x1p-24f - 0.5f;
                weights[at + i] = sum * deviation * std::sqrt(3.0f);
            }
        };
        const std::size_t d = shape.d;
        const float in = 1.0f / std::sqrt(float(d)), residual = 1.0f / std::sqrt(2.0f * float(shape.layers));
        fill(layout_.token, shape.reach * shape.vocab * d, 0.1f);
        fill(layout_.position, shape.context * d, 0.02f);
        for (const auto& b : layout_.blocks) {
            std::fill_n(&weights[b.norm1], d, 1.0f);
            std::fill_n(&weights[b.norm2], d, 1.0f);
            fill(b.qkv, 3 * d * d, in);
            fill(b.out, d * d, in * residual);
            fill(b.up, shape.hidden * d, in);
            fill(b.down, d * shape.hidden, residual / std::sqrt(float(shape.hidden)));
            mlp_.emplace_back();
            mlp_.back().push_back(QuantizedLinear(place, recipe, shape.d, shape.hidden));
            mlp_.back().push_back(QuantizedLinear(place, recipe, shape.hidden, shape.d));
        }
        std::fill_n(&weights[layout_.final_norm], d, 1.0f);
        fill(layout_.head, shape.vocab * d, in);
    }

    // Mean loss in nats over batch sequences of `context` bytes; the target of input[i] is input[i + 1] of the text.
    // With `train`, gradients are left in `gradients`. `draw` numbers the step's random bits.
    double loss(const std::uint8_t* const* text, int batch, bool train, std::uint64_t draw) {
        const int t = shape_.context, d = shape_.d, n = batch * t, vocab = shape_.vocab;
        resize(batch);
        float* x = acts_[0].x.data();
        for (int r = 0; r < n; ++r) {
            float* out = x + std::size_t(r) * d;
            std::copy_n(w(layout_.position) + (r % t) * d, d, out);
            for (int back = 0; back <= std::min(r % t, shape_.reach - 1); ++back) {
                const float* e = embedding(weights, back, text[r / t][r % t - back]);
                for (int i = 0; i < d; ++i) out[i] += e[i];
            }
        }
        for (int l = 0; l < shape_.layers; ++l) forward(l, batch, train, draw);
        auto& top = acts_[shape_.layers];
        rmsnorm(pool_, n, d, top.x.data(), w(layout_.final_norm), top.normed1.data(), top.inverse1.data());
        matmul(pool_, n, vocab, d, {top.normed1.data(), d, 1}, {w(layout_.head), 1, d}, logits_.data(), vocab);

        std::vector<double> losses(n);
        pool_.parallel_for(n, [&](int r) {  // softmax cross entropy; logits become their gradient
            float* z = &logits_[std::size_t(r) * vocab];
            const int target = text[r / t][r % t + 1];
            float peak = z[0], sum = 0;
            for (int i = 1; i < vocab; ++i) peak = std::max(peak, z[i]);
            const float at_target = z[target] - peak;
            for (int i = 0; i < vocab; ++i) sum += z[i] = std::exp(z[i] - peak);
            losses[r] = std::log(double(sum)) - at_target;
            for (int i = 0; i < vocab; ++i) z[i] = (z[i] / sum - (i == target ? 1.0f : 0.0f)) / float(n);
        });
        double total = 0;
        for (double each : losses) total += each;
        if (train) backward(text, batch, draw);
        return total / n;
    }

    const Layout& layout() const { return layout_; }

private:
    struct Acts {
        std::vector<float> x, normed1, inverse1, qkv, prob, mixed, x2, normed2, inverse2, up, squared;
    };
    // The embedding of a byte that stands `back` positions before.
    float* embedding(std::vector<float>& of, int back, int byte) {
        return &of[layout_.token + (std::size_t(back) * shape_.vocab + byte) * shape_.d];
    }
    float* w(std::size_t at) { return &weights[at]; }
    float* g(std::size_t at) { return &gradients[at]; }

    void resize(int batch) {
        if (batch == batch_) return;
        batch_ = batch;
        const std::size_t n = std::size_t(batch) * shape_.context, d = shape_.d;
        acts_.assign(shape_.layers + 1, {});
        for (auto& a : acts_) {
            for (auto* v : {&a.x, &a.normed1, &a.mixed, &a.x2, &a.normed2}) v->resize(n * d);
            a.inverse1.resize(n);
            a.inverse2.resize(n);
            a.qkv.resize(n * 3 * d);
            a.prob.resize(std::size_t(batch) * shape_.heads * shape_.context * shape_.context);
            a.up.resize(n * shape_.hidden);
            a.squared.resize(n * shape_.hidden);
        }
        logits_.resize(n * shape_.vocab);
        dx_.resize(n * d);
        da_.resize(n * d);
        db_.resize(n * d);
        dqkv_.resize(n * 3 * d);
        dup_.resize(n * shape_.hidden);
    }

    void forward(int l, int batch, bool train, std::uint64_t draw) {
        const int t = shape_.context, d = shape_.d, n = batch * t, hidden = shape_.hidden;
        const auto& b = layout_.blocks[l];
        auto &a = acts_[l], &next = acts_[l + 1];
        rmsnorm(pool_, n, d, a.x.data(), w(b.norm1), a.normed1.data(), a.inverse1.data());
        matmul(pool_, n, 3 * d, d, {a.normed1.data(), d, 1}, {w(b.qkv), 1, d}, a.qkv.data(), 3 * d);
        attention(pool_, batch, t, d, shape_.heads, a.qkv.data(), a.prob.data(), a.mixed.data());
        a.x2 = a.x;
        matmul(pool_, n, d, d, {a.mixed.data(), d, 1}, {w(b.out), 1, d}, a.x2.data(), d, true);
        rmsnorm(pool_, n, d, a.x2.data(), w(b.norm2), a.normed2.data(), a.inverse2.data());
        mlp_[l][0].forward(w(b.up), a.normed2.data(), n, a.up.data(), train, draw + 4 * l);
        pool_.parallel_for(n, [&](int r) {
            for (std::size_t i = std::size_t(r) * hidden; i < std::size_t(r + 1) * hidden; ++i) {
                const float positive = std::max(a.up[i], 0.0f);
                a.squared[i] = positive * positive;
            }
        });
        mlp_[l][1].forward(w(b.down), a.squared.data(), n, next.x.data(), train, draw + 4 * l + 1);
        for (std::size_t i = 0; i < a.x2.size(); ++i) next.x[i] += a.x2[i];
    }

    void backward(const std::uint8_t* const* text, int batch, std::uint64_t draw) {
        const int t = shape_.context, d = shape_.d, n = batch * t, vocab = shape_.vocab;
        auto& top = acts_[shape_.layers];
        matmul(pool_, vocab, d, n, View{logits_.data(), vocab, 1}.transposed(), {top.normed1.data(), d, 1},
               g(layout_.head), d);
        matmul(pool_, n, d, vocab, {logits_.data(), vocab, 1}, {w(layout_.head), d, 1}, da_.data(), d);
        std::fill(dx_.begin(), dx_.end(), 0.0f);
        rmsnorm_backward(pool_, n, d, top.x.data(), w(layout_.final_norm), top.inverse1.data(), da_.data(), dx_.data(),
                         g(layout_.final_norm));
        for (int l = shape_.layers; l-- > 0;) backward(l, batch, draw);
        std::fill_n(g(layout_.token), std::size_t(shape_.reach) * vocab * d, 0.0f);
        std::fill_n(g(layout_.position), std::size_t(t) * d, 0.0f);
        for (int r = 0; r < n; ++r) {
            const float* dx = &dx_[std::size_t(r) * d];
            for (int i = 0; i < d; ++i) g(layout_.position)[(r % t) * d + i] += dx[i];
            for (int back = 0; back <= std::min(r % t, shape_.reach - 1); ++back) {
                float* e = embedding(gradients, back, text[r / t][r % t - back]);
                for (int i = 0; i < d; ++i) e[i] += dx[i];
            }
        }
    }

    // dx_ holds the gradient of the block's output and leaves with that of its input.
    void backward(int l, int batch, std::uint64_t draw) {
        const int t = shape_.context, d = shape_.d, n = batch * t, hidden = shape_.hidden;
        const auto& b = layout_.blocks[l];
        auto& a = acts_[l];
        mlp_[l][1].backward(dx_.data(), n, dup_.data(), g(b.down), draw + 4 * l + 3);
        pool_.parallel_for(n, [&](int r) {
            for (std::size_t i = std::size_t(r) * hidden; i < std::size_t(r + 1) * hidden; ++i)
                dup_[i] *= 2.0f * std::max(a.up[i], 0.0f);
        });
        mlp_[l][0].backward(dup_.data(), n, da_.data(), g(b.up), draw + 4 * l + 2);
        rmsnorm_backward(pool_, n, d, a.x2.data(), w(b.norm2), a.inverse2.data(), da_.data(), dx_.data(), g(b.norm2));
        matmul(pool_, d, d, n, View{dx_.data(), d, 1}.transposed(), {a.mixed.data(), d, 1}, g(b.out), d);
        matmul(pool_, n, d, d, {dx_.data(), d, 1}, {w(b.out), d, 1}, db_.data(), d);
        attention_backward(pool_, batch, t, d, shape_.heads, a.qkv.data(), a.prob.data(), db_.data(), dqkv_.data());
        matmul(pool_, 3 * d, d, n, View{dqkv_.data(), 3 * d, 1}.transposed(), {a.normed1.data(), d, 1}, g(b.qkv), d);
        matmul(pool_, n, d, 3 * d, {dqkv_.data(), 3 * d, 1}, {w(b.qkv), d, 1}, da_.data(), d);
        rmsnorm_backward(pool_, n, d, a.x.data(), w(b.norm1), a.inverse1.data(), da_.data(), dx_.data(), g(b.norm1));
    }

    Shape shape_;
    Layout layout_;
    Pool& pool_;
    std::vector<std::vector<QuantizedLinear>> mlp_;
    std::vector<Acts> acts_;
    std::vector<float> logits_, dx_, da_, db_, dqkv_, dup_;
    int batch_ = 0;

public:
    std::vector<float> weights, gradients;
};

// AdamW with decoupled weight decay, warm-up, cosine decay and clipping by the gradient's norm.
class AdamW {
public:
    explicit AdamW(std::size_t n) : m(n), v(n) {}
    void step(Pool& pool, std::vector<float>& weights, const std::vector<float>& gradients, int step, int steps,
              float peak) {
        double squares = 0;
        for (float each : gradients) squares += double(each) * each;
        const float clip = float(std::min(1.0, 1.0 / (std::sqrt(squares) + 1e-12)));
        const int warmup = std::max(1, std::min(50, steps / 10));
        const float progress = float(step) / float(std::max(1, steps));
        const float rate = peak * std::min(1.0f, float(step + 1) / float(warmup)) *
                           (0.05f + 0.95f * 0.5f * (1.0f + std::cos(3.14159265f * progress)));
        const float fix1 = 1.0f - float(std::pow(0.9, step + 1)), fix2 = 1.0f - float(std::pow(0.95, step + 1));
        constexpr std::size_t kChunk = 16384;
        pool.parallel_for(int((weights.size() + kChunk - 1) / kChunk), [&](int chunk) {
            const std::size_t lo = chunk * kChunk, hi = std::min(weights.size(), lo + kChunk);
            for (std::size_t i = lo; i < hi; ++i) {
                const float g = gradients[i] * clip;
                m[i] = 0.9f * m[i] + 0.1f * g;
                v[i] = 0.95f * v[i] + 0.05f * g * g;
                weights[i] -= rate * (m[i] / fix1 / (std::sqrt(v[i] / fix2) + 1e-8f) + 0.05f * weights[i]);
            }
        });
    }
    std::vector<float> m, v;
};

}  // namespace trainer
