#!/usr/bin/env bash
# The 8-byte round trip between two processes of a program that depends on Towpath, by the program's release profile.
# Usage: bash ci/outside-program/run.sh [ROUNDS [ROUND_TRIPS [PROFILES]]] (default,lto-off,lto). Prints medians over the rounds, which are interleaved, and their ratios to LTO with one codegen unit.
set -euo pipefail
cd "$(dirname "$0")"
rounds=${1:-7} trips=${2:-200000}
# Profiles of the calling script are not this program's.
unset $(compgen -e | grep '^CARGO_PROFILE_' || true) RUSTFLAGS
# The versions that the workspace uses.
cp ../../Cargo.lock Cargo.lock
IFS=, read -ra profiles <<<"${3:-default,lto-off,lto}"
build() {
    case $1 in
    default) set -- ;;
    lto-off) set -- CARGO_PROFILE_RELEASE_LTO=off ;;
    lto) set -- CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 ;;
    esac
    env "$@" cargo build --release --quiet --target-dir target
}
figures=$(mktemp -d)
trap 'rm -rf "$figures"' EXIT
for profile in "${profiles[@]}"; do
    build "$profile"
    cp target/release/outside-program "$figures/$profile"
done
algorithms=(towpath lock-free)
for ((round = 0; round < rounds; round++)); do
    for algorithm in "${algorithms[@]}"; do
        for profile in "${profiles[@]}"; do
            timeout 120 "$figures/$profile" "$algorithm" "$trips" >>"$figures/$profile.$algorithm"
        done
    done
done
median() {
    sort -n "$1" | awk '{ all[NR] = $1 } END { print NR % 2 ? all[(NR + 1) / 2] : (all[NR / 2] + all[NR / 2 + 1]) / 2 }'
}
printf '8 bytes there and back, medians of %d rounds of %d round trips; ratio to LTO with one codegen unit\n' "$rounds" "$trips"
for algorithm in "${algorithms[@]}"; do
    floor=$([ ! -e "$figures/lto.$algorithm" ] || median "$figures/lto.$algorithm")
    for profile in "${profiles[@]}"; do
        median "$figures/$profile.$algorithm" | awk -v a="$algorithm" -v p="$profile" -v f="$floor" '{ printf "%-10s %-8s %7.1f ns  %s\n", a, p, $1, f ? sprintf("%.2f", $1 / f) : "-" }'
    done
done
