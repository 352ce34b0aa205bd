# Everything starts from a machine with python3 and make: each target makes its own set-up first, once.
#
#   make demo     real photographs, packed, trained on, measured against torch's DataLoader
#   make demo-remote   the same photographs, packed into a bucket of a server on this machine, and trained on from there
#   make test     ruff, mypy, import-linter, clang-format, C tests, the documentation, pytest
#   make test-long     soaks, kills, frameworks, other processors, the rest of the sanitizers' product, the fuzz targets
#   make build    the environment and the native module, in place
#   make wheel    dist/*.whl with its native libraries inside
#   make docs     build/site: the documentation, strictly
#   make quick    the loop at the desk: what of the above is fast, and the tests that cover most in a second; needs the extra `quick` alone
#   make test-installed   pytest on the wheel, installed, from outside the checkout
#   make peers    other loaders, each in an environment of its own, against fastload on the same photographs (a whole run: most of an hour)
#   make fuzz     the fuzz targets under libFuzzer, SECONDS=60 each (tests/fuzz/README.md)
#   make lint ctest pytest bench format clean
#
# Settings: PYTHON=python3  VENV=.venv  TORCH=torch==2.13.0  JOBS=2  PYTEST="tests/loader -x"  PEERS="--only dali"

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST ?=

BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check -qq
INSTALL := $(PY) tools/install.py
STAMPS := $(VENV)/stamps
NATIVE := $(wildcard csrc/*/*.c csrc/*/*.h fastload/_native/*.pyx fastload/_native/*.pxi fastload/_native/*.pxd) setup.py
C_FILES := $(wildcard $(foreach folder,csrc/* tests/c tests/fuzz benchmarks,$(folder)/*.c $(folder)/*.h))
PY_FILES := fastload tests benchmarks examples tools setup.py

MAKEFLAGS += --no-print-directory
# Compiled modules are kept, whatever the shell around says: programs import what those before them have compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: all demo demo-remote test test-long quick rules test-installed build wheel docs lint ctest ctest-long pytest pytest-long bench peers format clean
all: build

# ---- set-up -------------------------------------------------------------------------------------------------------

# Modules are compiled when something imports them, and most of what is installed never is.

$(STAMPS)/system: tools/system_packages.sh
	@PYTHON=$(PYTHON) sh tools/system_packages.sh
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# Torch first, by pip, which knows builds of it that lie on disk: what follows depends on it, and must not choose another.
$(STAMPS)/torch: $(STAMPS)/system
	@echo "installing $(TORCH)"
	@$(PIP) install --no-compile "$(TORCH)" "setuptools>=77" wheel "Cython>=3,<4"
	@touch $@

$(STAMPS)/demo: $(STAMPS)/torch pyproject.toml
	@echo "installing fastload and what the demo needs"
	@$(INSTALL) --no-build-isolation -e ".[demo]"
	@touch $@

$(STAMPS)/demo-remote: $(STAMPS)/demo
	@echo "installing what reads buckets, and SeaweedFS"
	@$(INSTALL) --no-build-isolation -e ".[demo-remote]"
	@touch $@

$(STAMPS)/dev: $(STAMPS)/torch pyproject.toml
	@echo "installing fastload and the tools of its developers"
	@$(INSTALL) --no-build-isolation -e ".[dev]"
	@$(INSTALL) --no-deps $(MOSAIC)
	@touch $@

# Mosaic's Streaming asks for old releases of NumPy and Transformers, and runs with new ones.
MOSAIC := mosaicml-streaming==0.13.0 brotli catalogue cramjam python-snappy xxhash zstd

# setup.py itself knows which objects are stale, also when only FASTLOAD_SANITIZE or FASTLOAD_WERROR changed.
BUILD_NATIVE = $(PY) setup.py -q build_ext --inplace

# The tools that a build and the quick linters need: `make quick` has fewer of them.
TOOLS := dev
build: $(STAMPS)/$(TOOLS)
	@$(BUILD_NATIVE)

# A part of what the developers' tools are.
$(STAMPS)/quick: $(STAMPS)/torch pyproject.toml
	@test $(STAMPS)/dev -nt pyproject.toml || { echo "installing fastload and what make quick needs"; \
	    $(INSTALL) --no-build-isolation -e ".[quick]"; }
	@touch $@

# All that test files import, compiled once: else each of the processes that run tests compiles it, at the same time.
$(STAMPS)/compiled: $(STAMPS)/dev | build
	@mkdir -p build
	@$(PY) -m pytest --collect-only -qq > build/collected.log 2>&1 || { tail -n 60 build/collected.log; exit 1; }
	@touch $@

# ---- the commands of the README -----------------------------------------------------------------------------------

demo: $(STAMPS)/demo
	@$(BUILD_NATIVE)
	@$(PY) examples/demo.py

demo-remote: $(STAMPS)/demo-remote
	@$(BUILD_NATIVE)
	@$(PY) examples/demo_remote.py

# What takes longest comes first. The C tests need a compiler alone, and are built while the environment is made: by a make of their own, since
# one make would begin to install the environment only after it had compiled all of their objects.
test: $(STAMPS)/system
	@$(MAKE) -j$(JOBS) --output-sync=target build $(STAMPS)/compiled lint-mypy docs lint ctest-beside
	@$(MAKE) pytest

test-long: $(STAMPS)/system
	@$(MAKE) -j$(JOBS) --output-sync=target build ctest-long $(STAMPS)/compiled
	@$(MAKE) -j2 pytest-long fuzz-a-little

# ---- checks -------------------------------------------------------------------------------------------------------

LINTS := lint-ruff lint-format lint-mypy lint-imports lint-c lint-stubs
.PHONY: $(LINTS)
lint: $(LINTS)
lint-ruff: $(STAMPS)/$(TOOLS)
	$(BIN)/ruff check $(PY_FILES)
lint-format: $(STAMPS)/$(TOOLS)
	$(BIN)/ruff format --check $(PY_FILES)
lint-mypy: $(STAMPS)/dev
	$(BIN)/mypy
# The stub of the native module against the module as it is built.
lint-stubs: build
	$(PY) -m mypy.stubtest fastload._native.core --concise --ignore-disjoint-bases --ignore-unused-allowlist \
	    --allowlist tools/stubtest_allowlist.txt --mypy-config-file tools/stubtest.ini
lint-imports: $(STAMPS)/$(TOOLS)
	$(BIN)/lint-imports --no-logo
lint-c: $(STAMPS)/dev
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)

format: $(STAMPS)/dev
	$(BIN)/ruff check --fix --select I $(PY_FILES)
	$(BIN)/ruff format $(PY_FILES)
	$(BIN)/clang-format -i $(C_FILES)

# OpenMP's threads sleep while they wait: with more processes than processors, those that spin keep the others from working.
pytest pytest-long quick: export OMP_WAIT_POLICY := PASSIVE
# So do OpenBLAS' threads, which spin for a tenth of a second in each program that imports NumPy.
pytest pytest-long quick: export OPENBLAS_THREAD_TIMEOUT := 4
# As many processes as tests/conftest.py finds room for, or JOBS and one more where somebody set JOBS; two more of long tests.
spread = -n $(if $(filter file,$(origin JOBS)),auto,$(shell expr $(JOBS) + $(1))) --dist worksteal
SPREAD := $(call spread,1)
# Tests that fork workers by the thousand come first, in processes of their own: a fork copies page tables, and costs three times as much in
# a process that has imported every framework.
FORKING := $(addprefix tests/,conformance crash engines loader sampling)
OTHERS := $(FORKING:%=--ignore=%)
# CPU seconds that each of the runs may take, as tests/cpu_ledger.py counts them. A change that needs more says here why.
CPU_FORKING := 550
# 1,100 before the compositions of torchvision's transforms, the augmentations on native threads and the indexes of opened files were tested.
CPU_OTHERS := 1300
CPU_LONG := 1400
pytest: build
ifneq ($(strip $(PYTEST)),)
	$(PY) -m pytest $(PYTEST)
else
	$(PY) -m pytest -m "not long" $(SPREAD) --cpu-budget=$(CPU_FORKING) $(FORKING)
	$(PY) -m pytest -m "not long" $(SPREAD) --cpu-budget=$(CPU_OTHERS) $(OTHERS)
endif
pytest-long: build
	$(PY) -m pytest -m long $(call spread,2) --cpu-budget=$(CPU_LONG)

# Whole rooms that take seconds, and of the others the files that touch most of the package.
QUICK := $(filter-out tests/dataset/test_where%,$(wildcard tests/dataset/test_*.py)) $(addprefix tests/,explain health native transforms store common conformance/test_argument_table.py \
    loader/test_iterators.py loader/test_packed.py loader/test_seed_and_epoch.py engines/resume/test_resume_states.py)
# Left out of those rooms: the files that start programs, wait, or take more than a few seconds of CPU time.
QUICK_WITHOUT := $(addprefix --ignore=tests/,common/test_permutation.py health/test_trace.py health/test_trace_process.py \
    native/test_geometry_objects.py native/test_missing_module.py native/test_resize.py native/test_resize_exact.py native/test_torture.py \
    store/test_billion.py store/test_many_shards.py store/test_changed_on_disk.py store/test_sidecar.py store/test_writer.py \
    transforms/test_lightly.py transforms/test_replaced_code.py)
# Tests that read the sources, and fail by a line that no linter knows: for each commit, in seconds.
RULES := $(addprefix tests/,build/test_source_rules.py build/test_mutants.py docs/test_docstrings.py loader/test_walks.py store/test_new_kind.py)
rules: build
	@$(PY) -m pytest -q -m "not long" $(RULES)
	@$(PY) tools/architecture_lists.py

quick: $(STAMPS)/quick
	@$(MAKE) TOOLS=quick build lint-ruff lint-format lint-imports
	$(PY) -m pytest -q -m "not long" $(SPREAD) $(QUICK) $(QUICK_WITHOUT)

test-installed: $(STAMPS)/dev
	$(PY) tools/installed.py $(PYTEST)

# ---- C tests: each program against all of csrc, under address+undefined, plain, and ring and pool under thread --------

CTEST := build/ctest
CTESTS := $(patsubst tests/c/%.c,%,$(wildcard tests/c/test_*.c))
TSAN_TESTS := $(filter test_ring% test_pool% test_pipeline% test_shm% test_files% test_kept% test_converter% test_in_flight% test_open_files% test_table%,$(CTESTS))
CTEST_FLAGS := -std=gnu11 -Wall -Wextra -Werror -ffp-contract=off -pthread -g1 -Icsrc -Itests/c
# Asked when a recipe runs, not when make starts: pkg-config may be installed in between.
CTEST_CFLAGS = $(shell pkg-config --cflags libjpeg libwebp libdeflate zlib lmdb)
CTEST_LIBS = $(shell pkg-config --libs libjpeg libwebp libdeflate zlib lmdb) -lm
FLAGS_plain := -O2
# Under the sanitizers gcc takes a third of its time to choose registers well.
ANY_REGISTERS := $(if $(findstring clang,$(shell $(CC) --version)),,-fira-algorithm=priority -fira-region=one)
FLAGS_asan := -O1 -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer $(ANY_REGISTERS)
FLAGS_tsan := -O1 -fsanitize=thread -fno-omit-frame-pointer $(ANY_REGISTERS)
# The thread sanitizer's fixed layout does not fit every kernel's randomised one.
RUN_tsan := $(shell setarch -R true 2>/dev/null && echo setarch -R)
export ASAN_OPTIONS ?= detect_leaks=1:abort_on_error=0
export TSAN_OPTIONS ?= halt_on_error=1:second_deadlock_stack=1

define ctest_objects
$(CTEST)/$(1)/%.o: csrc/%.c | $(STAMPS)/system
	@mkdir -p $$(@D)
	@$(CC) $(CTEST_FLAGS) $(FLAGS_$(1)) $$(CTEST_CFLAGS) -MMD -MP -c $$< -o $$@

$(CTEST)/$(1)/libcsrc.a: $(patsubst csrc/%.c,$(CTEST)/$(1)/%.o,$(wildcard csrc/*/*.c))
	@rm -f $$@ && $(AR) rcs $$@ $$^
