/* Many threads on one context, and on one each: every thread gets the bytes of a lone caller, and its own errors. */
#include <nvfp4.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROWS = 64, COLS = 80 };

static nvfp4_context *shared_context;
static float x[ROWS * COLS];
static uint8_t expected_codes[ROWS * COLS / 2], expected_scales[ROWS * COLS / 16];
static float expected_product[ROWS * ROWS];
static int rounds = 50;

struct result {
    uint8_t codes[ROWS * COLS / 2], scales[ROWS * COLS / 16];
    float product[ROWS * ROWS];
};

static int run(nvfp4_context *ctx, struct result *r) {
    nvfp4_matrix m = {0}, d = {0};
    nvfp4_quantize_desc desc = {0};
    nvfp4_gemm_desc gemm = {0};
    nvfp4_quantized q = {0};
    nvfp4_sizes sizes;
    size_t bytes = 0;
    void *workspace;
    float amax;
    int failed;
    m.struct_size = d.struct_size = sizeof m;
    m.data = x;
    m.rows = ROWS;
    m.cols = COLS;
    d.data = r->product;
    d.rows = d.cols = ROWS;
    desc.struct_size = sizeof desc;
    desc.rowwise.struct_size = desc.columnwise.struct_size = sizeof desc.rowwise;
    desc.rowwise.rounding = NVFP4_ROUND_STOCHASTIC;
    desc.seed = 11;
    gemm.struct_size = sizeof gemm;
    q.struct_size = sizeof q;
    q.codes = r->codes;
    q.codes_bytes = sizeof r->codes;
    q.scales = r->scales;
    q.scales_bytes = sizeof r->scales;
    q.amax = &amax;
    q.amax_count = 1;
    if (nvfp4_quantize_sizes(ctx, &desc, ROWS, COLS, NVFP4_F32, 1, &sizes) != NVFP4_OK) return 1;
    workspace = malloc(sizes.workspace_bytes + 64);
    desc.workspace = workspace;
    desc.workspace_bytes = sizes.workspace_bytes + 64;
    failed = nvfp4_quantize(ctx, &desc, &m, &q, NULL, NULL) != NVFP4_OK;
    free(workspace);
    if (failed || nvfp4_gemm_workspace(ctx, &gemm, &q, &q, &d, &bytes) != NVFP4_OK) return 1;
    gemm.workspace = workspace = malloc(bytes + 64);
    gemm.workspace_bytes = bytes + 64;
    failed = nvfp4_gemm(ctx, &gemm, &q, &q, NULL, &d, NULL) != NVFP4_OK;
    free(workspace);
    return failed;
}

/* For checking the checkers: a race, and a write past the end of a buffer. */
static int raced;
static void *race(void *argument) {
    int i;
    for (i = 0; i < 1000; i++) raced += *(const int *)argument;
    return NULL;
}
static int misbehave(const char *how) {
    pthread_t threads[2];
    nvfp4_matrix in = {0}, to;
    int i, one = 1;
    if (strcmp(how, "race") == 0) {
        for (i = 0; i < 2; i++)
            if (pthread_create(&threads[i], NULL, race, &one) != 0) return 0;
        for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        return 0;
    }
    in.struct_size = sizeof in;
    in.data = x;
    in.rows = 1;
    in.cols = COLS;
    to = in;
    to.data = malloc((COLS - 4) * sizeof(float)); /* the library writes beyond it, as it can't know */
    if (nvfp4_context_create(NULL, &shared_context) == NVFP4_OK) nvfp4_hadamard(shared_context, NULL, &in, &to, NULL);
    free(to.data);
    return 0;
}

static void *work(void *argument) {
    const int number = *(const int *)argument;
    struct result *mine = malloc(sizeof *mine);
    nvfp4_context *own = NULL;
    char word[16];
    long wrong = 0;
    int round;
    snprintf(word, sizeof word, "-%d", 100 + number);
    if (nvfp4_context_create(NULL, &own) != NVFP4_OK) wrong++;
    for (round = 0; round < rounds; round++) {
        nvfp4_sizes sizes;
        wrong += run(round % 2 == 0 ? shared_context : own, mine);
        wrong += memcmp(mine->codes, expected_codes, sizeof expected_codes) != 0;
        wrong += memcmp(mine->scales, expected_scales, sizeof expected_scales) != 0;
        wrong += memcmp(mine->product, expected_product, sizeof expected_product) != 0;
        /* Another thread's failure must not show here. */
        wrong += nvfp4_quantize_sizes(shared_context, NULL, -100 - number, 1, NVFP4_F32, 1, &sizes) != NVFP4_ERR_SHAPE;
        wrong += strstr(nvfp4_last_error(), word) == NULL;
    }
    nvfp4_context_destroy(own);
    free(mine);
    return (void *)wrong;
}

int main(int argc, char **argv) {
    static struct result alone;
    pthread_t threads[THREADS];
    int numbers[THREADS], i;
    long wrong = 0;
    nvfp4_context_desc desc = {0};
    if (argc > 1 && (strcmp(argv[1], "race") == 0 || strcmp(argv[1], "overrun") == 0)) return misbehave(argv[1]);
    if (argc > 1) rounds = atoi(argv[1]); /* fewer under a checker */
    desc.struct_size = sizeof desc;
    desc.threads = 2;
    for (i = 0; i < ROWS * COLS; i++) x[i] = (float)((i * 37 + 11) % 101 - 50) / 8.0f;
    if (nvfp4_context_create(&desc, &shared_context) != NVFP4_OK || run(shared_context, &alone) != 0) {
        printf("threads: %s\n", nvfp4_last_error());
        return 1;
    }
    memcpy(expected_codes, alone.codes, sizeof expected_codes);
    memcpy(expected_scales, alone.scales, sizeof expected_scales);
    memcpy(expected_product, alone.product, sizeof expected_product);
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0) return 1;
    }
    for (i = 0; i < THREADS; i++) {
        void *count;
        pthread_join(threads[i], &count);
        wrong += (long)count;
    }
    nvfp4_context_destroy(shared_context);
    printf("threads: %d threads, %d rounds, %ld wrong\n", THREADS, rounds, wrong);
    return wrong != 0;
}
