/* A child made by fork() after the library was used goes on using it: same bytes, with the parent's context and with
 * one of its own, and the parent is not disturbed. */
#define _POSIX_C_SOURCE 200809L
#include <nvfp4.h>

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 256, COLS = 256 };
static float x[ROWS * COLS], y[ROWS * COLS], expected[ROWS * COLS];

static int transform(nvfp4_context *ctx) {
    nvfp4_matrix in = {0}, to;
    in.struct_size = sizeof in;
    in.data = x;
    in.rows = ROWS;
    in.cols = COLS;
    to = in;
    to.data = y;
    memset(y, 0xFF, sizeof y);
    if (nvfp4_hadamard(ctx, NULL, &in, &to, NULL) != NVFP4_OK) {
        fprintf(stderr, "fork: %s\n", nvfp4_last_error());
        return 1;
    }
    return 0;
}

int main(void) {
    nvfp4_context_desc desc = {0};
    nvfp4_context *ctx = NULL;
    int i, round;
    desc.struct_size = sizeof desc;
    desc.threads = 4; /* so that there were other threads before the fork */
    for (i = 0; i < ROWS * COLS; i++) x[i] = (float)((i * 37 + 11) % 101 - 50) / 8.0f;
    if (nvfp4_context_create(&desc, &ctx) != NVFP4_OK || transform(ctx) != 0) return 1;
    memcpy(expected, y, sizeof expected);
    for (round = 0; round < 5; round++) {
        int status = 0;
        pid_t child;
        fflush(NULL);
        child = fork();
        if (child < 0) return 1;
        if (child == 0) {
            nvfp4_context *own = NULL;
            alarm(60); /* a child that hangs on a lock of the parent's threads dies, and the test fails */
            if (transform(ctx) != 0 || memcmp(y, expected, sizeof expected) != 0) _exit(2);
            if (nvfp4_context_create(&desc, &own) != NVFP4_OK || transform(own) != 0) _exit(3);
            if (memcmp(y, expected, sizeof expected) != 0) _exit(4);
            if (nvfp4_context_destroy(own) != NVFP4_OK) _exit(5);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            printf("fork: child %d ended with status 0x%x\n", round, (unsigned)status);
            return 1;
        }
        if (transform(ctx) != 0 || memcmp(y, expected, sizeof expected) != 0) return 1;
    }
    nvfp4_context_destroy(ctx);
    printf("fork: 5 children agreed with their parent\n");
    return 0;
}
