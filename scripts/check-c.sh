#!/usr/bin/env bash
# Checks the door for C and C++: builds the libraries, installs them in a folder of its own, compiles the programs in
# doors/c/checks and doors/am2/checks against them and runs these. Needs cc, c++ and, for the packages' part, pkg-config and cmake; what is
# missing is said. Usage: bash scripts/check-c.sh [cost]; with "cost" it compares the cost of calls with Rust's, too.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cc >/dev/null && command -v c++ >/dev/null || { echo "a C and a C++ compiler are missing: apt-get install g++"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
bash scripts/install-c.sh "$prefix"
cargo build --quiet --release --package towpath-c --features check --examples
[ "${1:-}" != cost ] || cargo build --quiet --release --package towpath-am2 --features check --examples
built=${CARGO_TARGET_DIR:-target}/release
include=(-I "$prefix/include")
shared=(-L "$prefix/lib" -ltowpath -lpthread "-Wl,-rpath,$prefix/lib")
static=("$prefix/lib/libtowpath.a" -lgcc_s -lpthread -lm -ldl)
strict=(-Wall -Wextra -Wpedantic -Werror -O1 -g)
checks=doors/c/checks

compile() { # NAME OPTIONS…: of a program in C
    local name=$1
    shift
    cc -std=c11 "${strict[@]}" "${include[@]}" "$checks/${name%%-*}.c" -o "$work/$name" "$@"
}
for name in deaths threads share race endpoints; do compile "$name" "${shared[@]}"; done
c++ -std=c++20 "${strict[@]}" "${include[@]}" "$checks/classes.cpp" -o "$work/classes" "${shared[@]}"
timeout 200 "$work/deaths"
timeout 200 "$work/threads"
timeout 200 "$work/classes"
# The third language, if scripts/check-python.sh has installed it.
python=${CARGO_TARGET_DIR:-target}/python/venv/bin/python
if "$python" -c 'import towpath' 2>/dev/null; then
    timeout 200 "$work/share" "$built/examples/partner" "$python" "$checks/share.py"
else
    echo "Python's package is not installed (scripts/check-python.sh): left out"
    timeout 200 "$work/share" "$built/examples/partner"
fi

launcher=$built/towpath
[ -x "$launcher" ] || cargo build --quiet --release --package towpath-cli --no-default-features
timeout 200 "$launcher" run -n 3 -- "$work/endpoints"

# Programs of Active Messages II: calls in one process, then ranks under the launcher.
for name in am_calls am_numbered am_ping am_bulk am_end; do
    cc -std=c11 -D_GNU_SOURCE "${strict[@]}" -I "$prefix/include/towpath-am" "doors/am2/checks/$name.c" -o "$work/$name" \
        -L "$prefix/lib" -ltowpath-am "-Wl,-rpath,$prefix/lib"
done
timeout 100 "$work/am_calls"
timeout 100 "$work/am_numbered"
timeout 100 "$work/am_ping" 10 P >"$work/am.txt" # a job of one rank
timeout 200 "$launcher" run -n 4 -- "$work/am_ping" 2000 P
timeout 200 "$launcher" run -n 4 -- "$work/am_ping" 2000 B >"$work/am.txt"
grep -q "requests sent: 6004 " "$work/am.txt"
timeout 200 "$launcher" run -n 3 -- "$work/am_bulk"
ends_with() { # CODE COMMAND…: of a job that is to fail
    local code=0 expected=$1
    shift
    timeout 200 "$@" >"$work/am.txt" 2>"$work/am-errors.txt" || code=$?
    [ "$code" = "$expected" ] || { cat "$work/am.txt" "$work/am-errors.txt"; echo "$* ended with $code, not $expected"; exit 1; }
}
ends_with 7 "$launcher" run -n 3 --on-death report -- "$work/am_end" exit
[ "$(grep -c 'ends with 41' "$work/am.txt")" = 3 ]
ends_with 7 "$launcher" run -n 2 --on-death report -- "$work/am_end" signal
[ "$(grep -c 'ends with 143' "$work/am.txt")" = 2 ]
ends_with 137 "$launcher" run -n 3 --on-death report -- "$work/am_end" lost
grep -q 'four messages came back' "$work/am.txt"
[ "$(grep -c 'ends with 0' "$work/am.txt")" = 2 ]
ends_with 134 "$work/am_end" fatal
grep -q 'fatal error of Active Messages: 2 of 3 parts are missing' "$work/am-errors.txt"
echo '#include <ammpi_spmd.h>
int main(void) { return AMMPI_SPMDIsWorker(NULL) - 1; }' >"$work/plus.cpp"
c++ -std=c++20 "${strict[@]}" -I "$prefix/include/towpath-am" "$work/plus.cpp" -o "$work/plus" -L "$prefix/lib" -ltowpath-am "-Wl,-rpath,$prefix/lib"
"$work/plus"

