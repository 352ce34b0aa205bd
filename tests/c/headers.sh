#!/bin/sh
# The rules of csrc that no compiler checks by itself: sh tests/c/headers.sh [libcsrc.a]
#   each header can be included alone, and all together in both orders;
#   every .c has its .h of the same name, and includes it first;
#   an include goes to the same room or to one below: engine -> store, jpeg, png, webp, resize, colour -> common;
#   each global name of the library begins with a prefix of its room.
set -eu
CC=${CC:-cc}
library=${1:-}
flags="-std=gnu11 -Wall -Wextra -Werror -Icsrc $(pkg-config --cflags libjpeg libwebp libdeflate 2>/dev/null || true)"
failed=0
fail() { echo "headers: $*" >&2; failed=1; }

headers=$(cd csrc && ls */*.h)
include() { for header in "$@"; do printf '#include "%s"\n' "$header"; done; }
compile() { $CC $flags -x c -fsyntax-only - || fail "$1"; }

for header in $headers; do include "$header" | compile "$header does not stand alone"; done
include $headers | compile "all headers together"
include $headers | sort -r | compile "all headers together, the other way round"

for source in $(cd csrc && ls */*.c); do
    header=${source%.c}.h
    [ -f "csrc/$header" ] || fail "$source has no $header"
    first=$(sed -n 's/^#include "\(.*\)"/\1/p' "csrc/$source" | head -n 1)
    [ "$first" = "$header" ] || fail "$source includes $first before its own header"
done

below() {
    case $1 in
    common) echo common ;;
    engine) echo "common jpeg png webp resize colour store engine" ;;
    *) echo "common $1" ;;
    esac
}
for file in $(cd csrc && ls */*.[ch]); do
    allowed=$(below "${file%%/*}")
    for room in $(sed -n 's/^#include "\([a-z0-9_]*\)\/.*/\1/p' "csrc/$file" | sort -u); do
        case " $allowed " in *" $room "*) ;; *) fail "$file includes a header of $room" ;; esac
    done
done

prefixes() {
    case $1 in
    common) echo 'fl_(fail|cpu|buffer|crc32c|rng|philox)' ;;
    jpeg) echo 'fl_(jpeg|libjpeg)_' ;;
    png) echo 'fl_png_' ;;
    webp) echo 'fl_webp_' ;;
    resize) echo 'fl_resize' ;;
    colour) echo 'fl_colour_' ;;
    store) echo 'fl_(store|record|files|facts|kept|in_flight|open_files|page_cache|place|table|attached|planes|varying|rle|edges)_' ;;
    engine) echo 'fl_(ring|slot|pool|worker|batch|pipeline|decoder|geometry|boxes|rotated|objects|polygons|fields|rooms|render|target|shm|ticket|map|trace|watch|augment|erase|converter|shrink|shrinker)' ;;
    esac
}
if [ -n "$library" ]; then
    for source in $(cd csrc && ls */*.c); do
        wrong=$(nm -g --defined-only "$(dirname "$library")/${source%.c}.o" | awk 'NF == 3 && $3 !~ /^__odr_asan/ { print $3 }' | grep -vE "^$(prefixes "${source%%/*}")" || true)
        [ -z "$wrong" ] || fail "$source defines" $wrong
    done
fi
[ $failed = 0 ] && echo "headers of csrc: ok"
exit $failed
