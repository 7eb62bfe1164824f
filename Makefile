# The two commands: `make run` (the main job) and `make test`. A thin front of CMake; as root on Debian it installs what
# is missing, elsewhere it names what is missing and how to get it.
BUILD  ?= build
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local

MAKEFLAGS += --no-print-directory

.PHONY: all build run test test-neon bench install clean deps deps-test deps-check deps-cross lint sanitize fuzz help

all: build

help:
	@echo 'make run        install what is missing, build, and run block-sparse attention on a real transformer'
	@echo 'make test       install what is missing, build, and run all tests'
	@echo 'make test-neon  the tests of the ops on AArch64, cross-built and under qemu (Debian 12)'
	@echo 'make build      build/bstk and build/libbstk.so (release)'
	@echo 'make bench      time the CPU with every peer that is found, into bench/results'
	@echo 'make install    into PREFIX (/usr/local), with CMake package, pkg-config file and man page'
	@echo 'make lint       formatting, static analysis, layering'
	@echo 'make sanitize   all tests again under ASan + UBSan and under TSan'
	@echo 'make fuzz       every fuzzer for FUZZ_SECONDS (30) each; needs clang'

deps:
	@tools/install_deps.sh build

deps-test:
	@tools/install_deps.sh test

deps-check:
	@tools/install_deps.sh check

deps-cross: deps-test
	@tools/install_deps.sh cross

build: deps
	@cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release > $(BUILD).log 2>&1 || { cat $(BUILD).log >&2; exit 1; }
	@rm -f $(BUILD).log
	@cmake --build $(BUILD) -j$(JOBS)

run: build
	@examples/minilm/run.sh $(BUILD)

test: deps-test build
	@BUILD=$(BUILD) JOBS=$(JOBS) tools/run_tests.sh

test-neon: deps-cross
	@JOBS=$(JOBS) tools/cross_test.sh

bench: build
	@BSTK=$(BUILD)/bstk bench/run.sh

lint: deps-check
	@tools/lint.sh

sanitize: deps-test
	@JOBS=$(JOBS) tools/sanitize.sh

fuzz: deps-check
	@JOBS=$(JOBS) tools/fuzz.sh

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf build
