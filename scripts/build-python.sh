#!/usr/bin/env bash
# Builds the Python package: target/python/wheels/*.whl.
# Usage: bash scripts/build-python.sh [--with-command [FOLDER] | --aarch64]
# With --with-command the wheel has the command towpath, and the MPI provider and the library of `towpath preload` beside it: those in
# FOLDER (target/release, after a build with all of them), or new ones, for which it runs scripts/install-fabric.sh.
# With --aarch64 it is a wheel for aarch64, without the command, by the compiler of scripts/install-aarch64.sh.
# Installs maturin in a virtual environment, target/python/venv. PYTHON names another interpreter than python3.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}/python
venv=$target/venv
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
tools=(maturin==1.16.0 pytest==9.2.0 numpy==2.4.6)
"$venv/bin/python" -c 'import sys, importlib.metadata as m; assert all(m.version(n) == v for n, v in (t.split("==") for t in sys.argv[1:]))' "${tools[@]}" 2>/dev/null ||
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${tools[@]}"
rm -rf doors/python/python/towpath/bin
case ${1:-} in
--with-command)
    built=${2:-}
    if [ -z "$built" ]; then
        bash scripts/install-fabric.sh
        cargo build --quiet --release --package towpath-cli --no-default-features --package towpath-pthread
        built=$(dirname "$(bash scripts/build-fabric.sh --quiet)")
    fi
    bin=doors/python/python/towpath/bin
    trap 'rm -rf doors/python/python/towpath/bin' EXIT
    mkdir -p "$bin/fabric"
    install -m 755 "$built/towpath" "$bin/towpath"
    install -m 755 "$built/libtowpath_pthread.so" "$bin/libtowpath-pthread.so"
    install -m 755 "$built/libtowpath_fi.so" "$bin/fabric/libtowpath-fi.so"
    install -m 755 "$built/libtowpath_preload.so" "$bin/fabric/libtowpath-preload.so"
    strip "$bin/towpath" "$bin"/*.so "$bin"/fabric/*.so 2>/dev/null || true
    ;;
--aarch64)
    # Beside the wheels for this machine.
    folder=$(bash scripts/install-aarch64.sh)
    RUSTC=$folder/rustc CARGO_TARGET_DIR=$folder/python CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        "$venv/bin/maturin" build --quiet --release --manifest-path doors/python/Cargo.toml \
        --target aarch64-unknown-linux-gnu --out "$target/wheels-aarch64"
    ls "$target/wheels-aarch64"
    exit
    ;;
esac
rm -rf "$target/wheels"
CARGO_TARGET_DIR=$target/cargo "$venv/bin/maturin" build --quiet --release --manifest-path doors/python/Cargo.toml \
    --interpreter "$venv/bin/python" --out "$target/wheels"
ls "$target/wheels"
