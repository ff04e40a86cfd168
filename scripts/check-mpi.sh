#!/usr/bin/env bash
# Builds the libfabric provider from nothing, tests it through libfabric's calls, and runs MPICH and Open MPI over it: scripts/check-mpi.sh
# Not part of .ci/run as long as that has no time for it. Installs what it needs, without root (install-peers.sh, install-fabric.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/install-peers.sh
bash scripts/install-fabric.sh
cargo build --release --quiet
bash scripts/build-fabric.sh
cargo clippy --package towpath-fabric --all-targets --features fabric --quiet -- -D warnings
cargo test --package towpath-fabric --features fabric --quiet
report=$(mktemp -d)
trap 'rm -rf "$report"' EXIT
timeout 300 target/release/towpath bench mpi --json --runs 1 --procs 2,4 --report "$report" >"$report/mpi.jsonl"
for mpi in mpich open-mpi; do
    grep "\"algorithm\":\"$mpi\"" "$report/mpi.jsonl" | grep -q '"over":"towpath"' || { echo "$mpi did not run over Towpath"; exit 1; }
done
echo "both ran over Towpath"
