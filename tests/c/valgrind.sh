#!/bin/sh
# The C programs under valgrind: memory errors and leaks. (Data races: sanitize.sh thread; helgrind does not know the
# futexes that Rust's locks are made of.)  usage: valgrind.sh <build directory>
set -u
build=$1
if ! command -v valgrind > /dev/null; then
    echo "SKIPPED: valgrind is not installed, so the C programs ran without it"
    exit 0
fi
passed=0 failed=0
try() {
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $*"
    fi
}
for kind in shared static; do
    try valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect "$build/abi_$kind"
done
try valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect "$build/threads_shared" 2
try sh -c "! valgrind -q --error-exitcode=9 '$build/threads_shared' overrun > /dev/null 2>&1" # it must be able to fail
echo "valgrind: $passed passed, $failed failed"
[ "$failed" = 0 ]
