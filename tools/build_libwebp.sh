#!/bin/sh
# Builds and installs a release of libwebp as an archive: tools/build_libwebp.sh VERSION PREFIX. Needs make and a C compiler. For wheels, which
# hold its decoder alone. Only a tarball with the checksum below is built.
set -eu

version=$1
prefix=$2

case $version in
    1.5.0) checksum=7d6fab70cf844bf6769077bd5d7a74893f8ffd4dfb42861745750c63c2a5c92c ;;
    *) echo "fastload: no checksum of libwebp $version is known; add it to $0" >&2; exit 1 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$(dirname "$0")/unpack_release.sh" "libwebp-$version" \
    "https://storage.googleapis.com/downloads.webmproject.org/releases/webp/libwebp-$version.tar.gz" \
    "$checksum" "$work"
cd "$work/libwebp-$version"
# A section for each function, and neither scaling nor tables for unwinding: what a wheel does not need stays out of it.
export CFLAGS="-O2 -DWEBP_REDUCE_SIZE -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables"
./configure --quiet --prefix="$prefix" --disable-shared --enable-static --with-pic --disable-libwebpmux --disable-libwebpdemux
make -s -j "$(nproc)"
make -s install
