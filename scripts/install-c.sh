#!/usr/bin/env bash
# Installs Towpath for C and C++: bash scripts/install-c.sh [PREFIX]
# PREFIX/lib gets libtowpath.so and libtowpath.a, a pkg-config file and a CMake package; PREFIX/include towpath.h and
# towpath.hpp; PREFIX/share/man the manual's pages. Default: /usr/local. With DESTDIR the files go below that folder.
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
# The crate is an ordinary one in the workspace; here it is made into libraries for C.
cargo rustc --quiet --release --package towpath-c --lib --crate-type cdylib,staticlib -- -C codegen-units=1 -C link-arg=-Wl,-soname,libtowpath.so.0
built=${CARGO_TARGET_DIR:-target}/release

install -d "$to/lib/pkgconfig" "$to/lib/cmake/towpath" "$to/include" "$to/share/man/man3"
install -m 755 "$built/libtowpath_c.so" "$to/lib/libtowpath.so.$version"
ln -sf "libtowpath.so.$version" "$to/lib/libtowpath.so.0"
ln -sf libtowpath.so.0 "$to/lib/libtowpath.so"
install -m 644 "$built/libtowpath_c.a" "$to/lib/libtowpath.a"
install -m 644 doors/c/include/towpath.h doors/c/include/towpath-tsan.h doors/c/include/towpath.hpp "$to/include"
package=doors/c/package
fill() { sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" -e "s|@NATIVE_LIBS@|-lgcc_s -lpthread -lm -ldl -lrt|" "$1"; }
fill "$package/towpath.pc.in" >"$to/lib/pkgconfig/towpath.pc"
fill "$package/towpath-config-version.cmake.in" >"$to/lib/cmake/towpath/towpath-config-version.cmake"
install -m 644 "$package/towpath-config.cmake" "$to/lib/cmake/towpath"
awk -v out="$to/share/man/man3" -v version="$version" -f "$package/man.awk" doors/c/include/towpath.h
echo "Towpath $version for C and C++ is installed below $to"
