#!/usr/bin/env bash
# Runs mpi4py's own test suite over Towpath, and compares what fails with what fails over the MPI's own transport:
#   scripts/mpi4py-compare.sh [--record | --record-towpath] IMPLS RANKS [TIMES]
#     IMPLS, RANKS   lists with commas: mpich,open-mpi 1,2,4,8
#     TIMES          so many runs of each, one after the other (1); a run without end fails
#     --record          first runs the suite over the MPI's own transport as well, and writes both lists into ci/mpi4py/
#     --record-towpath  writes the list over Towpath only
# Without --record the recorded list of the own transport (ci/mpi4py/IMPL-own-RANKS.txt, or that of the most ranks below) is what counts, and beside it ci/mpi4py/IMPL-never.txt: what this MPI
# cannot do over libfabric at all, whatever the provider; the file's comments say why.
# Intel MPI: SUITE_OPTIONS='-e test_dynproc', which ends in a segmentation fault over its own transport.
# Ends with 1 if over Towpath a test fails that does not fail over the MPI's own transport. Where the failures over Towpath are recorded too (ci/mpi4py/IMPL-towpath-RANKS.txt) it says what has changed. Options for runtests.py: SUITE_OPTIONS.
set -euo pipefail
record=
case ${1:-} in
    --record) record=both; shift ;;
    --record-towpath) record=towpath; shift ;;
esac
[ $# -ge 2 ] || { sed -n '2,11p' "$0"; exit 2; }
cd "$(dirname "$0")/.."
lists=ci/mpi4py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
read -ra options <<<"${SUITE_OPTIONS:-}"

# The list of what fails in a run, in its own file; its time and its end, on the terminal.
suite() {
    local impl=$1 ranks=$2 over=$3 list=$4 start=$SECONDS end
    # Its exit code only says that something fails; what fails is in the list.
    SUITE_LOG="$list.log" bash scripts/mpi4py-suite.sh "$impl" "$ranks" "$over" "${options[@]}" >"$list.out" 2>&1 || true
    end=$(tail -n 1 "$list.out")
    grep -E '^(FAIL|ERROR): ' "$list.out" | sed -E 's/^(FAIL|ERROR): //' | LC_ALL=C sort -u >"$list" || true
    printf '%-9s %2d ranks over %-8s %5d s, %3d fail\n' "$impl" "$ranks" "$over" $((SECONDS - start)) "$(wc -l <"$list")"
    # A run that ends without a verdict of each rank counts as one failure of its own.
    if ! grep -qE '^ +[0-9]+ (OK|FAILED)' "$list.out"; then
        echo "the run did not come to its end" >>"$list"
        tail -n 6 "$list.log" | sed 's/^/    /'
    fi
}

for impl in ${1//,/ }; do
    for ranks in ${2//,/ }; do
        known="$lists/$impl-own-$ranks.txt"
        if [ "$record" = both ]; then
            suite "$impl" "$ranks" own "$work/own"
            cp "$work/own" "$known"
        fi
        # Not recorded over the own transport with so many ranks: what fails with fewer ranks counts.
        for fewer in $(seq $((ranks - 1)) -1 1); do
            [ -e "$known" ] || known="$lists/$impl-own-$fewer.txt"
        done
        [ -e "$known" ] || { echo "no list $known: make it with --record" >&2; exit 2; }
        for time in $(seq "${3:-1}"); do
            suite "$impl" "$ranks" towpath "$work/ours"
            ours="$lists/$impl-towpath-$ranks.txt"
            [ -n "$record" ] && [ "$time" = 1 ] && cp "$work/ours" "$ours"
            [ ! -e "$ours" ] || diff "$ours" "$work/ours" | sed -n "s/^</    recorded, and passes now:/p; s/^>/    not recorded:/p" || true
            cat "$known" "$lists/$impl-never.txt" 2>/dev/null | grep -v '^#' | LC_ALL=C sort -u >"$work/known" || true
            if ! new=$(LC_ALL=C comm -13 "$work/known" "$work/ours") || [ -n "$new" ]; then
                echo "over Towpath only:"; echo "$new" | sed 's/^/    /'
                # What each of them printed, from one of the ranks.
                while read -r failure; do
                    grep -F -m 1 -A 24 ": $failure" "$work/ours.log" | sed 's/^/    | /' || true
                done <<<"$new"
                [ -n "${KEEP_LOGS:-}" ] && cp "$work/ours.log" "$KEEP_LOGS/$impl-$ranks-$time.log"
                bad=1
            fi
        done
    done
done
exit $bad
