#!/usr/bin/env bash
# Checks the state machines of the locks by message with stateright: 3 nodes, 2 locks, a crash, a node that is cut off.
# Usage: bash ci/lock-model/run.sh [short | full | plan N] [--plant same-epoch | forgotten-waiter | early-grant | endless-loan | hasty-lender]
# Prints the number of states of each case. `full` takes an hour or more and gigabytes; it has seven plans of acquisitions, of which `plan N` is one. With a planted fault exit code 0 says that it was found.
set -euo pipefail
cd "$(dirname "$0")"
unset $(compgen -e | grep '^CARGO_PROFILE_' || true) RUSTFLAGS
# The versions that the workspace uses.
cp ../../Cargo.lock Cargo.lock
cargo run --release --quiet -- "$@"
