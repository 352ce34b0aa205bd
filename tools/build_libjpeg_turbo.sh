#!/bin/sh
# Builds and installs a release of libjpeg-turbo: tools/build_libjpeg_turbo.sh VERSION PREFIX. Needs cmake, a C compiler and, for its speed on
# x86-64, nasm; the workflows use it for versions that the system does not have.
set -eu

version=$1
prefix=$2

if command -v apt-get >/dev/null 2>&1; then
    sudo apt-get update -qq
    sudo apt-get install -y -qq --no-install-recommends cmake nasm gcc make curl ca-certificates >/dev/null
elif command -v dnf >/dev/null 2>&1; then
    dnf install -y -q cmake nasm gcc make curl
elif command -v yum >/dev/null 2>&1; then
    yum install -y -q cmake nasm gcc make curl
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
curl -fsSL "https://github.com/libjpeg-turbo/libjpeg-turbo/releases/download/$version/libjpeg-turbo-$version.tar.gz" | tar -xz -C "$work"
cmake -S "$work/libjpeg-turbo-$version" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib -DENABLE_STATIC=0
cmake --build "$work/build" -j "$(nproc)"
if [ -w "$prefix" ]; then
    cmake --install "$work/build"
else
    sudo cmake --install "$work/build"
fi
ldconfig 2>/dev/null || sudo ldconfig
