#!/usr/bin/env bash
# Builds the wheel with the command in it, installs it in a fresh virtual environment, and uses it there: Python, `towpath run`, `towpath preload`, and an MPI program.
# Usage: bash scripts/check-wheel.sh [--built | FOLDER]: takes the wheel that there is, or the command and its libraries from a folder, as
# scripts/build-python.sh does, and then builds no more than scripts/check-python.sh has. Gets mpich and mpi4py by pip.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
--built) ;;
"") bash scripts/build-python.sh --with-command ;;
*)
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=${CARGO_PROFILE_RELEASE_OPT_LEVEL:-1}
    export CARGO_PROFILE_RELEASE_LTO=${CARGO_PROFILE_RELEASE_LTO:-off} CARGO_PROFILE_RELEASE_CODEGEN_UNITS=${CARGO_PROFILE_RELEASE_CODEGEN_UNITS:-16}
    bash scripts/build-python.sh --with-command "$1"
    ;;
esac
wheel=$(realpath "${CARGO_TARGET_DIR:-target}"/python/wheels/towpath-*.whl)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel" mpich==5.0.2 mpi4py==4.1.2
cd "$work"
export PATH=$work/venv/bin:$PATH
python3 -c 'import towpath; queue = towpath.Queue(); queue.put("it works"); print(queue.get())'
towpath --version
towpath run -n 2 python3 -c 'import towpath; print("rank", towpath.World().enter())'
towpath preload -- python3 -c 'import threading; threads = [threading.Thread() for _ in range(4)]; [t.start() for t in threads]; [t.join() for t in threads]; print("threads, too")'
towpath mpirun -n 2 python3 -m mpi4py.bench helloworld
