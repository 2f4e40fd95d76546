#!/bin/sh
# A panic inside a release build, seen from C.   usage: panic.sh <work directory>
set -eu
cd "$(dirname "$0")/../.."
work=$1
mkdir -p "$work"
cargo build --release --lib --locked --no-default-features --features panic-test --target-dir "$work/target"
${CC:-cc} -std=c11 -Wall -Wextra -Werror -pedantic -Iinclude tests/c/panic.c -o "$work/panic" -pthread \
    "$work/target/release/libnvfp4.so" "-Wl,-rpath,$work/target/release"
# The name under which the program asks for the library.
ln -sf libnvfp4.so "$work/target/release/libnvfp4.so.0.1"
"$work/panic"
