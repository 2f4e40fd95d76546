// A stand-in for libcublasLt.so.13 on the emulated GPU: takes the calls that src/cuda/gemm/lt_library.rs makes, refuses any
// attribute, layout or pointer that the documented interface would refuse, and computes the product on the host. FP4 operands
// only where the device has FP4 units, as the real library does. cublasLtMatmul waits for its stream: a test tool.
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 7, EXECUTION = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14, R_4F = 33 };

typedef struct { int pointer_mode, trans_a, trans_b, mode_a, mode_b; const uint8_t *scale_a, *scale_b; } Desc;
typedef struct { int type; uint64_t rows, cols; int64_t ld; } Layout;
typedef struct { uint64_t workspace; uint32_t alignment[4]; } Preference;
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } Heuristic;
static const uint64_t kAlgorithm = 0x4E56465034ull;

static int refuse(const char *why) {
    fprintf(stderr, "cublasLt stand-in: %s\n", why);
    return INVALID;
}

// The driver that the process has.
static void *driver(const char *name) {
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : 0;
}
static int has_fp4(void) {
    int (*get)(int *, int, int) = (int (*)(int *, int, int))driver("cuDeviceGetAttribute");
    int major = 0;
    return get && get(&major, 75, 0) == 0 && major >= 10;
}
static int fetch(void *to, const void *from, size_t bytes) {
    int (*copy)(void *, uint64_t, size_t) = (int (*)(void *, uint64_t, size_t))driver("cuMemcpyDtoH_v2");
    return copy(to, (uint64_t)(uintptr_t)from, bytes);
}
static int put(void *to, const void *from, size_t bytes) {
    int (*copy)(uint64_t, const void *, size_t) = (int (*)(uint64_t, const void *, size_t))driver("cuMemcpyHtoD_v2");
    return copy((uint64_t)(uintptr_t)to, from, bytes);
}

size_t cublasLtGetVersion(void) { return 130000; }
int cublasLtCreate(void **handle) { *handle = malloc(1); return OK; }
int cublasLtDestroy(void *handle) { free(handle); return OK; }

int cublasLtMatmulDescCreate(Desc **desc, int compute, int scale) {
    if (compute != 68 || scale != R_32F) return refuse("compute type or scale type");
    *desc = calloc(1, sizeof(Desc));
    return OK;
}
int cublasLtMatmulDescDestroy(Desc *desc) { free(desc); return OK; }
int cublasLtMatmulDescSetAttribute(Desc *d, int attribute, const void *value, size_t bytes) {
    int32_t i = 0;
    const uint8_t *p = 0;
    if (attribute == 17 || attribute == 18) {
        if (bytes != sizeof p) return refuse("size of a pointer attribute");
        memcpy(&p, value, bytes);
    } else {
        if (bytes != sizeof i) return refuse("size of an integer attribute");
        memcpy(&i, value, bytes);
    }
    switch (attribute) {
        case 2: d->pointer_mode = i; return i == 0 || i == 1 ? OK : refuse("pointer mode");
        case 3: d->trans_a = i; return i == 0 || i == 1 ? OK : refuse("transa");
        case 4: d->trans_b = i; return i == 0 || i == 1 ? OK : refuse("transb");
        case 17: d->scale_a = p; return OK;
        case 18: d->scale_b = p; return OK;
        case 31: d->mode_a = i; return i >= 0 && i <= 6 ? OK : refuse("scale mode of A");
        case 32: d->mode_b = i; return i >= 0 && i <= 6 ? OK : refuse("scale mode of B");
    }
    return refuse("an attribute that nobody knows");
}

int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    if (ld < 0 || (uint64_t)ld < rows) return refuse("leading dimension below the rows of a column-major matrix");
    *layout = malloc(sizeof(Layout));
    **layout = (Layout){type, rows, cols, ld};
    return OK;
}
int cublasLtMatrixLayoutDestroy(Layout *layout) { free(layout); return OK; }

int cublasLtMatmulPreferenceCreate(Preference **p) {
    *p = calloc(1, sizeof(Preference));
    for (int i = 0; i < 4; i++) (*p)->alignment[i] = 256;
    return OK;
}
int cublasLtMatmulPreferenceDestroy(Preference *p) { free(p); return OK; }
int cublasLtMatmulPreferenceSetAttribute(Preference *p, int attribute, const void *value, size_t bytes) {
    if (attribute == 1 && bytes == 8) return memcpy(&p->workspace, value, 8), OK;
    if (attribute >= 5 && attribute <= 8 && bytes == 4) return memcpy(&p->alignment[attribute - 5], value, 4), OK;
    return refuse("a preference that nobody knows");
}

