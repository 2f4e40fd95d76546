#!/bin/sh
# The library with the CUDA backend, its kernels compiled for every architecture that ships, on a machine that may have no
# GPU: the CPU goes on working, and it still needs only libc and libgcc_s.   usage: cuda.sh <consumer build> <work directory>
set -u
cd "$(dirname "$0")/../.."
consumer=$1 work=$2
passed=0 failed=0
try() {
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $*"
    fi
}
if [ -z "${NVCC:-}" ]; then
    ${MAKE:-make} -s .venv-cuda/ready || exit 1
    NVCC=$(ls -d "$PWD"/.venv-cuda/lib/python3*/site-packages/nvidia/cu13/bin/nvcc | head -n 1)
    export NVCC
fi
cargo build --release --lib --locked --no-default-features --features cuda --target-dir "$work" || exit 1
ln -sf libnvfp4.so "$work/release/libnvfp4.so.0.1"
for program in abi threads fork faults raii; do
    try env LD_LIBRARY_PATH="$work/release" "$consumer/${program}_shared"
done
try "$consumer/reload" "$work/release/libnvfp4.so"
try sh -c "! readelf -d '$work/release/libnvfp4.so' | grep NEEDED | grep -vE 'libc\.so|libgcc_s|libm\.so|ld-linux'"
echo "cuda: $passed passed, $failed failed"
[ "$failed" = 0 ]
