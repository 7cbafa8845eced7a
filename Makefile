# The front door. `make` builds; CMake and Ninja do the work in build/.
BUILD ?= build

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja: CMakeLists.txt
	@cmake -S . -B $(BUILD) -G Ninja

test: all
	@ctest --test-dir $(BUILD) --output-on-failure

clean:
	rm -rf $(BUILD)

.PHONY: all test clean