static int is_fp4(const Layout *x) { return x->type == R_4F; }

// What the library demands of a product of column-major matrices: A [k, m] transposed, B [k, n], C and D [m, n].
static int check(const Desc *d, const Layout *a, const Layout *b, const Layout *c, const Layout *out) {
    if (d->trans_a != 1 || d->trans_b != 0) return refuse("not transposed A, plain B");
    if (a->rows != b->rows || a->cols != out->rows || b->cols != out->cols) return refuse("shapes do not fit");
    if (a->type != b->type || (a->type != R_16BF && a->type != R_4F)) return refuse("types of A and B");
    if (c->type != out->type || c->rows != out->rows || c->cols != out->cols) return refuse("C and D differ");
    if (out->type != R_32F && out->type != R_16F && out->type != R_16BF) return refuse("type of D");
    if (is_fp4(a)) {
        if (d->mode_a != d->mode_b || (d->mode_a != 1 && d->mode_a != 2)) return refuse("scale modes of FP4 operands");
        if (!d->scale_a || !d->scale_b) return refuse("FP4 operands without scale pointers");
        if (((uintptr_t)d->scale_a | (uintptr_t)d->scale_b) & 15) return refuse("scale pointers are not 16-byte aligned");
        if (a->rows % 32 || a->ld % 32 || b->ld % 32) return refuse("K or a leading dimension is not a multiple of 32");
    } else if (d->mode_a || d->mode_b) return refuse("scale modes of BF16 operands");
    int bytes = out->type == R_32F ? 4 : 2;
    if (out->ld * bytes % 16 || c->ld * bytes % 16) return refuse("leading dimension of C or D is not a multiple of 16 bytes");
    return OK;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, const Desc *d, const Layout *a, const Layout *b, const Layout *c, const Layout *out,
                                   const Preference *p, int wanted, Heuristic *result, int *found) {
    (void)handle;
    *found = 0;
    if (wanted < 1) return refuse("no algorithm is asked for");
    for (int i = 0; i < 4; i++)
        if (p->alignment[i] < 16 || p->alignment[i] & (p->alignment[i] - 1)) return refuse("an alignment below 16");
    int status = check(d, a, b, c, out);
    if (status) return status;
    if (is_fp4(a) && !has_fp4()) return NOT_SUPPORTED;
    memset(result, 0, sizeof *result);
    result->algorithm[0] = kAlgorithm;
    // Kept for the check at the call: how aligned its pointers are.
    for (int i = 0; i < 4; i++) result->algorithm[1 + i] = p->alignment[i];
    *found = 1;
    return OK;
}

static float of_bits(uint32_t bits) { float f; memcpy(&f, &bits, 4); return f; }
static float half_value(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    float v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(1024 + m, e - 25) : ldexpf(m, -24);
    return h >> 15 ? -v : v;
}
static float e4m3_value(uint8_t s) {
    s &= 127;
    if (s == 127) return NAN;
    return s >> 3 ? ldexpf(8 + (s & 7), (s >> 3) - 10) : ldexpf(s & 7, -9);
}

// Element k of column j of an operand, whose memory is in `codes` and `scales`.
static float element(const Layout *x, int mode, const uint8_t *codes, const uint8_t *scales, uint64_t j, uint64_t k) {
    if (!is_fp4(x)) {
        uint16_t v;
        memcpy(&v, codes + 2 * (j * x->ld + k), 2);
        return of_bits((uint32_t)v << 16);
    }
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    uint8_t code = codes[(j * x->ld + k) / 2] >> (k & 1 ? 4 : 0) & 15;
    uint64_t block = mode == 1 ? 16 : 32, n = k / block, blocks4 = (x->rows / block + (x->rows % block != 0) + 3) / 4 * 4;
    uint8_t s = scales[j / 128 * 128 * blocks4 + n / 4 * 512 + j % 32 * 16 + j % 128 / 32 * 4 + n % 4];
    float scale = mode == 1 ? e4m3_value(s) : s == 255 ? NAN : ldexpf(1, (int)s - 127);
    return (code & 8 ? -values[code & 7] : values[code & 7]) * scale;
}

