#!/usr/bin/env bash
# Builds the Python package: target/python/wheels/*.whl. Usage: bash scripts/build-python.sh
# Installs maturin in a virtual environment, target/python/venv. PYTHON names another interpreter than python3.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}/python
venv=$target/venv
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -c 'import pytest, numpy, importlib.metadata as m; m.version("maturin")' 2>/dev/null ||
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.7,<2' pytest numpy
rm -rf "$target/wheels"
CARGO_TARGET_DIR=$target/cargo "$venv/bin/maturin" build --quiet --release --manifest-path doors/python/Cargo.toml \
    --interpreter "$venv/bin/python" --out "$target/wheels"
ls "$target/wheels"
