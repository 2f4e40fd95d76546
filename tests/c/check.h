/* The harness of the C tests: counts checks, poisons outputs, tells what differed. No dependency. */
#ifndef CHECK_H
#define CHECK_H

#include <nvfp4.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int checks_passed, checks_failed;

#define CHECK(condition, ...) check_that((condition) != 0, __FILE__, __LINE__, #condition, __VA_ARGS__)

/* The call returns NVFP4_OK. */
#define WORKS(call)                                                                              \
    do {                                                                                         \
        const nvfp4_status works_status = (call);                                                \
        CHECK(works_status == NVFP4_OK, "%s: %s", nvfp4_status_name(works_status),               \
              works_status == NVFP4_OK ? "" : nvfp4_last_error());                               \
    } while (0)

/* The call fails with this status and a sentence that holds `words` (the offending value), and leaves every output
 * as it was, whatever it held: `out` is filled with 0xFF and then with 0x00, the views are compared too. */
#define FAILS(expected, words, call)                                                             \
    do {                                                                                         \
        int fails_round;                                                                         \
        for (fails_round = 0; fails_round < 2; fails_round++) {                                  \
            nvfp4_status fails_status;                                                           \
            outputs_poison(fails_round == 0 ? 0xFF : 0x00);                                      \
            fails_status = (call);                                                               \
            outputs_untouched(fails_status, expected, words, __FILE__, __LINE__, #call);         \
        }                                                                                        \
    } while (0)

/* Every output of a test lives here, so that one comparison covers all of them. */
struct outputs {
    uint8_t codes[2][4096];
    uint8_t scales[2][4096];
    float amax[2][64];
    float matrix[64 * 64];
    uint8_t bytes[8192];
    size_t size;
    nvfp4_sizes sizes;
    nvfp4_stats stats;
    nvfp4_context *context;
    uint32_t count;
    char text[4096];
};
extern struct outputs out;
/* Views of out.codes, out.scales and out.amax: what a caller hands to quantize. `views_reset` makes them afresh. */
extern nvfp4_quantized row_view, column_view;

void check_that(int condition, const char *file, int line, const char *what, const char *format, ...);
void outputs_poison(int byte);
void outputs_untouched(nvfp4_status got, nvfp4_status expected, const char *words, const char *file, int line,
                       const char *call);
void views_reset(void);

/* Descriptors at their defaults, struct_size set. */
nvfp4_quantize_desc quantize_desc(void);
nvfp4_matrix matrix_of(void *data, uint32_t dtype, int64_t rows, int64_t cols);
/* Deterministic values in -4..4, none zero. */
void fill_values(float *values, size_t count, uint32_t seed);

void test_library(void);
void test_context(nvfp4_context *ctx);
void test_quantize(nvfp4_context *ctx);
void test_quantize_options(nvfp4_context *ctx);
void test_decode(nvfp4_context *ctx);
void test_layout(nvfp4_context *ctx);
void test_gemm(nvfp4_context *ctx);
void test_linear(nvfp4_context *ctx);
void test_grouped(nvfp4_context *ctx);

#endif