awk '/^```c$/ { inside = 1; next } inside && /^```$/ { exit } inside' docs/am2.md >"$work/am_page.c"
cc -std=c11 "${strict[@]}" -I "$prefix/include/towpath-am" "$work/am_page.c" -o "$work/am_page" -L "$prefix/lib" -ltowpath-am "-Wl,-rpath,$prefix/lib"
[ "$(timeout 100 "$launcher" run -n 3 -- "$work/am_page")" = "the sum is 3" ]

for sanitizer in thread address,undefined; do
    if ! echo 'int main(void) { return 0; }' | cc -x c - "-fsanitize=$sanitizer" -o "$work/empty" 2>/dev/null || ! "$work/empty" 2>/dev/null; then
        echo "-fsanitize=$sanitizer does not work here: left out"
        continue
    fi
    for name in threads-s race-s deaths-s; do compile "$name" "-fsanitize=$sanitizer" "${static[@]}"; done
    echo "-- -fsanitize=$sanitizer"
    timeout 200 "$work/threads-s"
    timeout 200 "$work/race-s"
    timeout 200 "$work/deaths-s"
    [ "$sanitizer" = thread ] || continue
    compile race-planted -DPLANTED -fsanitize=thread "${static[@]}"
    if timeout 200 "$work/race-planted" >"$work/planted.txt" 2>&1; then echo "the planted race was not found"; exit 1; fi
    grep -q "data race" "$work/planted.txt"
done

# The example of the page compiles and runs.
sed -n '/^```c$/,/^```$/p' docs/c.md | sed '/^```/d' >"$work/page.c"
cc -std=c11 -D_GNU_SOURCE "${strict[@]}" "${include[@]}" "$work/page.c" -o "$work/page" "${shared[@]}"
"$work/page"

# A user's way in: pkg-config, CMake, the manual.
cat >"$work/user.c" <<'END'
#include <towpath.h>
int main(void) { return tp_mutex_size(TP_USERS, 0) == 0; }
END
cat >"$work/am_user.c" <<'END'
#include <am2.h>
int main(void) { return AM_Init() != AM_OK || AM_MaxShort() < 16 || AM_Terminate() != AM_OK; }
END
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    # shellcheck disable=SC2046
    cc "$work/user.c" $(pkg-config --cflags --libs towpath) "-Wl,-rpath,$prefix/lib" -o "$work/user"
    "$work/user"
    # shellcheck disable=SC2046
    cc "$work/user.c" $(pkg-config --cflags towpath) "$prefix/lib/libtowpath.a" $(pkg-config --static --libs-only-l towpath | sed 's/-ltowpath//') -o "$work/user"
    "$work/user"
else
    echo "pkg-config is missing: left out"
fi
if command -v cmake >/dev/null; then
    cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(towpath 0.1 REQUIRED)
add_executable(with-shared user.c)
target_link_libraries(with-shared towpath::towpath)
add_executable(with-static user.c)
target_link_libraries(with-static towpath::static)
add_executable(am-shared am_user.c)
target_link_libraries(am-shared towpath::am)
add_executable(am-static am_user.c)
target_link_libraries(am-static towpath::am-static)
END
    cmake -S "$work" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
    cmake --build "$work/cmake" >/dev/null
    "$work/cmake/with-shared"
    "$work/cmake/with-static"
    "$work/cmake/am-shared"
    "$work/cmake/am-static"
else
    echo "cmake is missing: left out"
fi
for page in towpath tp_strerror tp_mutex tp_cond tp_rwlock tp_sem tp_barrier tp_event tp_queue tp_messages tp_broadcast tp_world tp_endpoint tp_structures am2 ammpi ammpi_spmd; do
    grep -q '^\.SH DESCRIPTION' "$prefix/share/man/man3/$page.3"
done
# Each call and each variable of Active Messages II has a page, and no page has code that no program uses.
nm -D --defined-only "$prefix/lib/libtowpath-am.so" | awk '/ AM(MPI|2)?_/ { print $3 }' >"$work/am_names.txt"
[ "$(wc -l <"$work/am_names.txt")" -gt 200 ]
while read -r name; do
    case $name in AM_*[!0-9][1-9] | AM_*[!0-9]1[0-5]) continue ;; esac
    [ -f "$prefix/share/man/man3/$name.3" ] || { echo "$name has no page"; exit 1; }
done <"$work/am_names.txt"
if grep -qx '}\|.*EXTERNC.*' "$prefix"/share/man/man3/am{2,mpi,mpi_spmd}.3; then echo "a page has a brace, or a macro, by itself"; exit 1; fi

if [ "${1:-}" = cost ]; then
    cc -O2 -shared -fPIC "${include[@]}" "$checks/cost.c" -o "$work/libcost.so" "${shared[@]}"
    "$built/examples/cost" "$work/libcost.so" "${RUNS:-101}"
    cc -O2 -shared -fPIC -I "$prefix/include/towpath-am" doors/am2/checks/am_cost.c -o "$work/libam-cost.so" \
        -L "$prefix/lib" -ltowpath-am "-Wl,-rpath,$prefix/lib"
    "$launcher" run -n 2 -- "$built/examples/am2_cost" "$work/libam-cost.so" "${AM_RUNS:-2001}"
fi
echo "C and C++: well"
