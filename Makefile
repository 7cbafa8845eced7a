# The front door. CMake and Ninja do the work, in build/; `make help` lists what there is.
#
#   CC=clang BUILD=build-clang make test     another compiler, in a folder of its own
#   make install PREFIX=$HOME/.local         DESTDIR is honoured too

BUILD ?= build
BUILD_TYPE ?= RelWithDebInfo
PREFIX ?= /usr/local
DESTDIR ?=
CMAKE_FLAGS ?=
FUZZ_SECONDS ?= 60
JOBS ?= $(shell nproc 2>/dev/null || echo 1)

ifneq ($(origin CC),default)
  COMPILER = -DCMAKE_C_COMPILER=$(CC)
endif
configure = cmake -S . -B $(1) -G Ninja $(COMPILER) -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) $(2) $(CMAKE_FLAGS)

# What is missing is installed where that was asked for, and named in a sentence elsewhere.
ifeq ($(filter setup demo test,$(MAKECMDGOALS)),)
  check = --check
endif

.PHONY: all help setup needs demo test bench oracles format check sanitize tsan arm fuzz install uninstall package wheel dist clean

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD) -j$(JOBS)

help:
	@sed -n 's/^## //p' Makefile

## make            build build/caravan
## make setup      install what is missing, by apt-get, as `make demo` and `make test` do first
## make demo       train a small model on stories, or take MODEL=DIR, and generate text
## make test       build and run the tests
## make sanitize   the tests under AddressSanitizer and UndefinedBehaviorSanitizer, in build-asan
## make tsan       the tests under ThreadSanitizer, in build-tsan
## make arm        build for 64-bit Arm in build-arm and run the kernels' tests there, under qemu-user
## make fuzz       every fuzz target for FUZZ_SECONDS (60) seconds, in build-fuzz; needs clang
## make bench      measure the kernels, and generation
## make check      style, layering, banned functions
## make format     clang-format everything
## make oracles    make the stored reference numbers anew, by libraries from PyPI
## make install    to PREFIX (/usr/local), below DESTDIR
## make uninstall  remove what the last `make install` of this folder wrote
## make package    Debian packages, caravan and caravan-mpi, in build/
## make wheel      the Python package, in build/dist/
## make dist       the sources and a bill of materials of the last commit, in build/dist/
## make clean      remove all build folders

$(BUILD)/build.ninja: | needs
	@$(call configure,$(BUILD))

setup: needs

needs:
	@tools/setup.sh $(check)

demo: $(BUILD)/build.ninja
	@ninja -C $(BUILD) -j$(JOBS) caravan stories
	@tools/demo.sh $(BUILD)/caravan

test: all
	@tools/test.sh $(BUILD)

bench: all
	@tools/bench.sh $(BUILD)

sanitize: needs
	@$(call configure,build-asan,-DCVN_SANITIZE=ON)
	@ninja -C build-asan -j$(JOBS)
	@tools/test.sh build-asan

tsan: needs
	@$(call configure,build-tsan,-DCVN_TSAN=ON)
	@ninja -C build-tsan -j$(JOBS)
	@tools/test.sh build-tsan

arm:
	@tools/arm.sh build-arm

fuzz: needs
	@tools/fuzz.sh build-fuzz $(FUZZ_SECONDS)

oracles: all
	@tools/oracles.sh $(BUILD)

check:
	@tools/check.sh

format:
	@git ls-files --cached --others --exclude-standard '*.c' '*.h' | xargs clang-format -i

install: $(BUILD)/build.ninja
	@cmake -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(BUILD) >/dev/null
	@ninja -C $(BUILD) -j$(JOBS) installed
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD)

package: $(BUILD)/build.ninja
	@cmake -DCMAKE_INSTALL_PREFIX=/usr $(BUILD) >/dev/null
	@ninja -C $(BUILD) -j$(JOBS) installed
	@cd $(BUILD) && SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || date +%s)} cpack >/dev/null && \
	    ls caravan*.deb

wheel: $(BUILD)/build.ninja
	@ninja -C $(BUILD) -j$(JOBS) wheel_libraries
	@tools/wheel.py $(BUILD)/libcaravan.so $$(sed -n 's/^CMAKE_PROJECT_VERSION:.*=//p' $(BUILD)/CMakeCache.txt) $(BUILD)/dist

dist:
	@tools/dist.sh $(BUILD)/dist

uninstall:
	@test -f $(BUILD)/install_manifest.txt || { echo "nothing was installed from $(BUILD)"; exit 1; }
	@sed 's|^|$(DESTDIR)|' $(BUILD)/install_manifest.txt | xargs -d '\n' rm -fv

clean:
	rm -rf $(BUILD) build-asan build-tsan build-arm build-fuzz build-without-*
