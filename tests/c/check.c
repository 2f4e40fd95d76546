#include "check.h"

#include <stdarg.h>

int checks_passed, checks_failed;
struct outputs out;
nvfp4_quantized row_view, column_view;
static nvfp4_quantized row_before, column_before;
static int poison;

void check_that(int condition, const char *file, int line, const char *what, const char *format, ...) {
    va_list args;
    if (condition) {
        checks_passed++;
        return;
    }
    if (checks_failed++ > 60) return; /* enough to read */
    printf("%s:%d: FAILED %s: ", file, line, what);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

void outputs_poison(int byte) {
    poison = byte;
    memset(&out, byte, sizeof out);
    row_before = row_view;
    column_before = column_view;
}

void outputs_untouched(nvfp4_status got, nvfp4_status expected, const char *words, const char *file, int line,
                       const char *call) {
    const unsigned char *bytes = (const unsigned char *)&out;
    const char *sentence = got == NVFP4_OK ? "" : nvfp4_last_error();
    size_t i, written = 0;
    check_that(got == expected, file, line, call, "%s instead of %s: %s", nvfp4_status_name(got),
               nvfp4_status_name(expected), sentence);
    if (got != expected) return;
    check_that(strstr(sentence, words) != NULL, file, line, call, "\"%s\" is not in the sentence \"%s\"", words, sentence);
    for (i = 0; i < sizeof out; i++) written += bytes[i] != poison;
    check_that(written == 0, file, line, call, "the failed call wrote %lu output bytes", (unsigned long)written);
    check_that(memcmp(&row_before, &row_view, sizeof row_view) == 0 &&
                   memcmp(&column_before, &column_view, sizeof column_view) == 0,
               file, line, call, "the failed call changed a view");
}

void views_reset(void) {
    nvfp4_quantized *views[2];
    int i;
    views[0] = &row_view;
    views[1] = &column_view;
    for (i = 0; i < 2; i++) {
        memset(views[i], 0, sizeof *views[i]);
        views[i]->struct_size = sizeof *views[i];
        views[i]->codes = out.codes[i];
        views[i]->codes_bytes = sizeof out.codes[i];
        views[i]->scales = out.scales[i];
        views[i]->scales_bytes = sizeof out.scales[i];
        views[i]->amax = out.amax[i];
        views[i]->amax_count = sizeof out.amax[i] / sizeof out.amax[i][0];
    }
}

nvfp4_quantize_desc quantize_desc(void) {
    nvfp4_quantize_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.rowwise.struct_size = sizeof desc.rowwise;
    desc.columnwise.struct_size = sizeof desc.columnwise;
    return desc;
}

nvfp4_matrix matrix_of(void *data, uint32_t dtype, int64_t rows, int64_t cols) {
    nvfp4_matrix matrix;
    memset(&matrix, 0, sizeof matrix);
    matrix.struct_size = sizeof matrix;
    matrix.data = data;
    matrix.dtype = dtype;
    matrix.rows = rows;
    matrix.cols = cols;
    return matrix;
}

void fill_values(float *values, size_t count, uint32_t seed) {
    size_t i;
    for (i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) * (8.0f / 16777216.0f) - 4.0f;
        if (values[i] == 0.0f) values[i] = 1.0f;
    }
}