endef
$(foreach kind,asan tsan,$(eval $(call ctest_objects,$(kind))))

# The plain objects are the native module's own, as they are shipped.
BUILT := import sys, sysconfig; print(f"build/temp.{sysconfig.get_platform()}-{sys.implementation.cache_tag}")
$(CTEST)/plain/libcsrc.a: $(wildcard csrc/*/*.c csrc/*/*.h) setup.py | build
	@mkdir -p $(@D)
	@built=$$($(PY) -c '$(BUILT)') && rm -f $@ && $(AR) rcs $@ $(patsubst %.c,"$$built"/%.o,$(wildcard csrc/*/*.c))

define ctest_kind
$(CTEST)/$(1)/test_%: tests/c/test_%.c $(CTEST)/$(1)/libcsrc.a
	@$(CC) $(CTEST_FLAGS) $(FLAGS_$(1)) -MMD -MP -MF $$@.d $$< $(CTEST)/$(1)/libcsrc.a -o $$@ $$(CTEST_LIBS)

.PHONY: run-$(1)-%
run-$(1)-%: $(CTEST)/$(1)/%
	@$(RUN_$(1)) ./$$< || { echo "C test $$* ($(1)) failed"; exit 1; }
	@echo "C test $$* ($(1)) passed"

-include $(wildcard $(CTEST)/$(1)/*.d $(CTEST)/$(1)/*/*.d)
endef
$(foreach kind,plain asan tsan,$(eval $(call ctest_kind,$(kind))))
.SECONDARY:

include tests/fuzz/fuzz.mk

.PHONY: run-headers
run-headers: $(CTEST)/asan/libcsrc.a
	@CC="$(CC)" sh tests/c/headers.sh $<

# Address and undefined sanitizers find most; the rest of their product, and the corpora, are long. With clang the fuzz targets themselves
# begin with their corpora, under these two.
CTEST_SHORT := run-headers $(CTESTS:%=run-asan-%)
CTEST_LONG := $(CTESTS:%=run-plain-%) $(TSAN_TESTS:%=run-tsan-%) run-qemu $(if $(CLANG),$(REPLAYS_msan),$(REPLAYS_asan))
CTEST_RUNS := $(CTEST_LONG) $(CTEST_SHORT)
ctest: $(CTEST_SHORT)
ctest-long: $(CTEST_LONG)
.PHONY: ctest-beside
ctest-beside:
	+@$(MAKE) ctest

# The DCT form on processors that are not there: aarch64 (NEON), x86-64 with AVX2, and without anything. qemu has no AVX-512.
.PHONY: run-qemu
QEMU_CC := aarch64-linux-gnu-gcc
QEMU_X86 := Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid Nehalem
$(CTEST)/aarch64/test_dct_stored: tests/c/test_dct_stored.c $(filter csrc/common/%.c csrc/jpeg/%.c,$(OWN_FILES))
	@mkdir -p $(@D)
	@$(QEMU_CC) $(CTEST_FLAGS) -O2 -static $^ -o $@ -lm
ifeq ($(and $(shell command -v qemu-aarch64 2>/dev/null),$(shell command -v $(QEMU_CC) 2>/dev/null)),)
run-qemu:
	@echo "run-qemu is skipped: no qemu-aarch64 or $(QEMU_CC) (Debian: qemu-user, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)"
else
run-qemu: $(CTEST)/aarch64/test_dct_stored $(CTEST)/plain/test_dct_stored
	@qemu-aarch64 $<
ifeq ($(shell uname -m),x86_64)
	@for cpu in $(QEMU_X86); do qemu-x86_64 -cpu $$cpu $(CTEST)/plain/test_dct_stored || exit 1; done
endif
endif

# ---- products -----------------------------------------------------------------------------------------------------

# Not --quiet: warnings that are not shown would not count.
docs: build
	@mkdir -p build
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict > build/docs.log 2>&1 || { cat build/docs.log; exit 1; }
	@echo "documentation: build/site/index.html"

wheel: $(STAMPS)/dev
	@rm -rf dist
	$(PY) tools/build_wheel.py dist

bench: build
	$(PY) benchmarks/bench_loader.py

# A loader whose system packages cannot be installed is a row of the table that says so.
peers: build
	-@PYTHON=$(PYTHON) sh tools/system_packages.sh peers
	$(PY) benchmarks/bench_peers.py $(PEERS)

clean:
	rm -rf build dist demo *.egg-info fastload/_native/*.so
