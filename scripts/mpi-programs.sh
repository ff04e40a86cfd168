#!/usr/bin/env bash
# Runs MPI programs of other people's, unmodified, with `towpath mpirun`:   scripts/mpi-programs.sh [IMPLS [RANKS]]
#   IMPLS  as installed by scripts/install-peers.sh (mpich,open-mpi)     RANKS  how many processes (4)
# mpi4py's demonstrations (from its source distribution: futures, one-sided counters, spawned processes, threads, the examples of the MPI reference, the OSU benchmarks),
# schwimmbad's pool, and kernels in C in the manner of NAS (scripts/mpi/kernels.c) and of threads that all use their MPI (threads.c), whose results are checked. What fails over Towpath runs once more over the
# MPI's own transport. Ends with 1 if anything fails over Towpath only. Needs target/release/towpath and scripts/build-fabric.sh. TIMEOUT: seconds a program may take (120).
# LARGE=yes: messages of 4.5 GiB too (large.c), which take 9 GiB of memory.
set -euo pipefail
cd "$(dirname "$0")/.."
data="${XDG_DATA_HOME:-$HOME/.local/share}/towpath"
towpath=$(realpath "${CARGO_TARGET_DIR:-target}")/release/towpath
ranks=${2:-4}
impls=${1:-mpich,open-mpi}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# One program: its name, how many ranks, its command. Standard input: a number, which some ask for.
program() {
    local name=$1 n=$2 start=$SECONDS
    shift 2
    if echo 100 | timeout "${TIMEOUT:-120}" "$towpath" mpirun --mpiexec "$peer/bin/mpiexec" "${options[@]}" -n "$n" "$@" >"$work/out" 2>&1 \
        && ! grep -q "no process has loaded" "$work/out"; then
        printf '%-9s ok      %-26s %3d s\n' "$impl" "$name" $((SECONDS - start))
    elif echo 100 | timeout "${TIMEOUT:-120}" "$peer/bin/mpiexec" "${options[@]}" -n "$n" "$@" >"$work/own" 2>&1; then
        printf '%-9s FAILED  %-26s %3d s\n' "$impl" "$name" $((SECONDS - start))
        tail -n 8 "$work/out" | sed 's/^/    /'
        bad=1
    else
        printf '%-9s no      %-26s fails over its own transport too\n' "$impl" "$name"
    fi
}

for impl in ${impls//,/ }; do
    peer="$data/peers/$impl"
    python="$peer/bin/python"
    options=()
    if [ "$impl" = open-mpi ]; then
        options=(--oversubscribe)
        [ "$(id -u)" = 0 ] && options+=(--allow-run-as-root)
    fi
    # Fetches mpi4py's sources, if need be.
    FETCH_ONLY=yes bash scripts/mpi4py-suite.sh "$impl" 1
    "$python" -c 'import schwimmbad' 2>/dev/null || "$peer/bin/pip" install --quiet --disable-pip-version-check schwimmbad==0.4.2
    demo=$(echo "$data"/mpi4py/mpi4py-*/demo)

    "$peer/bin/mpicc" -O2 -o "$work/kernels" scripts/mpi/kernels.c -lm
    for n in 1 2 "$ranks" 7; do program "kernels on $n" "$n" "$work/kernels"; done
    "$peer/bin/mpicc" -O2 -pthread -o "$work/threads" scripts/mpi/threads.c
    for n in 2 "$ranks"; do program "threads on $n" "$n" "$work/threads"; done
    if [ -n "${LARGE:-}" ]; then
        "$peer/bin/mpicc" -O2 -o "$work/large" scripts/mpi/large.c
        program "messages over 4 GiB" 2 "$work/large"
    fi
    "$peer/bin/mpicc" -o "$work/hello" "$demo/helloworld.c"
    program helloworld.c "$ranks" "$work/hello"
    program helloworld.py "$ranks" "$python" "$demo/helloworld.py"
    program mpi4py.bench "$ranks" "$python" -m mpi4py.bench ringtest -l 100 -n 1000
    for file in cpi-cco cpi-rma; do program "$file" "$ranks" "$python" "$demo/compute-pi/$file.py"; done
    program cpi-dpm 1 "$python" "$demo/compute-pi/cpi-dpm.py" "$ranks"
    # They read each other.
    cd "$demo/mpi-ref-v1"
    for file in ex-*.py; do program "reference, $(basename "$file" .py)" "$ranks" "$python" "$file"; done
    cd - >/dev/null
    # Not nxtval-mpi3: it sets its window to 0 without a barrier, while others may already count in it.
    for file in "$demo"/nxtval/nxtval-{threads,onesided,scalable}.py; do program "$(basename "$file" .py)" "$ranks" "$python" "$file"; done
    program reductions "$ranks" "$python" "$demo/reductions/test_reductions.py" -q
    program sequential "$ranks" "$python" "$demo/sequential/test_seq.py"
    program threads 1 "$python" "$demo/threads/sendrecv.py"
    for file in latency bw bibw; do program "osu_$file" 2 "$python" "$demo/osu_$file.py"; done
    for file in barrier bcast allgather alltoall; do program "osu_$file" "$ranks" "$python" "$demo/osu_$file.py"; done
    program futures "$ranks" "$python" -m mpi4py.futures "$demo/futures/test_futures.py" -q
    program schwimmbad "$ranks" "$python" "$PWD/scripts/mpi/pool.py"
done
exit $bad
