// Plain float building blocks of the trainer: threads, matrix product, norm, attention.
// Every sum has one owner and one order, so a run gives the same bits at any thread count.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace trainer {

// Calls body(i) for i in [0, n) on all cores; returns when all are done.
class Pool {
public:
    explicit Pool(unsigned threads) {
        for (unsigned t = 1; t < threads; ++t) workers_.emplace_back([this] { work(); });
    }
    ~Pool() {
        { std::lock_guard<std::mutex> lock(mutex_); stop_ = true; ++round_; }
        start_.notify_all();
        for (auto& worker : workers_) worker.join();
    }
    void parallel_for(int n, const std::function<void(int)>& body) {
        if (workers_.empty() || n < 2) { for (int i = 0; i < n; ++i) body(i); return; }
        {
            std::lock_guard<std::mutex> lock(mutex_);
            body_ = &body; count_ = n; next_ = 0; busy_ = workers_.size(); ++round_;
        }
        start_.notify_all();
        drain(body, n);
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
    }
    unsigned threads() const { return unsigned(workers_.size()) + 1; }

private:
    void drain(const std::function<void(int)>& body, int n) {
        for (int i; (i = next_.fetch_add(1)) < n;) body(i);
    }
    void work() {
        std::uint64_t seen = 0;
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            start_.wait(lock, [&] { return round_ != seen; });
            seen = round_;
            if (stop_) return;
            const auto* body = body_;
            const int n = count_;
            lock.unlock();
            drain(*body, n);
            lock.lock();
            if (--busy_ == 0) done_.notify_one();
        }
    }
    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable start_, done_;
    const std::function<void(int)>* body_ = nullptr;
    int count_ = 0;
    std::atomic<int> next_{0};
    std::size_t busy_ = 0;
    std::uint64_t round_ = 0;
    bool stop_ = false;
};

// A matrix view: element (i, j) at data[i * row + j * col], so that a transpose is a swap of strides.
struct View {
    const float* data;
    int row, col;
    float at(int i, int j) const { return data[std::size_t(i) * row + std::size_t(j) * col]; }
    View transposed() const { return {data, col, row}; }
};

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 8;
#else
constexpr int kLanes = 8, kRows = 6;
#endif
constexpr int kCols = 2 * kLanes;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

// C[m, n] (+)= A[m, k] B[k, n], C row-major. Panels of A and B are packed; a tile of C stays in registers.
inline void matmul(Pool& pool, int m, int n, int k, View a, View b, float* c, int ldc, bool add = false) {
    const int panels_n = (n + kCols - 1) / kCols, panels_m = (m + kRows - 1) / kRows;
    std::vector<float> pb(std::size_t(panels_n) * kCols * k);
    pool.parallel_for(panels_n, [&](int p) {
        float* out = &pb[std::size_t(p) * kCols * k];
        for (int x = 0; x < k; ++x)
            for (int j = 0; j < kCols; ++j) *out++ = p * kCols + j < n ? b.at(x, p * kCols + j) : 0.0f;
    });
    pool.parallel_for(panels_m, [&](int q) {
        const int i0 = q * kRows, rows = std::min(kRows, m - i0);
        thread_local std::vector<float> pa;
        pa.resize(std::size_t(kRows) * k);
        for (int x = 0; x < k; ++x)
            for (int i = 0; i < kRows; ++i) pa[std::size_t(x) * kRows + i] = i < rows ? a.at(i0 + i, x) : 0.0f;
        for (int p = 0; p < panels_n; ++p) {
            const float *bp = &pb[std::size_t(p) * kCols * k], *ap = pa.data();
            Lanes acc[kRows][2] = {};
            for (int x = 0; x < k; ++x, ap += kRows, bp += kCols) {
                Lanes b0, b1;
                std::memcpy(&b0, bp, sizeof b0);
                std::memcpy(&b1, bp + kLanes, sizeof b1);
                for (int i = 0; i < kRows; ++i) { acc[i][0] += ap[i] * b0; acc[i][1] += ap[i] * b1; }
            }
            const int cols = std::min(kCols, n - p * kCols);
            for (int i = 0; i < rows; ++i) {
                float* row = c + std::size_t(i0 + i) * ldc + p * kCols;
                for (int j = 0; j < cols; ++j) {
                    const float value = acc[i][j / kLanes][j % kLanes];
                    row[j] = add ? row[j] + value : value;
                }
            }
        }
    });
}

// y = x / rms(x) * gain, row by row; keeps 1 / rms for the way back.
inline void rmsnorm(Pool& pool, int rows, int d, const float* x, const float* gain, float* y, float* inverse) {
    pool.parallel_for(rows, [=](int r) {
        const float* in = x + std::size_t(r) * d;
        float sum = 0;
        for (int i = 0; i < d; ++i) sum += in[i] * in[i];
        const float s = inverse[r] = 1.0f / std::sqrt(sum / float(d) + 1e-6f);
        for (int i = 0; i < d; ++i) y[std::size_t(r) * d + i] = in[i] * s * gain[i];
    });
}

