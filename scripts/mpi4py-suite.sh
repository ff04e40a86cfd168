#!/usr/bin/env bash
# Runs mpi4py's own test suite:   scripts/mpi4py-suite.sh IMPL RANKS [towpath|own] [options of its runtests.py…]
#   IMPL  mpich, open-mpi or intel, as installed by scripts/install-peers.sh
#   towpath (the default) sends everything through the provider in FI_PROVIDER_PATH, or in target/release/fabric, or in target/release, which is built if there is none; own: through the MPI's own transport.
# Prints the tests that failed, one a line, and "OK" or "FAILED"; the whole output goes to the file named in SUITE_LOG, if it is set. TIMEOUT: seconds (900, or 1800 with 8 ranks or more).
# FETCH_ONLY=yes: runs nothing.
# Fetches mpi4py's source distribution once, and puts mpi4py and numpy into the MPI's virtual environment.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,8p' "$0"; exit 2; }
impl=$1 ranks=$2 over=${3:-towpath}
shift 2; [ $# -gt 0 ] && shift
data="${XDG_DATA_HOME:-$HOME/.local/share}/towpath"
peer="$data/peers/$impl" suite="$data/mpi4py"
[ -x "$peer/bin/mpiexec" ] || { echo "no $impl in $peer: run scripts/install-peers.sh" >&2; exit 2; }
"$peer/bin/python" -c 'import mpi4py, numpy' 2>/dev/null || "$peer/bin/pip" install --quiet --disable-pip-version-check mpi4py==4.1.2 numpy==2.4.6
version=$("$peer/bin/python" -c 'import mpi4py; print(mpi4py.__version__)')
if [ ! -d "$suite/mpi4py-$version/test" ]; then
    mkdir -p "$suite"
    "$peer/bin/pip" download --quiet --disable-pip-version-check --no-binary :all: --no-deps --dest "$suite" "mpi4py==$version" >&2
    tar -xzf "$suite/mpi4py-$version.tar.gz" -C "$suite"
fi
[ -z "${FETCH_ONLY:-}" ] || exit 0
cd "$(dirname "$0")/.."
options=()
if [ "$impl" = open-mpi ]; then
    options+=(--oversubscribe)
    [ "$(id -u)" = 0 ] && options+=(--allow-run-as-root)
fi
if [ "$over" = towpath ]; then
    built="${CARGO_TARGET_DIR:-$PWD/target}/release"
    [ -e "$built/fabric/libtowpath-fi.so" ] && built="$built/fabric"
    # Not built yet, or not under the name that libfabric looks for.
    [ -n "${FI_PROVIDER_PATH:-}" ] || [ -e "$built/libtowpath-fi.so" ] || built=$(bash scripts/build-fabric.sh)
    export FI_PROVIDER=towpath FI_PROVIDER_PATH="${FI_PROVIDER_PATH:-$built}"
    [ -e "$FI_PROVIDER_PATH/libtowpath-fi.so" ] || { echo "no provider in $FI_PROVIDER_PATH: unset FI_PROVIDER_PATH, or run scripts/build-fabric.sh" >&2; exit 2; }
    case $impl in
        mpich)
            export MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1
            for preload in "$FI_PROVIDER_PATH"/libtowpath[-_]preload.so; do
                [ ! -e "$preload" ] || export LD_PRELOAD="$preload"
            done
            ;;
        open-mpi) export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi ;;
        intel) export I_MPI_FABRICS=ofi I_MPI_OFI_PROVIDER=towpath MPIR_CVAR_CH4_OFI_ENABLE_RMA=0 ;;
    esac
fi
log=${SUITE_LOG:-$(mktemp)}
set +e
cd "$suite/mpi4py-$version"
timeout "${TIMEOUT:=$((ranks < 8 ? 900 : 1800))}" "$peer/bin/mpiexec" "${options[@]}" -n "$ranks" "$peer/bin/python" test/runtests.py --no-builddir -v "$@" >"$log" 2>&1
code=$?
set -e
grep -hoE '(FAIL|ERROR): [A-Za-z_0-9]+ \([^)]*\)' "$log" | sort -u || true
grep -hE '^(Ran|OK|FAILED)' "$log" | sort | uniq -c || true
case $code in
    0) echo OK ;;
    124) echo "FAILED: no end after $TIMEOUT s"; exit 1 ;;
    *) echo "FAILED: exit code $code"; tail -n 5 "$log"; exit 1 ;;
esac
