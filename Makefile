# libnvfp4. The two that matter: `make demo` trains a small GPT in 4 bits, `make test` runs everything.
# Needed: Rust, Python 3.11 or newer (with venv), gcc and g++. What else is needed is brought from PyPI into .venv*,
# at the versions in tests/requirements*.txt; nothing is installed outside this folder except by `make install`.

PREFIX ?= /usr/local
PYTHON ?= python3
# Processor of `make wheel`: aarch64 needs the Rust target aarch64-unknown-linux-gnu.
ARCH ?= $(shell uname -m)
# 1: with the CUDA backend (its compiler comes from PyPI into .venv-cuda). 0: a library for CPUs only.
CUDA ?= 0

CARGO ?= cargo
VENV := .venv
PY := $(VENV)/bin/python
CMAKE := $(shell command -v cmake || echo $(CURDIR)/$(VENV)/bin/cmake)
FEATURES := --no-default-features $(if $(filter 1,$(CUDA)),--features cuda)
TOOLS := $(VENV)/ready $(if $(filter 1,$(CUDA)),.venv-cuda/ready)
export CMAKE CUDA
ifeq ($(CUDA)$(NVCC),1)
export NVCC = $(shell ls -d $(CURDIR)/.venv-cuda/lib/python3*/site-packages/nvidia/cu13/bin/nvcc 2>/dev/null | head -n 1)
endif

.PHONY: help lib demo test test-long bench wheel install test-gpu bench-gpu clean
help:
	@sed -n '1,4s/^# //p' Makefile
	@echo "targets: demo, test, test-long, bench, wheel ARCH=, install PREFIX=, test-gpu, bench-gpu, lib, clean; CUDA=1 adds the CUDA backend"

$(VENV)/ready: tests/requirements.txt
	@command -v $(CARGO) > /dev/null || { echo "cargo was not found: install Rust, or set CARGO="; exit 1; }
	@command -v $${CC:-cc} > /dev/null && command -v $${CXX:-c++} > /dev/null || { echo "a C and a C++ compiler are needed: install gcc and g++"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is not Python 3.11 or newer: set PYTHON="; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) can't make a virtual environment (Debian: python3-venv)"; exit 1; }
	$(PY) -m pip install -q --disable-pip-version-check -r tests/requirements.txt
	touch $@

.venv-cuda/ready: tests/requirements-cuda.txt
	$(PYTHON) -m venv .venv-cuda
	.venv-cuda/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements-cuda.txt
	touch $@

# Zig as a linker knows glibc's symbols of every version, so that a wheel from any machine runs on old ones too.
.venv-zig/ready: tests/requirements-wheel.txt
	$(PYTHON) -m venv .venv-zig
	.venv-zig/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements-wheel.txt
	touch $@

lib: $(TOOLS)
	$(CARGO) build --release --lib --locked $(FEATURES)

# The library as a user has it, in build/prefix.
build/prefix: lib
	@mkdir -p build
	@$(CMAKE) -S cmake -B build/cmake -DNVFP4_PREBUILT=target/release -DCMAKE_INSTALL_LIBDIR=lib > build/cmake.log 2>&1 || { cat build/cmake.log; exit 1; }
	@$(CMAKE) --install build/cmake --prefix build/prefix > /dev/null
.PHONY: build/prefix

build/examples/trainer: build/prefix
	$(CMAKE) -S examples -B build/examples -DCMAKE_PREFIX_PATH=$(CURDIR)/build/prefix
	$(CMAKE) --build build/examples
.PHONY: build/examples/trainer

demo: build/examples/trainer
	build/examples/trainer --out out
test:
	@$(MAKE) --no-print-directory build/examples/trainer
	@$(PY) tests/run.py
# Checks that take hours, each a step with its name: `python3 tests/run.py --long --list`.
test-long: $(VENV)/ready
	@$(PY) tests/run.py --long
bench: $(TOOLS)
	$(CARGO) bench --locked $(FEATURES)
# For glibc 2.28 and newer, without symbols and without paths of this machine.
WHEEL_TARGET = $(ARCH)-unknown-linux-gnu
REMAP = --remap-path-prefix=$(CURDIR)=/nvfp4 --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo --remap-path-prefix=$(shell rustc --print sysroot)=/rust
wheel: $(TOOLS) .venv-zig/ready
	@test -d "$$(rustc --print target-libdir --target $(WHEEL_TARGET))" || test -n "$(WHEEL_FLAGS)" || { echo "the Rust target $(WHEEL_TARGET) is not installed: rustup target add $(WHEEL_TARGET)"; exit 1; }
	env -u CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER PATH="$(CURDIR)/.venv-zig/bin:$$PATH" CARGO_PROFILE_RELEASE_STRIP=symbols RUSTFLAGS="$(REMAP)" \
		$(CARGO) zigbuild --release --lib --locked $(FEATURES) --target $(WHEEL_TARGET).2.28 --target-dir target/wheel $(WHEEL_FLAGS)
	NVFP4_PREBUILT=$(CURDIR)/target/wheel/$(WHEEL_TARGET)/release/libnvfp4.so NVFP4_WHEEL_PLATFORM=manylinux_2_28_$(ARCH) \
		$(PY) -m build --wheel --no-isolation --outdir dist bindings/python
	$(PY) tests/manylinux.py dist/nvfp4-*-manylinux_2_28_$(ARCH).whl $(CURDIR) $(HOME)
install: lib
	$(CMAKE) -S cmake -B build/install -DNVFP4_PREBUILT=target/release
	$(CMAKE) --install build/install --prefix $(PREFIX)
# On a machine with a CUDA GPU: every operation against the CPU, and, on Hopper, the emulated GPU against the card.
# Leaves tests/gpu/last_run.json, whose hash of the kernels
# `make test` compares with theirs.
test-gpu:
	@test -f tests/gpu/main.rs || { echo "there are no GPU tests in this version"; exit 1; }
	@$(MAKE) --no-print-directory CUDA=1 gpu-program
gpu-program: $(TOOLS)
	$(CARGO) test --release --locked $(FEATURES) --test gpu -- --json tests/gpu/last_run.json --hash $$($(PYTHON) tests/run.py --kernels-hash)
	mkdir -p build
	$(NVCC) -std=c++17 -ptx -arch=compute_90a -o build/differential.ptx tests/emulator/kernels/differential_sm90.cu
	cd tests/emulator && $(CARGO) run --release --locked --example differential -- --kernels $(CURDIR)/build/differential.ptx
.PHONY: gpu-program
# Rates of every operation there, beside the card's own copy rate and cuBLASLt, and of what others do of the same.
bench-gpu:
	@$(MAKE) --no-print-directory CUDA=1 gpu-rates
gpu-rates: $(TOOLS)
	@nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem,power.limit --format=csv,noheader || true
	@git -C . log -1 --format='commit %h' 2> /dev/null || true
	$(CARGO) bench --locked $(FEATURES) --bench gpu
	@if $(PYTHON) -c 'import torch, triton' 2> /dev/null; then $(PYTHON) benches/gpu/peers.py; \
	else echo "SKIPPED: $(PYTHON) has no torch and triton, so PyTorch and Triton were not measured beside"; fi
.PHONY: gpu-rates
clean:
	rm -rf target build dist out .venv .venv-cuda .venv-zig tests/emulator/target
