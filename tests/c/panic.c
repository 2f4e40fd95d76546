/* A panic inside the library becomes NVFP4_ERR_INTERNAL with its words, and the library goes on working. Linked to a
 * build with the feature panic-test, which alone exports nvfp4_test_panic. */
#include <nvfp4.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

nvfp4_status nvfp4_test_panic(uint32_t index);

static int passed, failed;

static void expect(int condition, const char *what) {
    condition ? passed++ : failed++;
    if (!condition) printf("FAILED %s: \"%s\"\n", what, nvfp4_last_error());
}

static void *in_a_thread(void *answer) {
    const int right = nvfp4_test_panic(9) == NVFP4_ERR_INTERNAL && strstr(nvfp4_last_error(), "9") != NULL;
    *(int *)answer = right;
    return NULL;
}

int main(void) {
    nvfp4_context *ctx = NULL;
    nvfp4_sizes sizes;
    pthread_t thread;
    int i, answer = 0;
    expect(nvfp4_test_panic(4) == NVFP4_OK, "no panic, no error");
    for (i = 0; i < 3; i++) {
        expect(nvfp4_test_panic(7) == NVFP4_ERR_INTERNAL, "the status of a panic");
        expect(strstr(nvfp4_last_error(), "7") != NULL, "the words of the panic");
        expect(nvfp4_context_create(NULL, &ctx) == NVFP4_OK && ctx != NULL, "a context after a panic");
        expect(nvfp4_quantize_sizes(ctx, NULL, 4, 16, NVFP4_F32, 1, &sizes) == NVFP4_OK, "a call after a panic");
        expect(nvfp4_context_destroy(ctx) == NVFP4_OK, "the end of a context after a panic");
    }
    if (pthread_create(&thread, NULL, in_a_thread, &answer) != 0) return 1;
    pthread_join(thread, NULL);
    expect(answer, "a panic in another thread");
    expect(strstr(nvfp4_last_error(), "7") != NULL, "this thread's words are its own");
    printf("panic: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
