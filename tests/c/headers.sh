#!/bin/sh
# The installed headers compile by themselves, without one warning, in every C and C++ dialect they promise.
# usage: headers.sh <include directory>      CC and CXX choose the compilers
set -u
include=$1
passed=0 failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# The header first and alone, and twice: it brings what it needs, and guards itself.
printf '#include <nvfp4.h>\n#include <nvfp4.h>\nnvfp4_quantized q; nvfp4_gemm_desc g;\n' > "$tmp/header.c"
cp "$tmp/header.c" "$tmp/header.cpp"
printf '#include <nvfp4.hpp>\n#include <nvfp4.hpp>\nvoid f(const nvfp4::Context& c) { nvfp4::selftest(c); }\n' > "$tmp/raii.cpp"
try() {
    if "$@" -Wall -Wextra -Werror -pedantic -Wconversion -Wshadow -I"$include" -o "$tmp/out.o"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $*"
    fi
}
for std in c99 c11 c17 gnu17; do try ${CC:-cc} -std=$std -c "$tmp/header.c"; done
for std in c++11 c++14 c++17 c++20; do try ${CXX:-c++} -std=$std -c "$tmp/header.cpp"; done
for std in c++17 c++20; do try ${CXX:-c++} -std=$std -Wsign-conversion -Wold-style-cast -c "$tmp/raii.cpp"; done

# No function is forgotten: each has its C++ wrapper and is called by the C tests.
here=$(cd "$(dirname "$0")" && pwd)
functions=$(sed -n 's/^[a-z].*[ *]\(nvfp4_[a-z0-9_]*\)(.*/\1/p' "$include/nvfp4.h" | grep -v '^nvfp4_log_fn$' | sort -u)
for function in $functions none; do
    if [ "$function" = none ]; then
        [ "$(echo "$functions" | wc -l)" -ge 30 ] && continue || echo "FAILED: only these functions were found: $functions"
    elif ! grep -q "$function(" "$include/nvfp4.hpp"; then
        echo "FAILED: $function has no wrapper in nvfp4.hpp"
    elif ! grep -qE "$function[(,]" "$here"/test_*.c; then
        echo "FAILED: $function is not called by tests/c"
    else
        passed=$((passed + 1))
        continue
    fi
    failed=$((failed + 1))
done
echo "headers: $passed passed, $failed failed"
[ "$failed" = 0 ]
