#!/usr/bin/env bash
# Installs Towpath for C and C++: bash scripts/install-c.sh [PREFIX]
# PREFIX/lib gets libtowpath.so and libtowpath.a, a pkg-config file and a CMake package; PREFIX/include towpath.h and
# towpath.hpp; PREFIX/share/man the manual's pages. For programs of Active Messages II: libtowpath-am.so and
# libtowpath-am.a, a pkg-config file, the targets towpath::am and towpath::am-static of the CMake package, am2(3), ammpi(3) and ammpi_spmd(3), and PREFIX/include/towpath-am with am2.h, ammpi.h and ammpi_spmd.h. Default: /usr/local. With DESTDIR the files go below that folder.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${1:-/usr/local}
case $prefix in /*) ;; *) echo "the prefix must be an absolute path, not \"$prefix\"" >&2; exit 2 ;; esac
to=${DESTDIR:-}$prefix
if [ "$(id -u)" != 0 ] && ! mkdir -p "$to" 2>/dev/null; then
    echo "$to can't be written: choose another prefix, or become root" >&2
    exit 1
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The crates are ordinary ones in the workspace; here they are made into libraries for C.
library() { # PACKAGE NAME
    cargo rustc --quiet --release --package "$1" --lib --crate-type cdylib,staticlib -- -C codegen-units=1 -C link-arg="-Wl,-soname,$2.so.0"
}
library towpath-c libtowpath
library towpath-am2 libtowpath-am
built=${CARGO_TARGET_DIR:-target}/release

install -d "$to/lib/pkgconfig" "$to/lib/cmake/towpath" "$to/include" "$to/share/man/man3"
libraries() { # BUILT NAME
    install -m 755 "$built/$1.so" "$to/lib/$2.so.$version"
    ln -sf "$2.so.$version" "$to/lib/$2.so.0"
    ln -sf "$2.so.0" "$to/lib/$2.so"
    install -m 644 "$built/$1.a" "$to/lib/$2.a"
}
libraries libtowpath_c libtowpath
libraries libtowpath_am2 libtowpath-am
install -d "$to/include/towpath-am"
install -m 644 doors/am2/include/am2.h doors/am2/include/ammpi.h doors/am2/include/ammpi_spmd.h "$to/include/towpath-am"
install -m 644 doors/c/include/towpath.h doors/c/include/towpath-tsan.h doors/c/include/towpath.hpp "$to/include"
package=doors/c/package
fill() { sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" -e "s|@NATIVE_LIBS@|-lgcc_s -lpthread -lm -ldl -lrt|" "$1"; }
fill "$package/towpath.pc.in" >"$to/lib/pkgconfig/towpath.pc"
fill doors/am2/package/towpath-am.pc.in >"$to/lib/pkgconfig/towpath-am.pc"
fill "$package/towpath-config-version.cmake.in" >"$to/lib/cmake/towpath/towpath-config-version.cmake"
install -m 644 "$package/towpath-config.cmake" "$to/lib/cmake/towpath"
awk -v out="$to/share/man/man3" -v version="$version" -f "$package/man.awk" doors/c/include/towpath.h
awk -v out="$to/share/man/man3" -v version="$version" -f doors/am2/package/man.awk \
    doors/am2/include/am2.h doors/am2/include/ammpi.h doors/am2/include/ammpi_spmd.h
echo "Towpath $version for C and C++ is installed below $to"
