#!/usr/bin/env bash
# Installs Concurrency Kit (Debian's libck-dev and libck0), which `towpath bench locks|rw-locks|queues|barriers|counter` measures
# beside ours where it is installed, without root:
#   ${XDG_DATA_HOME:-~/.local/share}/towpath/peers/concurrency-kit/usr/include, usr/lib
# Its functions are inline: the bench compiles a few lines of C around them, with cc.
# Needs apt-get and dpkg. Does nothing where it is there already. Remove the folder to remove it.
set -euo pipefail
base="${XDG_DATA_HOME:-$HOME/.local/share}/towpath/peers/concurrency-kit"
if [ -e "$base/usr/include/ck_spinlock.h" ]; then
    echo "Concurrency Kit: already in $base"
elif [ -e /usr/include/ck_spinlock.h ] || [ -e /usr/local/include/ck_spinlock.h ]; then
    echo "Concurrency Kit: the system's"
elif ! command -v apt-get >/dev/null; then
    echo "Concurrency Kit: there is no apt-get; install it with your distribution's tools" >&2
    exit 1
else
    echo "Concurrency Kit: getting libck-dev, libck0 into $base"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # Downloading needs no root; only knowing of the packages does, where apt has never been updated.
    if ! (cd "$work" && apt-get download -q libck-dev libck0 >/dev/null 2>&1); then
        [ "$(id -u)" = 0 ] && apt-get update -q
        (cd "$work" && apt-get download -q libck-dev libck0)
    fi
    mkdir -p "$base"
    for package in "$work"/*.deb; do
        dpkg -x "$package" "$base"
    done
fi
command -v cc >/dev/null || echo "no C compiler (cc): install one, or it can't be measured"