static float *decoded(const Layout *x, int mode, const uint8_t *at, const uint8_t *scales_at) {
    size_t bytes = x->cols ? (is_fp4(x) ? ((x->cols - 1) * x->ld + x->rows) / 2 : 2 * ((x->cols - 1) * x->ld + x->rows)) : 0;
    uint64_t block = mode == 1 ? 16 : 32;
    size_t scale_bytes = is_fp4(x) ? (x->cols + 127) / 128 * 128 * (((x->rows + block - 1) / block + 3) / 4 * 4) : 0;
    uint8_t *codes = malloc(bytes + 1), *scales = malloc(scale_bytes + 1);
    float *out = malloc(sizeof(float) * (x->rows * x->cols + 1));
    if (fetch(codes, at, bytes) || (scale_bytes && fetch(scales, scales_at, scale_bytes))) return 0;
    for (uint64_t j = 0; j < x->cols; j++)
        for (uint64_t k = 0; k < x->rows; k++) out[j * x->rows + k] = element(x, mode, codes, scales, j, k);
    free(codes), free(scales);
    return out;
}

static float load(int type, const uint8_t *p, size_t i) {
    uint32_t w = 0;
    if (type == R_32F) return memcpy(&w, p + 4 * i, 4), of_bits(w);
    memcpy(&w, p + 2 * i, 2);
    return type == R_16F ? half_value((uint16_t)w) : of_bits(w << 16);
}
static void store(int type, uint8_t *p, size_t i, float v) {
    uint32_t w;
    memcpy(&w, &v, 4);
    if (type == R_32F) memcpy(p + 4 * i, &w, 4);
    else if (type == R_16BF) {
        uint16_t h = isnan(v) ? 0x7FC0 : (uint16_t)((w + 0x7FFF + (w >> 16 & 1)) >> 16);
        memcpy(p + 2 * i, &h, 2);
    } else {
        _Float16 h = (_Float16)v;
        memcpy(p + 2 * i, &h, 2);
    }
}

int cublasLtMatmul(void *handle, const Desc *d, const float *alpha, const uint8_t *a, const Layout *la, const uint8_t *b, const Layout *lb,
                   const float *beta, const uint8_t *c, const Layout *lc, uint8_t *out, const Layout *ld, const uint64_t *algorithm,
                   uint8_t *workspace, size_t workspace_bytes, void *stream) {
    (void)handle;
    int status = check(d, la, lb, lc, ld);
    if (status) return status;
    if (algorithm[0] != kAlgorithm) return refuse("an algorithm that the heuristic did not give");
    const void *pointers[4] = {a, b, c, out};
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)pointers[i] % algorithm[1 + i]) return refuse("a pointer is less aligned than the algorithm was asked for");
    if ((uintptr_t)workspace % 256 || workspace_bytes < 1) return refuse("workspace");
    if (d->pointer_mode != 1) return refuse("alpha and beta are in device memory here");
    int (*wait)(void *) = (int (*)(void *))driver("cuStreamSynchronize");
    float scalars[2];
    if (wait(stream) || fetch(&scalars[0], alpha, 4) || fetch(&scalars[1], beta, 4)) return EXECUTION;
    float *x = decoded(la, d->mode_a, a, d->scale_a), *y = decoded(lb, d->mode_b, b, d->scale_b);
    size_t size = ld->type == R_32F ? 4 : 2;
    size_t bytes = size * ((ld->cols - 1) * ld->ld + ld->rows), c_bytes = size * ((lc->cols - 1) * lc->ld + lc->rows);
    uint8_t *to = malloc(bytes), *from = malloc(c_bytes);
    if (!x || !y || fetch(to, out, bytes) || (scalars[1] != 0 && fetch(from, c, c_bytes))) return EXECUTION;
    for (uint64_t j = 0; j < ld->cols; j++)
        for (uint64_t i = 0; i < ld->rows; i++) {
            double sum = 0;
            for (uint64_t k = 0; k < la->rows; k++) sum += (double)x[i * la->rows + k] * y[j * lb->rows + k];
            float v = scalars[0] * (float)sum;
            if (scalars[1] != 0) v += scalars[1] * load(lc->type, from, j * lc->ld + i);
            store(ld->type, to, j * ld->ld + i, v);
        }
    status = put(out, to, bytes) ? EXECUTION : OK;
    free(x), free(y), free(to), free(from);
    return status;
}
