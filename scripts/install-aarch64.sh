#!/usr/bin/env bash
# Lays a compiler for aarch64 into a folder, and prints the folder: target/aarch64, or TOWPATH_AARCH64.
#
# What it needs comes from Debian's packages: the cross linker and qemu-user are installed; a compiler with the standard library of aarch64
# is Debian's own of its unstable release, since rustup's are in no package: it is laid into the folder, with the libraries that it runs
# with, and nothing of it is installed. FOLDER/rustc is the compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${TOWPATH_AARCH64:-target/aarch64}
release=sid
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
    apt-get update -qq
    apt-get install -y --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
fi >&2

# A view of the unstable release beside the system's own, which stays as it is.
if [ ! -e "$folder/complete" ]; then
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
    mkdir -p "$folder"/{lists,cache/archives}/partial "$folder/packages" "$folder/root"
    echo "deb [arch=amd64,arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$folder/sources.list"
    view=(-qq -o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=/nonexistent -o "Dir::State::lists=$folder/lists"
        -o "Dir::Cache=$folder/cache" -o APT::Architectures::=amd64 -o APT::Architectures::=arm64)
    apt-get "${view[@]}" update
    needs() { apt-cache "${view[@]}" depends "$1" | sed -n 's/^ *Depends: //p'; }
    std=$(needs libstd-rust-dev | grep '^libstd-rust-')
    llvm=$(needs "$std" | grep '^libllvm')
    wanted=(rustc "$std" libstd-rust-dev libstd-rust-dev:arm64 "$llvm" $(needs "$llvm") libbsd0 libmd0 libtinfo6)
    (cd "$folder/packages" && apt-get "${view[@]}" -o APT::Sandbox::User=root download "${wanted[@]}")
    for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder/root"; done
    rm -r "$folder/packages" "$folder/lists" "$folder/cache"
    cat >"$folder/rustc" <<END
#!/bin/sh
exec $folder/root/usr/lib64/ld-linux-x86-64.so.2 --library-path $folder/root/usr/lib/x86_64-linux-gnu \\
    $folder/root/usr/bin/rustc --sysroot $folder/root/usr "\$@"
END
    chmod +x "$folder/rustc"
    touch "$folder/complete"
fi >&2
echo "$folder"
