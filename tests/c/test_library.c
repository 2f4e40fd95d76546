/* Functions that need no context, and contexts. */
#include "check.h"

static int lines_logged;

static void count_line(void *user, uint32_t level, const char *message) {
    (void)level;
    CHECK(user == &lines_logged, "the log got another user pointer");
    CHECK(message != NULL && message[0] != '\0', "an empty log line");
    lines_logged++;
}

static void test_names(void) {
    int32_t status;
    char text[32];
    CHECK(nvfp4_version() == ((uint32_t)NVFP4_VERSION_MAJOR << 16 | NVFP4_VERSION_MINOR << 8 | NVFP4_VERSION_PATCH),
          "the header is of another version than the library, 0x%x", (unsigned)nvfp4_version());
    snprintf(text, sizeof text, "%d.%d.%d", NVFP4_VERSION_MAJOR, NVFP4_VERSION_MINOR, NVFP4_VERSION_PATCH);
    CHECK(strcmp(nvfp4_version_string(), text) == 0, "version string %s", nvfp4_version_string());
    CHECK(strcmp(nvfp4_status_name(NVFP4_OK), "NVFP4_OK") == 0, "%s", nvfp4_status_name(NVFP4_OK));
    CHECK(strcmp(nvfp4_status_name(NVFP4_ERR_SHAPE), "NVFP4_ERR_SHAPE") == 0, "%s", nvfp4_status_name(NVFP4_ERR_SHAPE));
    for (status = 0; status <= NVFP4_ERR_INTERNAL; status++) {
        CHECK(strncmp(nvfp4_status_name(status), "NVFP4_", 6) == 0, "status %d has no name", (int)status);
        CHECK(status == 0 || strcmp(nvfp4_status_name(status), nvfp4_status_name(status - 1)) != 0,
              "statuses %d and %d have one name", (int)status - 1, (int)status);
    }
    CHECK(nvfp4_status_name(-1) != NULL && nvfp4_status_name(INT32_MAX) != NULL, "an unknown status has no name");
    CHECK(nvfp4_last_error() != NULL, "NULL");
}

static void test_log(void) {
    nvfp4_context *ctx = NULL;
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "99", nvfp4_set_log(count_line, &lines_logged, 99));
    WORKS(nvfp4_set_log(count_line, &lines_logged, NVFP4_LOG_PLAN));
    lines_logged = 0;
    CHECK(nvfp4_context_create(NULL, NULL) == NVFP4_ERR_NULL_POINTER, "it worked");
    CHECK(lines_logged > 0, "a failed call logged nothing");
    WORKS(nvfp4_set_log(NULL, NULL, NVFP4_LOG_OFF));
    lines_logged = 0;
    WORKS(nvfp4_context_create(NULL, &ctx));
    CHECK(nvfp4_context_create(NULL, NULL) == NVFP4_ERR_NULL_POINTER, "it worked");
    WORKS(nvfp4_context_destroy(ctx));
    CHECK(lines_logged == 0, "%d lines though the log is off", lines_logged);
}

static void test_create(void) {
    struct {
        nvfp4_context_desc desc;
        uint64_t tail[2];
    } longer;
    nvfp4_context_desc desc;
    nvfp4_context *ctx = NULL;

    WORKS(nvfp4_context_destroy(NULL));
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.threads = 3;
    WORKS(nvfp4_context_create(&desc, &ctx));
    CHECK(ctx != NULL, "NULL");
    WORKS(nvfp4_context_destroy(ctx));

    FAILS(NVFP4_ERR_NULL_POINTER, "out", nvfp4_context_create(&desc, NULL));
    desc.struct_size = 3;
    FAILS(NVFP4_ERR_STRUCT_SIZE, "3", nvfp4_context_create(&desc, &out.context));
    desc.struct_size = 0;
    FAILS(NVFP4_ERR_STRUCT_SIZE, "0", nvfp4_context_create(&desc, &out.context));
    desc.struct_size = sizeof desc;
    desc.device = 99;
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "99", nvfp4_context_create(&desc, &out.context));
    desc.device = NVFP4_DEVICE_CPU;
    desc.reserved = 1234;
    FAILS(NVFP4_ERR_INVALID_ARGUMENT, "1234", nvfp4_context_create(&desc, &out.context));

    /* A GPU, or a word why not. */
    desc.reserved = 0;
    desc.device = NVFP4_DEVICE_CUDA;
    desc.ordinal = 4000;
    {
        const nvfp4_status status = nvfp4_context_create(&desc, &ctx);
        CHECK(status == NVFP4_ERR_NO_DEVICE || status == NVFP4_ERR_NOT_SUPPORTED, "GPU 4000: %s", nvfp4_status_name(status));
        CHECK(strlen(nvfp4_last_error()) > 0, "no sentence");
    }

    /* A caller compiled against a later header: fine while what this version does not know is zero. */
    memset(&longer, 0, sizeof longer);
    longer.desc.struct_size = sizeof longer;
    WORKS(nvfp4_context_create(&longer.desc, &ctx));
    WORKS(nvfp4_context_destroy(ctx));
    longer.tail[1] = 1;
    FAILS(NVFP4_ERR_STRUCT_SIZE, "", nvfp4_context_create(&longer.desc, &out.context));
}

/* A misaligned descriptor or context pointer is an error, never undefined behaviour. */
static void test_misaligned(void) {
    union {
        uint64_t align;
        char bytes[sizeof(nvfp4_context_desc) + 8];
    } space;
    nvfp4_context_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    memcpy(space.bytes + 1, &desc, sizeof desc);
    FAILS(NVFP4_ERR_ALIGNMENT, "", nvfp4_context_create((const nvfp4_context_desc *)(void *)(space.bytes + 1), &out.context));
}

void test_library(void) {
    test_names();
    test_log();
    test_create();
    test_misaligned();
}

void test_context(nvfp4_context *ctx) {
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_selftest(NULL, &out.count, out.text, sizeof out.text));
    FAILS(NVFP4_ERR_NULL_POINTER, "", nvfp4_selftest(ctx, NULL, out.text, sizeof out.text));
    out.count = 77;
    WORKS(nvfp4_selftest(ctx, &out.count, out.text, sizeof out.text));
    CHECK(out.count == 0, "%u failures: %s", (unsigned)out.count, out.text);
    CHECK(strlen(out.text) > 0, "no report");
    WORKS(nvfp4_selftest(ctx, &out.count, NULL, 0));
    memset(out.text, 'x', sizeof out.text);
    WORKS(nvfp4_selftest(ctx, &out.count, out.text, 8)); /* cut to fit, NUL included */
    CHECK(memchr(out.text, '\0', 8) != NULL && out.text[8] == 'x', "the report ran over its buffer");
}