// Adds the norm's input gradient to dx and overwrites dgain.
inline void rmsnorm_backward(Pool& pool, int rows, int d, const float* x, const float* gain, const float* inverse,
                             const float* dy, float* dx, float* dgain) {
    pool.parallel_for(rows, [=](int r) {
        const float *in = x + std::size_t(r) * d, *g = dy + std::size_t(r) * d;
        const float s = inverse[r];
        float dot = 0;
        for (int i = 0; i < d; ++i) dot += g[i] * gain[i] * in[i];
        const float back = dot * s * s / float(d);
        for (int i = 0; i < d; ++i) dx[std::size_t(r) * d + i] += s * (g[i] * gain[i] - in[i] * back);
    });
    constexpr int kStrip = 16;
    pool.parallel_for((d + kStrip - 1) / kStrip, [=](int strip) {
        float sum[kStrip] = {};
        const int lo = strip * kStrip, n = std::min(kStrip, d - lo);
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < n; ++i)
                sum[i] += dy[std::size_t(r) * d + lo + i] * x[std::size_t(r) * d + lo + i] * inverse[r];
        for (int i = 0; i < n; ++i) dgain[lo + i] = sum[i];
    });
}

// Causal attention of `batch` sequences of length t; qkv is [batch * t, 3 * d], heads side by side.
// prob keeps the softmax, [batch, heads, t, t].
inline void attention(Pool& pool, int batch, int t, int d, int heads, const float* qkv, float* prob, float* out) {
    const int hd = d / heads;
    const float scale = 1.0f / std::sqrt(float(hd));
    pool.parallel_for(batch * heads, [=](int job) {
        const int s = job / heads, h = job % heads;
        const float* base = qkv + std::size_t(s) * t * 3 * d + h * hd;
        float* p = prob + std::size_t(job) * t * t;
        std::vector<float> kt(std::size_t(hd) * t);  // keys transposed, so that scores run along lanes
        for (int j = 0; j < t; ++j)
            for (int x = 0; x < hd; ++x) kt[std::size_t(x) * t + j] = base[std::size_t(j) * 3 * d + d + x];
        for (int i = 0; i < t; ++i) {
            float* row = p + std::size_t(i) * t;
            const float* q = base + std::size_t(i) * 3 * d;
            std::fill(row, row + t, 0.0f);
            for (int x = 0; x < hd; ++x)
                for (int j = 0; j <= i; ++j) row[j] += q[x] * kt[std::size_t(x) * t + j];
            float top = row[0], sum = 0;
            for (int j = 1; j <= i; ++j) top = std::max(top, row[j]);
            for (int j = 0; j <= i; ++j) sum += row[j] = std::exp((row[j] - top) * scale);
            float* o = out + (std::size_t(s) * t + i) * d + h * hd;
            std::fill(o, o + hd, 0.0f);
            for (int j = 0; j <= i; ++j) {
                row[j] /= sum;
                const float* v = base + std::size_t(j) * 3 * d + 2 * d;
                for (int x = 0; x < hd; ++x) o[x] += row[j] * v[x];
            }
        }
    });
}

inline void attention_backward(Pool& pool, int batch, int t, int d, int heads, const float* qkv, const float* prob,
                               const float* dout, float* dqkv) {
    const int hd = d / heads;
    const float scale = 1.0f / std::sqrt(float(hd));
    pool.parallel_for(batch * heads, [=](int job) {
        const int s = job / heads, h = job % heads;
        const float* base = qkv + std::size_t(s) * t * 3 * d + h * hd;
        float* grad = dqkv + std::size_t(s) * t * 3 * d + h * hd;
        const float* p = prob + std::size_t(job) * t * t;
        std::vector<float> vt(std::size_t(hd) * t), dp(t);
        for (int j = 0; j < t; ++j) {
            for (int x = 0; x < hd; ++x) vt[std::size_t(x) * t + j] = base[std::size_t(j) * 3 * d + 2 * d + x];
            for (int part = 0; part < 3; ++part)
                std::fill_n(grad + std::size_t(j) * 3 * d + part * d, hd, 0.0f);
        }
        for (int i = 0; i < t; ++i) {
            const float *row = p + std::size_t(i) * t, *g = dout + (std::size_t(s) * t + i) * d + h * hd;
            std::fill(dp.begin(), dp.end(), 0.0f);
            for (int x = 0; x < hd; ++x)
                for (int j = 0; j <= i; ++j) dp[j] += g[x] * vt[std::size_t(x) * t + j];
            float dot = 0;
            for (int j = 0; j <= i; ++j) dot += dp[j] * row[j];
            const float* q = base + std::size_t(i) * 3 * d;
            float* dq = grad + std::size_t(i) * 3 * d;
            for (int j = 0; j <= i; ++j) {
                const float ds = row[j] * (dp[j] - dot) * scale;
                const float* key = base + std::size_t(j) * 3 * d + d;
                float *dk = grad + std::size_t(j) * 3 * d + d, *dv = grad + std::size_t(j) * 3 * d + 2 * d;
                for (int x = 0; x < hd; ++x) {
                    dq[x] += ds * key[x];
                    dk[x] += ds * q[x];
                    dv[x] += row[j] * g[x];
                }
            }
        }
    });
}

}  // namespace trainer
