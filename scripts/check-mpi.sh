#!/usr/bin/env bash
# Tests the libfabric provider through libfabric's calls, and runs MPICH and Open MPI over it: scripts/check-mpi.sh [RANKS [TIMES]]
#   RANKS, TIMES   with how many ranks mpi4py's own test suite runs, and how often (2,4 and 1; none: not at all): the tests that fail are compared with ci/mpi4py/
# Installs what it needs, without root (install-peers.sh, install-fabric.sh). About eight minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/install-peers.sh
bash scripts/install-fabric.sh
cargo build --release --quiet --features iceoryx2,fabric
cargo test --package towpath-fabric --features fabric --quiet --test ofi --test ofi_service --test ofi_deaths --test ofi_hostile
report=$(mktemp -d)
trap 'rm -rf "$report"' EXIT
timeout 300 target/release/towpath bench mpi --json --runs 1 --procs 2 --report "$report" >"$report/mpi.jsonl"
for mpi in mpich open-mpi; do
    # One grep: of two, the second ends at its first line, and now and then the first is then killed by the closed pipe, which pipefail takes for a failure.
    grep -Eq "(\"algorithm\":\"$mpi\".*\"over\":\"towpath\"|\"over\":\"towpath\".*\"algorithm\":\"$mpi\")" "$report/mpi.jsonl" || { echo "$mpi did not run over Towpath"; exit 1; }
done
echo "both ran over Towpath"
[ "${1:-}" = none ] || bash scripts/mpi4py-compare.sh mpich,open-mpi "${1:-2,4}" "${2:-1}"
