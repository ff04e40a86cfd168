#!/usr/bin/env bash
# A message to a task in tokio, there and back, beside an eventfd. Usage: bash ci/tokio-program/run.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")"
# Profiles of the calling script are not this program's.
unset $(compgen -e | grep '^CARGO_PROFILE_' || true) RUSTFLAGS
# The versions that the workspace uses, and what the other program outside it has compiled already.
cp ../../Cargo.lock Cargo.lock
export CARGO_TARGET_DIR=../outside-program/target
cargo build --release --quiet
timeout 120 "$CARGO_TARGET_DIR/release/tokio-program" "${1:-5000}"
