#!/bin/sh
# Builds and installs a release of libdeflate as an archive: tools/build_libdeflate.sh VERSION PREFIX. Needs cmake and a C compiler. For wheels,
# which hold its decompressor alone. Only a tarball with the checksum below is built.
set -eu

version=$1
prefix=$2

case $version in
    1.25) checksum=d11473c1ad4c57d874695e8026865e38b47116bbcb872bfc622ec8f37a86017d ;;
    *) echo "fastload: no checksum of libdeflate $version is known; add it to $0" >&2; exit 1 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$(dirname "$0")/unpack_release.sh" "libdeflate-$version" \
    "https://github.com/ebiggers/libdeflate/archive/refs/tags/v$version.tar.gz" \
    "$checksum" "$work"
cmake -S "$work/libdeflate-$version" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_POSITION_INDEPENDENT_CODE=1 -DLIBDEFLATE_BUILD_SHARED_LIB=0 -DLIBDEFLATE_BUILD_GZIP=0 \
    -DCMAKE_C_FLAGS="-ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables"
cmake --build "$work/build" -j "$(nproc)"
cmake --install "$work/build"
