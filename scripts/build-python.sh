#!/usr/bin/env bash
# Builds the Python package: target/python/wheels/*.whl. Usage: bash scripts/build-python.sh [--with-command]
# With --with-command the wheel has the command towpath, and the MPI provider and the preload library beside it; for them it runs scripts/install-fabric.sh.
# Installs maturin in a virtual environment, target/python/venv. PYTHON names another interpreter than python3.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}/python
venv=$target/venv
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -c 'import pytest, numpy, importlib.metadata as m; m.version("maturin")' 2>/dev/null ||
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.7,<2' pytest numpy
rm -rf "$target/wheels" doors/python/python/towpath/bin
if [ "${1:-}" = --with-command ]; then
    bash scripts/install-fabric.sh
    cargo build --quiet --release --package towpath-cli --no-default-features
    built=$(dirname "$(bash scripts/build-fabric.sh --quiet)")
    bin=doors/python/python/towpath/bin
    trap 'rm -rf doors/python/python/towpath/bin' EXIT
    mkdir -p "$bin/fabric"
    install -m 755 "$built/towpath" "$bin/towpath"
    install -m 755 "$built/libtowpath_fi.so" "$bin/fabric/libtowpath-fi.so"
    install -m 755 "$built/libtowpath_preload.so" "$bin/fabric/libtowpath-preload.so"
    strip "$bin/towpath" "$bin"/fabric/*.so 2>/dev/null || true
fi
CARGO_TARGET_DIR=$target/cargo "$venv/bin/maturin" build --quiet --release --manifest-path doors/python/Cargo.toml \
    --interpreter "$venv/bin/python" --out "$target/wheels"
ls "$target/wheels"
