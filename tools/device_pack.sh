#!/bin/sh
# Fills .device/, an ignored folder that travels with the checkout to a machine with a GPU and no network, for tools/device_check.py:
#
#   include, lib, link   libjpeg-turbo, libwebp, libdeflate and zlib, of Debian's packages: headers, what is loaded, and what is linked against alone
#   pkg-config           a program in the place of pkg-config, which knows these libraries
#   wheels               Python packages that the machine lacks
#   native               the native module for CPython 3.12, for a machine that cannot build it
#   corpus/in500         photographs, CLASS/IMAGE
#
# Needs apt-get, dpkg, pip, a C compiler and, for native, Python 3.12: PYTHON312=python3.12. Photographs are of $FASTLOAD_SHARED, else of
# ../shared. What is in .device/ follows from this checkout and from the versions below.
set -eu

MOST_MB=45
PACKAGES="kornia==0.9.0 kornia_rs==0.2.0 lmdb==3.0.0"
PURE="PyTurboJPEG==1.8.3" # published as source alone
DEBS="libjpeg62-turbo libjpeg62-turbo-dev libturbojpeg0 libwebp7 libwebp-dev libdeflate0 libdeflate-dev zlib1g zlib1g-dev"

root=$(cd "$(dirname "$0")/.." && pwd)
python312=${PYTHON312:-python3.12}
photos=${FASTLOAD_SHARED:-$root/../shared}/corpus/in500
[ -d "$photos" ] || { echo "no photographs: set FASTLOAD_SHARED to a folder that has corpus/in500" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/device
mkdir -p "$out/include" "$out/lib" "$out/link" "$out/native" "$out/wheels" "$work/debs"
cd "$work/debs"

# ---- libraries

# shellcheck disable=SC2086
apt-get -qq -o APT::Sandbox::User=root download $DEBS
for deb in *.deb; do
    dpkg -x "$deb" "$work/root"
done
found=$work/root/usr/lib/$(gcc -print-multiarch)
cp "$work"/root/usr/include/*.h "$work"/root/usr/include/*/*.h "$out/include/"
cp -R "$work/root/usr/include/webp" "$out/include/"
cp -L "$found/libjpeg.so.62" "$found/libturbojpeg.so.0" "$found/libwebp.so.7" "$found/libdeflate.so.0" "$out/lib/"
cp -L "$work"/root/lib/*/libz.so.1 "$out/link/" # the machine's own is loaded

cat >"$out/pkg-config" <<'END'
#!/bin/sh
# In the place of pkg-config: libjpeg, libwebp, libdeflate and zlib as they lie beside this file.
here=$(cd "$(dirname "$0")" && pwd)
for word; do
    case $word in
        --cflags) printf '%s ' "-I$here/include" ;;
        --libs)
            printf '%s ' "-L$here/lib" "-L$here/link" -l:libjpeg.so.62 -l:libwebp.so.7 -l:libdeflate.so.0 -l:libz.so.1 "-Wl,-rpath,$here/lib"
            ;;
        --exists | libjpeg | libwebp | libdeflate | zlib) ;;
        *) exit 1 ;;
    esac
done
echo
END

# ---- Python packages

pip() {
    python3 -m pip --quiet --disable-pip-version-check "$@"
}
# shellcheck disable=SC2086
pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$out/wheels" $PACKAGES
# shellcheck disable=SC2086
pip wheel --no-deps -w "$out/wheels" $PURE

# ---- the native module, built as on the machine: with these libraries alone

if command -v "$python312" >/dev/null 2>&1; then
    "$python312" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip --quiet --disable-pip-version-check install "setuptools>=77,<82" "Cython>=3,<4"
    mkdir "$work/tree"
    (cd "$root" && cp -r csrc fastload licenses setup.py pyproject.toml LICENSE README.md "$work/tree/")
    rm -f "$work"/tree/fastload/_native/*.so
    # shellcheck disable=SC2016
    (cd "$work/tree" && PKG_CONFIG="sh $out/pkg-config" LDFLAGS='-s -Wl,-rpath,$ORIGIN/../../.device/lib' \
        "$work/venv/bin/python" setup.py -q build_ext --inplace)
    cp "$work"/tree/fastload/_native/core.*.so "$out/native/"
else
    echo "no $python312 here: a machine that cannot build the native module will have none (PYTHON312=...)" >&2
fi

# ---- photographs

mkdir -p "$out/corpus/in500"
cp -r "$photos"/* "$out/corpus/in500/"
find "$out" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +

size=$(du -s --apparent-size -B 1000 "$out" | cut -f1)
(cd "$out" && du -s --apparent-size -B 1000 ./*) | awk '{ printf "%s %.1f, ", substr($2, 3), $1 / 1000 } END { print "in MB" }'
[ "$size" -le "$((MOST_MB * 1000))" ] || { echo "more than $MOST_MB MB: it would not travel" >&2; exit 1; }
rm -rf "$root/.device"
mv "$out" "$root/.device"
