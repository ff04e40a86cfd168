#!/usr/bin/env bash
# Runs the tests of the machine, the locks, the queues and DCAS on an emulated aarch64. Arguments go to the tests; after `short` as the
# first one, only those of the machine and the locks, which take a minute.
#
# qemu orders memory as its host does: what is tested is that the code for aarch64 (exclusive pairs, CASP, waiting by WFE) does what it
# should, not its orderings; those are the explorer's and loom's.
set -euo pipefail
cd "$(dirname "$0")/.."
short=
[ "${1:-}" != short ] || { short=yes; shift; }
folder=$(bash scripts/install-aarch64.sh)

export RUSTC="$folder/rustc" CARGO_TARGET_DIR="$folder/built"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu"
export CARGO_PROFILE_DEV_DEBUG=none CARGO_PROFILE_TEST_DEBUG=none CARGO_INCREMENTAL=0
"$RUSTC" --version
target=(--target aarch64-unknown-linux-gnu)
cargo test "${target[@]}" --package towpath-machine --lib -- "$@"
# qemu knows no list of robust mutexes.
cargo test "${target[@]}" --package towpath-sync --test native locks:: -- --skip posix_mutex_of_threads "$@"
[ -z "$short" ] || exit 0
cargo test "${target[@]}" --package towpath-structures --lib --test queues --test nonblocking -- "$@"
