#!/usr/bin/env bash
# Installs the lock servers that `towpath bench mplocks` compares us with, without root and without starting them:
#   ${XDG_DATA_HOME:-~/.local/share}/towpath/peers/lock-servers/usr/bin   etcd (Debian's etcd-server), redis-server
# with the libraries that Debian's redis-server needs. No service is set up: the bench starts each of them on a free port of the
# loopback, with its data in a temporary folder, and ends it. Servers that the system has already are used as they are.
# Needs apt-get and dpkg. Does nothing where it is there already. Remove the folder to remove them.
set -euo pipefail
base="${XDG_DATA_HOME:-$HOME/.local/share}/towpath/peers/lock-servers"
mkdir -p "$base"

get() {
    local program=$1
    shift
    if command -v "$program" >/dev/null; then
        echo "$program: the system's"
        return
    elif [ -x "$base/usr/bin/$program" ]; then
        echo "$program: already in $base/usr/bin"
        return
    elif ! command -v apt-get >/dev/null; then
        echo "$program: there is no apt-get; install it with your distribution's tools" >&2
        return 1
    fi
    echo "$program: getting $* into $base"
    local work
    work=$(mktemp -d)
    # Downloading needs no root; only knowing of the packages does, where apt has never been updated.
    if ! (cd "$work" && apt-get download -q "$@" >/dev/null 2>&1); then
        [ "$(id -u)" = 0 ] && apt-get update -q
        (cd "$work" && apt-get download -q "$@")
    fi
    for package in "$work"/*.deb; do
        dpkg -x "$package" "$base"
    done
    rm -rf "$work"
}

get etcd etcd-server
get redis-server redis-server redis-tools liblzf1 libjemalloc2
