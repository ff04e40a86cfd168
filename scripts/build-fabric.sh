#!/usr/bin/env bash
# Builds the libfabric provider and gives it the name under which libfabric looks for it: target/release/fabric/libtowpath-fi.so.
# Prints the folder, for FI_PROVIDER_PATH. First: scripts/install-fabric.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --package towpath-fabric --package towpath-preload --features towpath-fabric/fabric "$@" >&2
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/release/fabric"
ln -sf ../libtowpath_fi.so "$target/release/fabric/libtowpath-fi.so"
ln -sf ../libtowpath_preload.so "$target/release/fabric/libtowpath-preload.so"
cd "$target/release/fabric" && pwd
