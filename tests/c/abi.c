/* Every function of nvfp4.h from C, with good and with bad arguments. */
#include "check.h"

int main(void) {
    nvfp4_context_desc desc;
    nvfp4_context *ctx = NULL;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.threads = 2;
    test_library();
    WORKS(nvfp4_context_create(&desc, &ctx));
    test_context(ctx);
    test_quantize(ctx);
    test_quantize_options(ctx);
    test_decode(ctx);
    test_layout(ctx);
    test_gemm(ctx);
    test_linear(ctx);
    test_grouped(ctx);
    WORKS(nvfp4_context_destroy(ctx));
    printf("abi: %d checks passed, %d failed\n", checks_passed, checks_failed);
    return checks_failed != 0;
}
