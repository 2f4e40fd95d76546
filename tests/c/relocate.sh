#!/bin/sh
# An installed tree works where it was moved to, by CMake and by pkg-config, shared and static, and refuses a version
# that it is not.   usage: relocate.sh <prefix> <work directory>      CMAKE chooses cmake
set -u
cmake=${CMAKE:-cmake}
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1
passed=0 failed=0
rm -rf "$2"
mkdir -p "$2"
work=$(cd "$2" && pwd)
cp -a "$prefix" "$work/moved to"
moved="$work/moved to"
check() {
    name=$1
    shift
    if "$@" > "$work/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
        tail -n 20 "$work/log"
    fi
}

# By CMake: the smallest project a user would write.
mkdir "$work/project"
cp "$here/../cpp/raii.cpp" "$work/project/main.cpp"
cat > "$work/project/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.22)
project(moved LANGUAGES CXX)
find_package(nvfp4 ${WANT} REQUIRED)
if(NOT nvfp4_DIR MATCHES "moved to")
  message(FATAL_ERROR "found ${nvfp4_DIR}")
endif()
set(CMAKE_CXX_STANDARD 17)
add_executable(shared main.cpp)
target_link_libraries(shared PRIVATE nvfp4::nvfp4)
add_executable(static main.cpp)
target_link_libraries(static PRIVATE nvfp4::nvfp4_static)
EOF
check "configure in the moved tree" "$cmake" -S "$work/project" -B "$work/build" -DWANT=0.1 "-DCMAKE_PREFIX_PATH=$moved"
check "build in the moved tree" "$cmake" --build "$work/build"
check "run the shared program" "$work/build/shared"
check "run the static program" "$work/build/static"
check "the shared program needs libnvfp4 by its SONAME" sh -c "readelf -d '$work/build/shared' | grep -q 'NEEDED.*libnvfp4\.so\.0\.1\]'"
check "the static program does not" sh -c "! readelf -d '$work/build/static' | grep -q 'NEEDED.*libnvfp4'"
check "version 0.2 is refused, and the refusal names ours" sh -c "! '$cmake' -S '$work/project' -B '$work/refused' \
    -DWANT=0.2 '-DCMAKE_PREFIX_PATH=$moved' > '$work/refused.log' 2>&1 && grep -q 'version: 0\.1\.' '$work/refused.log'"

# By pkg-config, from a path without a space, which pkg-config can't do.
mv "$moved" "$work/again"
export PKG_CONFIG_PATH="$work/again/lib/pkgconfig"
if command -v pkg-config > /dev/null; then
    check "pkg-config knows 0.1" pkg-config --atleast-version=0.1 nvfp4
    check "pkg-config, shared" sh -c "${CXX:-c++} -std=c++17 '$work/project/main.cpp' -o '$work/pc' \$(pkg-config --cflags --libs nvfp4)"
    check "run it" env LD_LIBRARY_PATH="$work/again/lib" "$work/pc"
    rm "$work/again/lib/"libnvfp4.so*
    check "pkg-config, static" sh -c "${CXX:-c++} -std=c++17 '$work/project/main.cpp' -o '$work/pc_static' \$(pkg-config --cflags --libs --static nvfp4)"
    check "run it" "$work/pc_static"
else
    echo "SKIPPED: pkg-config is not installed, so the .pc file was not tried"
fi
echo "relocate: $passed passed, $failed failed"
[ "$failed" = 0 ]
