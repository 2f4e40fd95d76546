#!/bin/sh
# The GPU tests on the emulated GPU (tests/emulator): every line of src/cuda and the kernels' PTX, without a GPU.
# Small counts; the whole of each part is left to a card and to `make test-long`.
# usage: emulated.sh <work directory>                            all
#        emulated.sh <work directory> <architecture> <arguments> one run of the test program
set -eu
work=$1
if [ -z "${NVCC:-}" ]; then
    ${MAKE:-make} -s .venv-cuda/ready
    NVCC=$(ls -d "$PWD"/.venv-cuda/lib/python3*/site-packages/nvidia/cu13/bin/nvcc | head -n 1)
    export NVCC
fi
cargo build --locked --manifest-path tests/emulator/Cargo.toml
mkdir -p "$work"
ln -sf "$PWD/tests/emulator/target/debug/libnvfp4_emulator.so" "$work/libcuda.so.1"
export NVFP4_EMULATOR_PTX=1 NVFP4_CUDA_ARCHS=90a
gpu=$(cargo test --locked --no-default-features --features cuda --test gpu --no-run --message-format short 2>&1 |
    sed -n 's/.*Executable tests\/gpu\/main.rs (\(.*\))/\1/p')
[ -x "$gpu" ] || { echo "the GPU tests were not built"; exit 1; }
passed=0 failed=0 limit=600
run() {  # architecture, arguments of the test program
    arch=$1
    shift
    echo "$arch $*"
    if LD_LIBRARY_PATH=$work NVFP4_EMU_ARCH=$arch NVFP4_REQUIRE_GPU=1 timeout "$limit" "$gpu" "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $arch $*"
    fi
}
if [ $# -gt 1 ]; then
    limit=20000
    shift
    run "$@"
    echo "emulated: $passed passed, $failed failed"
    exit "$failed"
fi
run sm_90 --only graph
run sm_90 --only grid --grid 100
run sm_90 --only threads --rounds 3
run sm_90 --only linear
run sm_90 --only traffic
run sm_90 --only random --configs 1000
run sm_90 --only "random products" --products 150
run sm_90 --only grouped --groups 40
run sm_80 --only grouped --groups 10
run sm_100 --only grouped --groups 10
run sm_120 --only grouped --groups 10
run sm_80 --only random --configs 300
run sm_80 --only "random products" --products 60
run sm_100 --only random --configs 300
run sm_100 --only "random products" --products 40
run sm_103 --only random --configs 100
run sm_103 --only "random products" --products 20
run sm_103 --only grouped --groups 10
run sm_120 --only random --configs 300
run sm_120 --only "random products" --products 40
run sm_120 --only "fp4 products" --products 500
run sm_120 --only traffic
run sm_100 --only traffic
# Few multiprocessors, so that a block that stays has many tiles.
export NVFP4_EMU_SMS=4
run sm_100 --only "fp4 products" --products 500
export NVFP4_EMU_SMS=2
run sm_103 --only "fp4 products" --products 100 --seed 2
unset NVFP4_EMU_SMS
# Kernels that have not been certified are tried; a chip that differs is found out, and the bytes stay right.
run sm_90 --only certification
run sm_100 --only certification
run sm_120 --only certification
planted() {  # what differs, architecture, the kernel to be found out, arguments of a run that has to pass all the same
    plant=$1 arch=$2 kernel=$3
    shift 3
    echo "planted: $plant"
    export NVFP4_EMU_PLANT="$plant"
    run "$arch" --only certification --differs "$kernel"
    run "$arch" "$@"
    unset NVFP4_EMU_PLANT
}
planted e2m1x2 sm_100 conversion --only random --configs 25
planted e2m1x4.rs sm_103 conversion --only random --configs 25
planted e4m3x2 sm_120 conversion --only random --configs 25
planted block_scale sm_120 mma-scaled --only "random products" --products 10
planted block_scale sm_100 tcgen05 --only "random products" --products 10
# With a stand-in for cuBLASLt, whose FP4 products no card here has.
mkdir -p "$work/lt"
${CC:-cc} -O2 -Wall -Wextra -Werror -shared -fPIC -o "$work/lt/libcublasLt.so.13" tests/gpu/stand_in_cublaslt.c -lm -ldl
work=$work:$work/lt
run sm_90 --only cublaslt
run sm_100 --only cublaslt
echo "emulated: $passed passed, $failed failed"
[ "$failed" = 0 ]
