#!/usr/bin/env bash
# Builds the Python package, installs it, and runs its tests. Usage: bash scripts/check-python.sh [PYTEST'S ARGUMENTS]
set -euo pipefail
cd "$(dirname "$0")/.."
# Checked for what it does, not for how fast it is.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=${CARGO_PROFILE_RELEASE_OPT_LEVEL:-1}
export CARGO_PROFILE_RELEASE_LTO=${CARGO_PROFILE_RELEASE_LTO:-off} CARGO_PROFILE_RELEASE_CODEGEN_UNITS=${CARGO_PROFILE_RELEASE_CODEGEN_UNITS:-16}
cargo clippy --quiet --manifest-path doors/python/Cargo.toml --all-targets -- -D warnings
bash scripts/build-python.sh
target=${CARGO_TARGET_DIR:-target}/python
"$target/venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$target"/wheels/towpath-*.whl
# As a user has it: nothing but the wheel, thus without NumPy.
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
"${PYTHON:-python3}" -m venv "$bare/venv"
"$bare/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$target"/wheels/towpath-*.whl
(cd "$bare" && venv/bin/python -c 'import towpath; queue = towpath.get_context().Queue(); queue.put(["it", b"works"]); assert queue.get() == ["it", b"works"]')
"$target/venv/bin/python" -m pytest -q -p no:cacheprovider doors/python/tests "$@"
