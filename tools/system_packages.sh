#!/bin/sh
# Installs the system packages that the build needs and this machine lacks: a C compiler, Python's headers and venv
# module, pkg-config, libjpeg-turbo, libwebp, libdeflate, zlib, liblmdb. Without root, sudo or apt it says which are missing, and fails.
# With "peers", also what other loaders want of the system: ffcv is built against OpenCV, and SPDL loads FFmpeg.
#
#   PYTHON=python3 tools/system_packages.sh [peers]
set -eu

PYTHON=${PYTHON:-python3}
WANTED=${1:-build}

if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "fastload: no $PYTHON here; install Python 3.10 to 3.14 (Debian/Ubuntu: apt install python3), or set PYTHON" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))'; then
    echo "fastload: $PYTHON is $("$PYTHON" -V 2>&1), and fastload needs Python 3.10 to 3.14; set PYTHON to one" >&2
    exit 1
fi

has_pc() {
    command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "$1"
}

has_library() {
    PATH=$PATH:/sbin ldconfig -p | grep -q "$1\\.so"
}

# Prints what is missing: each line is one need, as the packages that meet it, the first that apt knows to be taken.
needs() {
    command -v cc >/dev/null 2>&1 || echo "gcc"
    echo '#include <stdlib.h>' | cc -E - >/dev/null 2>&1 || echo "libc6-dev"
    command -v pkg-config >/dev/null 2>&1 || echo "pkg-config"
    has_pc libjpeg || echo "libjpeg62-turbo-dev libjpeg-turbo8-dev"
    has_pc libturbojpeg || echo "libturbojpeg0-dev libturbojpeg-dev"
    has_pc libwebp || echo "libwebp-dev"
    has_pc libdeflate || echo "libdeflate-dev"
    has_pc zlib || echo "zlib1g-dev"
    has_pc lmdb || echo "liblmdb-dev"
    "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1 || echo "python3-venv"
    "$PYTHON" -c 'import os, sysconfig as s, sys; sys.exit(not os.path.exists(os.path.join(s.get_path("include"), "Python.h")))' ||
        echo "python3-dev"
    [ "$WANTED" = peers ] || return 0
    command -v c++ >/dev/null 2>&1 || echo "g++"
    has_pc opencv4 || echo "libopencv-dev"
    has_library libavfilter || echo "libavfilter8 libavfilter9 libavfilter10"
    has_library libavdevice || echo "libavdevice59 libavdevice60 libavdevice61"
}

missing=$(needs)
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root="sudo"
else
    as_root="nobody"
fi
if [ "$as_root" = nobody ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "fastload: these system packages are missing, and this user cannot install them (Debian's names; a second" >&2
    echo "name on a line is Ubuntu's for the same):" >&2
    echo "$missing" | sed 's/^/    /' >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
echo "$missing" | while read -r candidates; do
    chosen=""
    for package in $candidates; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            chosen=$package
            break
        fi
    done
    if [ -z "$chosen" ]; then
        echo "fastload: apt knows none of: $candidates" >&2
        exit 1
    fi
    echo "installing $chosen"
    $as_root apt-get install -y -qq --no-install-recommends "$chosen" </dev/null >/dev/null
done

left=$(needs)
if [ -n "$left" ]; then
    echo "fastload: still missing after apt-get install:" >&2
    echo "$left" | sed 's/^/    /' >&2
    exit 1
fi
