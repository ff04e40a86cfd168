#!/usr/bin/env bash
# Installs what building the libfabric provider needs, without root, into ${XDG_DATA_HOME:-~/.local/share}/towpath/fabric:
#   usr/include/rdma   libfabric's headers (Debian's libfabric-dev)
#   clang              clang's library (pip's libclang), with which bindgen reads them
# Headers that the system has already are used as they are. Needs python3 with venv, and, for the headers, apt-get or LIBFABRIC_INCLUDE.
# Does nothing where it is there already. Remove the folder to remove it all.
set -euo pipefail
base="${XDG_DATA_HOME:-$HOME/.local/share}/towpath/fabric"
mkdir -p "$base"

if [ -n "${LIBFABRIC_INCLUDE:-}" ]; then
    echo "headers: LIBFABRIC_INCLUDE=$LIBFABRIC_INCLUDE"
elif pkg-config --exists libfabric 2>/dev/null || [ -f /usr/include/rdma/fabric.h ]; then
    echo "headers: the system's"
elif [ -f "$base/usr/include/rdma/fabric.h" ]; then
    echo "headers: already in $base/usr/include"
elif command -v apt-get >/dev/null; then
    echo "headers: getting libfabric-dev into $base"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # Downloading needs no root; only knowing of the package does, where apt has never been updated.
    if ! (cd "$work" && apt-get download -q libfabric-dev 2>/dev/null); then
        [ "$(id -u)" = 0 ] && apt-get update -q
        (cd "$work" && apt-get download -q libfabric-dev)
    fi
    dpkg -x "$work"/libfabric-dev_*.deb "$base"
else
    echo "no headers: install your distribution's libfabric-dev (or libfabric-devel), or set LIBFABRIC_INCLUDE" >&2
    exit 1
fi

if [ -n "${LIBCLANG_PATH:-}" ]; then
    echo "clang's library: LIBCLANG_PATH=$LIBCLANG_PATH"
elif [ -e "$base/clang/libclang.so" ]; then
    echo "clang's library: already in $base/clang"
else
    echo "clang's library: installing pip's libclang into $base/venv"
    python3 -m venv "$base/venv"
    "$base/venv/bin/pip" install --quiet --disable-pip-version-check libclang==18.1.1
    mkdir -p "$base/clang"
    ln -sf "$("$base/venv/bin/python" -c 'import clang, pathlib; print(pathlib.Path(clang.__file__).parent / "native" / "libclang.so")')" "$base/clang/libclang.so"
fi
command -v cc >/dev/null || echo "no C compiler (cc): its headers are needed too" >&2
