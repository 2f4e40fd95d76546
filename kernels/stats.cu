// Statistics of a quantizer (nvfp4_stats): a second look at its input and output. The sums are f64 and ordered (each
// row in order, then the rows in order), so that they are the same on every backend: a thread a row, then one thread.
// Not a fast path.
#include "hadamard.cuh"
#include "layout.cuh"
#include "load.cuh"
#include "scale.cuh"

struct RowSums {
    unsigned long long nonfinite, underflowed;
    double squares, errors;
};
struct Stats {
    unsigned long long nonfinite, saturated, underflowed;  // quantize_general has added up `saturated`
    double squares, errors;
};
struct StatsParams {
    QuantizeParams quantize;  // `row` is the copy; with DTYPE_QUANTIZED the source is `col`
    RowSums* rows;
    Stats* out;
};
static_assert(sizeof(StatsParams) == 384, "src/cuda/params.rs");

constexpr int THREADS = 128;

__device__ float source_element(const QuantizeParams& p, int64_t r, int64_t c) {
    if (p.x.dtype != DTYPE_QUANTIZED) return load_element(p.x, r * p.x.stride + c);
    return quantized_element(p.col, r, c);
}

extern "C" __global__ void __launch_bounds__(THREADS) stats_rows(const __grid_constant__ StatsParams s) {
    const QuantizeParams& p = s.quantize;
    const Quantized& q = p.row;
    const float largest = largest_finite(p.x.dtype);
    const int span = q.hadamard ? q.hadamard : 16;
    for (int64_t row = blockIdx.x * (int64_t)THREADS + threadIdx.x; row < q.rows; row += gridDim.x * (int64_t)THREADS) {
        RowSums sum = {0, 0, 0.0, 0.0};
        for (int64_t first = 0; first < q.cols; first += span) {
            float t[128];
            for (int i = 0; i < span; i++) {
                const int64_t col = first + i;
                float v = 0.0f;
                if (col < q.source_cols) {
                    v = q.transposed ? source_element(p, col, row) : source_element(p, row, col);
                    sum.nonfinite += !is_finite(v);
                }
                if (p.saturate) v = saturate_nonfinite(v, largest);
                t[i] = q.hadamard && (q.sign_mask[i / 32] >> (i % 32)) & 1 ? -v : v;
            }
            if (q.hadamard) {
                for (int stride = 1; stride < span; stride *= 2)
                    for (int i = 0; i < span; i++)
                        if (!(i & stride)) {
                            const float a = t[i], b = t[i + stride];
                            t[i] = __fadd_rn(a, b);
                            t[i + stride] = __fsub_rn(a, b);
                        }
                for (int i = 0; i < span; i++) {
                    t[i] = hadamard_scale(t[i], hadamard_factor(span));
                    if (!(q.flags & FLAG_KEEP_F32)) t[i] = as_float(bf16x2(0.0f, t[i]) & 0xFFFF0000u);
                    if (p.saturate) t[i] = saturate_nonfinite(t[i], largest);
                }
            }
            for (int i = 0; i < span && first + i < q.cols; i++) {
                const float x = t[i], v = quantized_element(q, row, first + i);
                if (!is_finite(x) || !is_finite(v)) continue;
                sum.underflowed += x != 0.0f && v == 0.0f;
                const double dx = x, dv = v;
                sum.squares = __dadd_rn(sum.squares, __dmul_rn(dx, dx));
                sum.errors = __dadd_rn(sum.errors, __dmul_rn(__dsub_rn(dv, dx), __dsub_rn(dv, dx)));
            }
        }
        s.rows[row] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(32) stats_total(const __grid_constant__ StatsParams s) {
    if (threadIdx.x != 0) return;
    Stats total = {0, s.out->saturated, 0, 0.0, 0.0};
    for (int64_t row = 0; row < s.quantize.row.rows; row++) {
        total.nonfinite += s.rows[row].nonfinite;
        total.underflowed += s.rows[row].underflowed;
        total.squares = __dadd_rn(total.squares, s.rows[row].squares);
        total.errors = __dadd_rn(total.errors, s.rows[row].errors);
    }
    *s.out = total;
}
