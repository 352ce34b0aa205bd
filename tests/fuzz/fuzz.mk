# Fuzz targets: tests/fuzz/fuzz_*.c over csrc. See tests/fuzz/README.md.
#
#   make fuzz SECONDS=600               each target in turn for so long, under libFuzzer, ASan and UBSan; needs clang
#   make fuzz TARGETS=fuzz_pack         one of them
#   make fuzz-replay                    the corpus, under ASan and UBSan and (with clang) MSan

SECONDS ?= 60
FUZZ := build/fuzz
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
TARGETS ?= $(FUZZ_TARGETS)
# What does not need libjpeg or zlib, which the memory sanitizer would have to have compiled.
FUZZ_OWN := $(filter-out fuzz_pack fuzz_planes fuzz_png fuzz_webp fuzz_fields,$(FUZZ_TARGETS))
OWN_FILES := $(shell grep -LE '<(jpeglib|libdeflate|lmdb|webp/decode|zlib)\.h>|"(jpeg/(libjpeg|libjpeg_io|turn|decoder)|engine/pipeline|store/planes_zlib|engine/decoder_(png|webp)|png/(chunks|pixels)|webp/webp)\.h"' csrc/*/*.c)
CLANG ?= $(firstword $(foreach name,clang clang-19 clang-16 clang-15 clang-14,$(shell command -v $(name) 2>/dev/null)))
FUZZ_FLAGS := -Itests/fuzz -Wno-unused-function -Wno-unused-but-set-variable
FLAGS_fuzz := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_msan := -O1 -fsanitize=memory -fno-omit-frame-pointer -DFUZZ_OWN_CODE
# Another libjpeg-turbo: FUZZ_JPEG_CFLAGS="-I.../include" FUZZ_JPEG_LIBS=".../libjpeg.a -lwebp -ldeflate -lz".
FUZZ_JPEG_CFLAGS ?= $(shell pkg-config --cflags libjpeg libwebp libdeflate zlib)
FUZZ_JPEG_LIBS ?= $(shell pkg-config --libs libjpeg libwebp libdeflate zlib)

define fuzz_kind
$(FUZZ)/$(1)/%.o: csrc/%.c | $(STAMPS)/system
	@mkdir -p $$(@D)
	@$(CLANG) $(CTEST_FLAGS) $(FLAGS_$(1)) $$(FUZZ_JPEG_CFLAGS) -MMD -MP -c $$< -o $$@

$(FUZZ)/$(1)/libcsrc.a: $(patsubst csrc/%.c,$(FUZZ)/$(1)/%.o,$(if $(filter msan,$(1)),$(OWN_FILES),$(wildcard csrc/*/*.c)))
	@rm -f $$@ && $(AR) rcs $$@ $$^

-include $(wildcard $(FUZZ)/$(1)/*.d $(FUZZ)/$(1)/*/*.d)
endef
$(foreach kind,fuzz msan,$(eval $(call fuzz_kind,$(kind))))

$(FUZZ)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(FUZZ)/fuzz/libcsrc.a
	@$(CLANG) $(CTEST_FLAGS) $(FLAGS_fuzz) -fsanitize=fuzzer $(FUZZ_FLAGS) $(FUZZ_JPEG_CFLAGS) -MMD -MP -MF $@.d $< \
	    $(FUZZ)/fuzz/libcsrc.a -o $@ $(FUZZ_JPEG_LIBS) $(shell pkg-config --libs lmdb) -lm
$(FUZZ)/msan/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c $(FUZZ)/msan/libcsrc.a
	@$(CLANG) $(CTEST_FLAGS) $(FLAGS_msan) $(FUZZ_FLAGS) -MMD -MP -MF $@.d $< tests/fuzz/replay.c $(FUZZ)/msan/libcsrc.a -o $@ -lm
$(FUZZ)/asan/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c $(CTEST)/asan/libcsrc.a
	@mkdir -p $(@D)
	@$(CC) $(CTEST_FLAGS) $(FLAGS_asan) $(FUZZ_FLAGS) $(CTEST_CFLAGS) -MMD -MP -MF $@.d $< tests/fuzz/replay.c \
	    $(CTEST)/asan/libcsrc.a -o $@ $(CTEST_LIBS)

# ---- the corpus, replayed

# Of a target; what is found stays for ever. Files are inputs of two targets.
corpora_of = $(1:fuzz_%=%) $(if $(filter fuzz_pack,$(1)),jpeg) $(if $(filter fuzz_dct,$(1)),index)
corpus_of = $(wildcard $(foreach name,$(corpora_of),tests/fuzz/corpus/$(name) tests/fuzz/found/$(name)))
.PHONY: fuzz fuzz-replay
replay-asan-%: $(FUZZ)/asan/%
	@./$< $(call corpus_of,$*) > $<.log 2>&1 || { cat $<.log; echo "corpus of $* (asan) failed"; exit 1; }
	@echo "corpus of $* (asan) passed"
replay-msan-%: $(FUZZ)/msan/%
	@./$< $(call corpus_of,$*) > $<.log 2>&1 || { cat $<.log; echo "corpus of $* (msan) failed"; exit 1; }
	@echo "corpus of $* (msan) passed"
REPLAYS_asan := $(FUZZ_TARGETS:%=replay-asan-%)
REPLAYS_msan := $(if $(CLANG),$(FUZZ_OWN:%=replay-msan-%))
fuzz-replay: $(REPLAYS_asan) $(REPLAYS_msan)

# ---- fuzzing: new inputs go to build/fuzz/corpus, crashes to build/fuzz/crashes

fuzz: $(if $(CLANG),$(TARGETS:%=run-fuzz-%),fuzz-needs-clang)
# The corpus and then new inputs, together 10 seconds of each target: part of `make test-long`, in the time that its tests wait.
.PHONY: fuzz-a-little
fuzz-a-little:
ifeq ($(CLANG),)
	@echo "the fuzz targets are skipped: no clang (Debian: clang libclang-rt-dev llvm)"
else
	@mkdir -p $(FUZZ)
	@nice -n 19 $(MAKE) fuzz SECONDS=10 -j$(JOBS) --output-sync=target > $(FUZZ)/log 2>&1 || { grep -B 60 -m 1 '\*\*\* ' $(FUZZ)/log; exit 1; }
	@echo "fuzz targets: $$(grep -c '^stat::number_of_executed_units' $(FUZZ)/log) ran for 10 s each"
endif
.PHONY: fuzz-needs-clang $(FUZZ_TARGETS:%=run-fuzz-%)
fuzz-needs-clang:
	@echo "make fuzz needs clang with its libFuzzer (Debian: apt install clang libclang-rt-dev llvm)"; exit 1
$(FUZZ_TARGETS:%=run-fuzz-%): run-fuzz-%: $(FUZZ)/fuzz/%
	@mkdir -p $(FUZZ)/corpus/$* $(FUZZ)/crashes
	./$< -max_total_time=$(SECONDS) -timeout=25 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=$(FUZZ)/crashes/$*- \
	    $(wildcard tests/fuzz/$(@:run-fuzz-fuzz_%=%).dict) $(FUZZ)/corpus/$* $(call corpus_of,$*)
