#!/bin/sh
# Builds and installs a release of libjpeg-turbo: tools/build_libjpeg_turbo.sh VERSION PREFIX [archive]. Needs cmake and a C compiler and, on
# x86-64, nasm. The workflows use it for wheels and for versions that the system does not have. Only a tarball with the checksum below is built,
# and only with SIMD code: without it every image would take three times as long.
#
# "archive" is for wheels, which must stay small: libjpeg.a alone, of which the linker takes what fastload calls (a section for each function),
# without what fastload never asks for: lossless files, colour quantisation, upsampling merged with colour conversion, the legacy DCTs, arithmetic
# encoding. libjpeg-turbo lets a build switch these off, in jmorecfg.h. -O2 is as fast as upstream's -O3 where loops become vectors as in -O3.
set -eu

version=$1
prefix=$2
kind=${3:-shared}

case $version in
    3.1.0) checksum=9564c72b1dfd1d6fe6274c5f95a8d989b59854575d4bbee44ade7bc17aa9bc93 ;;
    3.1.4.1) checksum=ecae8008e2cc9ade2f2c1bb9d5e6d4fb73e7c433866a056bd82980741571a022 ;;
    *) echo "fastload: no checksum of libjpeg-turbo $version is known; add it to $0" >&2; exit 1 ;;
esac

if command -v apt-get >/dev/null 2>&1; then
    sudo apt-get update -qq
    sudo apt-get install -y -qq --no-install-recommends cmake nasm gcc make curl ca-certificates >/dev/null
elif command -v dnf >/dev/null 2>&1; then
    dnf install -y -q cmake gcc make curl
    if [ "$(uname -m)" = x86_64 ]; then
        dnf install -y -q nasm || dnf install -y -q --enablerepo=powertools nasm
    fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$(dirname "$0")/unpack_release.sh" "libjpeg-turbo-$version" \
    "https://github.com/libjpeg-turbo/libjpeg-turbo/releases/download/$version/libjpeg-turbo-$version.tar.gz" \
    "$checksum" "$work"
if [ "$kind" = archive ]; then
    unused='D_LOSSLESS|QUANT_1PASS|QUANT_2PASS|UPSAMPLE_MERGING|DCT_IFAST|DCT_FLOAT'
    sed -i -E "s/^#define ($unused)_SUPPORTED//" "$work/libjpeg-turbo-$version/src/jmorecfg.h"
    set -- -DENABLE_SHARED=0 -DCMAKE_POSITION_INDEPENDENT_CODE=1 -DWITH_TURBOJPEG=0 -DWITH_TOOLS=0 -DWITH_ARITH_ENC=0 \
        -DCMAKE_C_FLAGS_RELEASE="-O2 -fvect-cost-model=dynamic -DNDEBUG -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables"
else
    set -- -DENABLE_STATIC=0
fi
cmake -S "$work/libjpeg-turbo-$version" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib -DREQUIRE_SIMD=1 "$@"
cmake --build "$work/build" -j "$(nproc)"
if [ -w "$prefix" ]; then
    cmake --install "$work/build"
else
    sudo cmake --install "$work/build"
fi
ldconfig 2>/dev/null || sudo ldconfig
