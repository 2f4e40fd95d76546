/* dlopen, use from several threads, dlclose, again and again: no crash, no growth, same bytes. */
#define _GNU_SOURCE /* mallopt: one arena for all threads, so that memory can be compared */
#include <nvfp4.h>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 60, WARM = 10, THREADS_ONLY = 50, ROWS = 48, COLS = 64 };

typedef nvfp4_status (*create_fn)(const nvfp4_context_desc *, nvfp4_context **);
typedef nvfp4_status (*destroy_fn)(nvfp4_context *);
typedef nvfp4_status (*hadamard_fn)(nvfp4_context *, const nvfp4_hadamard_desc *, const nvfp4_matrix *,
                                    const nvfp4_matrix *, void *);
typedef const char *(*error_fn)(void);

static struct {
    create_fn create;
    destroy_fn destroy;
    hadamard_fn hadamard;
    error_fn last_error;
} api;
static float x[ROWS * COLS];

static int resolve(void *library) {
    /* POSIX says that an object pointer from dlsym may be stored like this. */
    *(void **)&api.create = dlsym(library, "nvfp4_context_create");
    *(void **)&api.destroy = dlsym(library, "nvfp4_context_destroy");
    *(void **)&api.hadamard = dlsym(library, "nvfp4_hadamard");
    *(void **)&api.last_error = dlsym(library, "nvfp4_last_error");
    return api.create == NULL || api.destroy == NULL || api.hadamard == NULL || api.last_error == NULL;
}

static void *use(void *argument) {
    float *y = argument;
    nvfp4_context_desc desc = {0};
    nvfp4_context *ctx = NULL;
    nvfp4_matrix in = {0}, to;
    const char *failed = NULL;
    desc.struct_size = sizeof desc;
    desc.threads = 2;
    in.struct_size = sizeof in;
    in.data = x;
    in.rows = ROWS;
    in.cols = COLS;
    to = in;
    to.data = y;
    if (api.create(&desc, &ctx) != NVFP4_OK || api.hadamard(ctx, NULL, &in, &to, NULL) != NVFP4_OK) failed = "call";
    /* Leaves a thread-local error message behind, which must be freed when the thread ends. */
    if (api.hadamard(ctx, NULL, NULL, &to, NULL) != NVFP4_ERR_NULL_POINTER || strlen(api.last_error()) == 0) failed = "error";
    if (api.destroy(ctx) != NVFP4_OK) failed = "destroy";
    return (void *)failed;
}

/* Bytes of heap in use; where glibc is older than 2.33 and can't tell, 0. */
static long heap(void) {
#if __GLIBC_PREREQ(2, 33)
    return (long)mallinfo2().uordblks;
#else
    return 0;
#endif
}

/* Pages of memory in use. */
static long resident(void) {
    long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%ld %ld", &size, &pages) != 2) pages = 0;
    fclose(file);
    return pages;
}

int main(int argc, char **argv) {
    static float first[ROWS * COLS], y[3][ROWS * COLS];
    long warm = 0, now = 0, warm_heap = 0, now_heap = 0;
    int round, i;
    if (argc < 2) {
        printf("usage: reload <libnvfp4.so>\n");
        return 2;
    }
    mallopt(M_ARENA_MAX, 1);
    for (i = 0; i < ROWS * COLS; i++) x[i] = (float)((i * 37 + 11) % 101 - 50) / 8.0f;
    for (round = 0; round < ROUNDS; round++) {
        pthread_t threads[2];
        void *failed = NULL, *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL || resolve(library) != 0) {
            printf("reload: %s\n", library == NULL ? dlerror() : "a function is missing");
            return 1;
        }
        for (i = 0; i < 2; i++)
            if (pthread_create(&threads[i], NULL, use, y[i]) != 0) return 1;
        for (i = 0; i < 2; i++) {
            void *answer;
            pthread_join(threads[i], &answer);
            if (answer != NULL) failed = answer;
        }
        /* The main thread's own error message lives until it exits and keeps the library loaded, so: only at the end. */
        if (failed == NULL && round >= THREADS_ONLY) failed = use(y[2]);
        if (failed != NULL) {
            printf("reload: round %d: %s failed: %s\n", round, (const char *)failed, api.last_error());
            return 1;
        }
        if (round == 0) memcpy(first, y[0], sizeof first);
        for (i = 0; i < (round < THREADS_ONLY ? 2 : 3); i++)
            if (memcmp(first, y[i], sizeof first) != 0) {
                printf("reload: round %d gives other bytes\n", round);
                return 1;
            }
        if (dlclose(library) != 0) {
            printf("reload: %s\n", dlerror());
            return 1;
        }
        library = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
        if (round < THREADS_ONLY && library != NULL) {
            printf("reload: round %d: the library is still there after dlclose\n", round);
            return 1;
        }
        if (library != NULL) dlclose(library);
        memset(y, 0, sizeof y);
        if (round == WARM) warm = resident(), warm_heap = heap();
        if (round == THREADS_ONLY - 1) now = resident(), now_heap = heap();
    }
    printf("reload: %d rounds; after %d: %ld pages, %ld bytes of heap; after %d: %ld and %ld\n", ROUNDS, WARM, warm, warm_heap,
           THREADS_ONLY, now, now_heap);
    /* Not one message or context a round, nor the library's own pages. */
    return now_heap > warm_heap + 2048 || now > warm + 200;
}
