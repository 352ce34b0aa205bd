#!/bin/bash
# Builds every fuzz target into $OUT, with its corpus beside it, from $SRC/fastload. CC, CFLAGS, LIB_FUZZING_ENGINE and SANITIZER are OSS-Fuzz's.
#
# Under the memory sanitizer only own code is built (FUZZ_OWN_CODE): libjpeg is the system's, which is not instrumented.
set -eu
cd "$SRC/fastload"

flags="-std=gnu11 -ffp-contract=off -pthread -Icsrc -Itests/c -Itests/fuzz -Wno-unused-function"
own=$(grep -LE '<(jpeglib|libdeflate|lmdb|webp/decode|zlib)\.h>|"(jpeg/(libjpeg|libjpeg_io|turn|decoder)|engine/pipeline|store/planes_zlib|engine/decoder_(png|webp)|png/(chunks|pixels)|webp/webp)\.h"' csrc/*/*.c)
if [ "${SANITIZER:-address}" = memory ]; then
    sources=$own targets=$(ls tests/fuzz/fuzz_*.c | grep -vE "fuzz_(pack|planes|png|webp)\.c") flags="$flags -DFUZZ_OWN_CODE" libraries=""
else
    sources=$(ls csrc/*/*.c) targets=$(ls tests/fuzz/fuzz_*.c)
    flags="$flags $(pkg-config --cflags libjpeg libwebp libdeflate zlib lmdb)"
    libraries="-Wl,-Bstatic $(pkg-config --libs libjpeg libwebp libdeflate zlib lmdb) -Wl,-Bdynamic"
fi

work=${WORK:-$(mktemp -d)}
objects=""
for source in $sources; do
    object=$work/$(basename "$source" .c).o
    $CC $CFLAGS $flags -c "$source" -o "$object"
    objects="$objects $object"
done
for target in $targets; do
    name=$(basename "$target" .c)
    $CC $CFLAGS $flags -c "$target" -o "$work/$name.o"
    ${CXX:-$CC} ${CXXFLAGS:-$CFLAGS} "$work/$name.o" $objects $LIB_FUZZING_ENGINE $libraries -lm -pthread -o "$OUT/$name"
    corpora=$(ls -d tests/fuzz/corpus/"${name#fuzz_}" tests/fuzz/found/"${name#fuzz_}" 2>/dev/null || true)
    [ -z "$corpora" ] || zip -q -j -r "$OUT/${name}_seed_corpus.zip" $corpora
done
