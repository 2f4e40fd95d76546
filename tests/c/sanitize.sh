#!/bin/sh
# The C programs with the library built under a sanitizer, release profile: SIMD paths included, which valgrind does not
# know.   usage: sanitize.sh address|thread <work directory>
# Rust's sanitizers are unstable options of the stable compiler; where they are missing, one line says so.
set -u
cd "$(dirname "$0")/../.."
kind=$1
work=$2/$kind
target=x86_64-unknown-linux-gnu
runtime=$(rustc --print sysroot)/lib/rustlib/$target/lib/librustc-stable_rt.$(echo "$kind" | cut -c1 | sed 's/a/asan/;s/t/tsan/').a
if [ ! -f "$runtime" ]; then
    echo "SKIPPED: this Rust has no $kind sanitizer"
    exit 0
fi
mkdir -p "$work" # host tools are built once for both kinds
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$kind -Cunsafe-allow-abi-mismatch=sanitizer" \
    cargo build --release --lib --locked --no-default-features --target $target --target-dir "$2/target" || exit 1
archive=$2/target/$target/release/libnvfp4.a
passed=0 failed=0
try() {
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $*"
    fi
}
# program <name> <sources>: compiled by the C compiler's own sanitizer, linked with Rust's run time.
program() {
    name=$1
    shift
    for source in "$@"; do
        ${CC:-cc} -std=c11 -g -O1 "-fsanitize=$kind" -Iinclude -c "tests/c/$source.c" -o "$work/$source.o" || exit 1
    done
    (cd "$work" && ${CC:-cc} -o "$name" $(printf '%s.o ' "$@") "$OLDPWD/$archive" \
        -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive -rdynamic -pthread -lm -ldl -lrt -lresolv) || exit 1
}
case $kind in
thread)
    program threads threads
    try "$work/threads" 20
    # The checker itself must be able to fail.
    try sh -c "! '$work/threads' race > /dev/null 2>&1"
    ;;
address)
    program abi abi check test_library test_quantize test_quantize_options test_decode test_layout test_gemm test_linear test_grouped
    program threads threads
    try "$work/abi"
    try "$work/threads" 20
    try sh -c "! '$work/threads' overrun > /dev/null 2>&1"
    ;;
esac
echo "sanitize-$kind: $passed passed, $failed failed"
[ "$failed" = 0 ]
