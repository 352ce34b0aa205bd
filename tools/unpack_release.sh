#!/bin/sh
# Unpacks a release of a library: tools/unpack_release.sh NAME URL CHECKSUM FOLDER. Only a tarball with this SHA-256 is unpacked. Needs curl.
set -eu

tarball=$4/$1.tar.gz
curl -fsSL --retry 3 -o "$tarball" "$2"
echo "$3  $tarball" | sha256sum -c - >/dev/null || {
    echo "fastload: $1.tar.gz is not the file that its checksum was taken of; nothing is built" >&2
    exit 1
}
tar -xzf "$tarball" -C "$4"
