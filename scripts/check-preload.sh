#!/usr/bin/env bash
# Runs unmodified programs of Debian's with and without `towpath preload` and compares their results. Says which programs are missing.
# Usage: bash scripts/check-preload.sh [short | install | speed]
#   short    a few seconds for each of the programs that most machines have
#   install  installs what is missing first (apt-get, as root)
#   speed    compares the speed of locks with libc's, too, interleaved; quiet machines only
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-all}
if [ "$mode" = install ]; then
    packages=(python3 xz-utils zstd sqlite3 pigz redis-server redis-tools memcached stress-ng nginx-light ffmpeg mariadb-server default-jre-headless curl golang-go gcc libc6-dev)
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${packages[@]}"
fi
built=${CARGO_TARGET_DIR:-target}/release
if ! [ -x "$built/towpath" ] || ! [ -e "$built/libtowpath_pthread.so" ]; then
    cargo build --quiet --release --package towpath-cli --no-default-features --package towpath-pthread
fi
towpath=$(realpath "$built/towpath")
work=$(mktemp -d)
servers=()
trap 'for server in "${servers[@]:-}"; do [ -z "$server" ] || kill "$server" 2>/dev/null || true; done; rm -rf "$work"' EXIT
done_=() missing=()

has() { # PROGRAM…: whether all are there; notes the first that is not
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { missing+=("$program"); return 1; }
    done
}
same() { # NAME COMMAND…: a program whose output has to be the same with and without, under both kinds of waiting
    local name=$1 policy
    shift
    timeout 300 "$@" >"$work/without" 2>"$work/errors" || { missing+=("$name (fails without, too)"); return 0; }
    for policy in adaptive park spin-then-yield; do
        timeout 300 "$towpath" preload --waiting "$policy" -- "$@" >"$work/with" || { echo "$name fails, --waiting $policy"; exit 1; }
        cmp "$work/without" "$work/with" || { echo "$name differs, --waiting $policy"; exit 1; }
    done
    done_+=("$name")
}
waits_for() { # COMMAND…: until it succeeds
    local try
    for try in $(seq 100); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "no answer: $*"
    return 1
}

# Data that can be compressed, and are no two times the same.
seq 1 "$([ "$mode" = short ] && echo 400000 || echo 4000000)" >"$work/data"

if has python3; then
    cat >"$work/threads.py" <<'PYTHON'
import concurrent.futures, hashlib, queue, threading, zlib
values, lock, total = queue.Queue(8), threading.RLock(), 0
def take():
    global total
    while (value := values.get()) is not None:
        with lock, lock:
            total += value
takers = [threading.Thread(target=take) for _ in range(8)]
for taker in takers: taker.start()
for value in range(4000): values.put(value)
for _ in takers: values.put(None)
for taker in takers: taker.join()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    sums = list(pool.map(lambda n: hashlib.sha256(zlib.compress(bytes([n]) * 200000)).hexdigest(), range(64)))
barrier, event = threading.Barrier(6), threading.Event()
waiters = [threading.Thread(target=lambda: (barrier.wait(), event.wait(0.01))) for _ in range(6)]
for waiter in waiters: waiter.start()
for waiter in waiters: waiter.join()
print(total, sums)
PYTHON
    same python3 python3 "$work/threads.py"
    "$towpath" preload --report --picture "$work/locks.html" -- python3 "$work/threads.py" >/dev/null 2>"$work/report"
    grep -q "hand-overs" "$work/report" && grep -q "</svg>" "$work/locks.html" || { echo "no report or picture"; exit 1; }
    # A program of the program has locks of its own, and leaves the trace alone.
    "$towpath" preload --trace "$work/outer" -- python3 -c "import subprocess; subprocess.run(['$towpath', 'preload', '--', 'true'], check=True)"
    grep -aq "bin/python3" "$work/outer" || { echo "a program of the program has taken its trace"; exit 1; }
fi
if has xz; then
    same "xz -T4" xz -T4 -1 --block-size=1MiB -c "$work/data"
    # It closes standard error before it ends.
    "$towpath" preload --report -- xz -T4 -1 --block-size=1MiB -c "$work/data" 2>"$work/report" >/dev/null
    grep -q "towpath preload: process" "$work/report" || { echo "no report of xz"; exit 1; }
fi
has zstd && same "zstd -T4" zstd -q -T4 -3 -c "$work/data"
has pigz && same "pigz" pigz -p 8 -c "$work/data"
if has sqlite3; then
    cat >"$work/queries.sql" <<'SQL'
PRAGMA threads = 4;
CREATE TABLE t (a INTEGER, b TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) INSERT INTO t SELECT (i * 7919) % 200003, hex(i) FROM n;
CREATE INDEX x ON t (a);
SELECT count(*), sum(a), min(b), max(b) FROM t;
SELECT a, b FROM t ORDER BY b LIMIT 10;
SQL
    same sqlite3 sqlite3 ":memory:" ".read $work/queries.sql"
fi
if [ "$mode" != short ]; then
    if has stress-ng; then
        # Each checks what it does. The one of mutexes says now and then, with the library and without,
        # that it could make no threads: its operations were done before.
        cat >"$work/stress-ng" <<'STRESS'
#!/bin/sh
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    said=$(stress-ng "$@" 2>&1) && exit
    case $said in *"could not create any pthreads"*) ;; *) break ;; esac
done
echo "$said" >&2
exit 1
STRESS
        chmod +x "$work/stress-ng"
        for stressor in mutex pthread; do
            same "stress-ng --$stressor" "$work/stress-ng" --quiet "--$stressor" 4 "--$stressor-ops" 2000 --verify
        done
    fi
    if has java; then
        cat >"$work/Threads.java" <<'JAVA'
import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
class Threads {
    static long total; static synchronized void add(long n) { total += n; }
    public static void main(String[] a) throws Exception {
        var pool = Executors.newFixedThreadPool(16); var all = new ArrayList<Future<?>>();
        for (int i = 0; i < 200; i++) { long n = i; all.add(pool.submit(() -> { for (int k = 0; k < 1000; k++) add(n); })); }
        for (var one : all) one.get();
        pool.shutdown();
        System.out.println(total + " " + IntStream.range(0, 1000000).parallel().mapToLong(n -> n % 7).sum());
    }
}
JAVA
        same "a JVM" java -Xmx256m "$work/Threads.java"
    fi
    has ffmpeg && same ffmpeg ffmpeg -v error -threads 4 -f lavfi -i testsrc=duration=2:size=320x240:rate=25 -f framemd5 -
    if has nginx curl; then
        mkdir -p "$work/nginx"
        cp "$work/data" "$work/nginx/data.txt"
        cat >"$work/nginx.conf" <<CONF
worker_processes 2; daemon off; pid $work/nginx/pid; error_log $work/nginx/error.log;
thread_pool default threads=16;
events { worker_connections 64; }
http { access_log off; aio threads; directio 512k; client_body_temp_path $work/nginx/b; proxy_temp_path $work/nginx/p; fastcgi_temp_path $work/nginx/f; uwsgi_temp_path $work/nginx/u; scgi_temp_path $work/nginx/s;
  server { listen unix:$work/nginx.sock; root $work/nginx; } }
CONF
        chmod -R a+rX "$work"
        for with in "" "$towpath preload --"; do
            # shellcheck disable=SC2086
            $with nginx -e "$work/nginx/error.log" -c "$work/nginx.conf" &
            server=$!
            servers+=("$server")
            waits_for test -S "$work/nginx.sock"
            for _ in 1 2 3 4 5 6; do curl -s --unix-socket "$work/nginx.sock" http://x/data.txt | cksum & done >"$work/nginx-sums${with:+-with}"
            wait $(jobs -p | grep -v "^$server\$") || true
            kill "$server"
            wait "$server" || true
            rm -f "$work/nginx.sock"
        done
        cmp "$work/nginx-sums" "$work/nginx-sums-with" && done_+=("nginx")
    fi
    if has mariadbd mariadb mariadb-install-db; then
        cat >"$work/maria.sql" <<'SQL'
INSERT INTO t (a) SELECT seq % 97 FROM seq_1_to_2000;
UPDATE total SET n = n + 1;
UPDATE total SET n = n + 1;
UPDATE total SET n = n + 1;
SQL
        for with in "" "$towpath preload --"; do
            rm -rf "$work/mysql"
            mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$work/mysql" --auth-root-authentication-method=normal --skip-test-db >"$work/mysql.log" 2>&1
            # shellcheck disable=SC2086
            $with mariadbd --no-defaults --user="$(id -un)" --datadir="$work/mysql" --socket="$work/mysql.sock" --pid-file="$work/mysql.pid" --skip-networking --skip-grant-tables --thread-handling=pool-of-threads >>"$work/mysql.log" 2>&1 &
            server=$!
            servers+=("$server")
            query() { timeout 120 mariadb --no-defaults --socket="$work/mysql.sock" "$@"; }
            waits_for query -e "SELECT 1"
            query -e "CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, a INT) ENGINE=InnoDB; CREATE TABLE d.total (n INT) ENGINE=InnoDB; INSERT INTO d.total VALUES (0)"
            clients=()
            for _ in 1 2 3 4 5 6 7 8; do
                query d <"$work/maria.sql" &
                clients+=($!)
            done
            for client in "${clients[@]}"; do wait "$client"; done
            query d -N -e "SELECT count(*), sum(a) FROM t; SELECT n FROM total" >"$work/maria${with:+-with}"
            query -e SHUTDOWN
            wait "$server" || true
        done
        cmp "$work/maria" "$work/maria-with" && done_+=("mariadb-server")
    fi
    if has go gcc; then
        # Threads of C's under a mutex and a condition of C's, called by many goroutines.
        mkdir -p "$work/cgo"
        cat >"$work/cgo/main.go" <<'GO'
package main

/*
#include <pthread.h>
#include <semaphore.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t full = PTHREAD_COND_INITIALIZER;
static sem_t units;
static long total, callers;
static void begin(void) { sem_init(&units, 0, 3); }
static long add(long n) {
	sem_wait(&units);
	pthread_mutex_lock(&mutex);
	total += n;
	if (++callers == 4000) pthread_cond_broadcast(&full);
	pthread_mutex_unlock(&mutex);
	return sem_post(&units);
}
static void *watch(void *to) {
	pthread_mutex_lock(&mutex);
	while (callers < 4000) pthread_cond_wait(&full, &mutex);
	*(long *)to = total;
	pthread_mutex_unlock(&mutex);
	return 0;
}
static pthread_t watcher;
static long seen;
static int start(void) { return pthread_create(&watcher, 0, watch, &seen); }
static long end(void) { pthread_join(watcher, 0); return seen; }
*/
import "C"
import ("fmt"; "sync")

func main() {
	C.begin()
	C.start()
	var all sync.WaitGroup
	for i := 0; i < 40; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			for k := 0; k < 100; k++ { C.add(C.long(i)) }
		}(i)
	}
	all.Wait()
	fmt.Println(C.end())
}
GO
        (cd "$work/cgo" && printf 'module cgo\ngo 1.19\n' >go.mod && GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=1 GOCACHE="$work/go-cache" GOPATH="$work/go" go build -o threads .)
        same "Go with cgo" "$work/cgo/threads"
    fi
fi
requests=$([ "$mode" = short ] && echo 2000 || echo 20000)
if has redis-server redis-cli redis-benchmark; then
    for with in "" "$towpath preload --"; do
        # shellcheck disable=SC2086
        $with redis-server --port 0 --unixsocket "$work/redis.sock" --save "" --io-threads 4 --io-threads-do-reads yes --dir "$work" >"$work/redis.log" &
        server=$!
        servers+=("$server")
        waits_for redis-cli -s "$work/redis.sock" ping
        redis-benchmark -s "$work/redis.sock" -q -n "$requests" -c 20 -P 8 -t set,get,incr,lpush >"$work/redis.txt"
        redis-cli -s "$work/redis.sock" eval "for i = 1, 1000 do redis.call('incrby', 'sum', i) end return redis.call('get', 'sum')" 0 >"$work/redis${with:+-with}"
        kill "$server"
        wait "$server" || true
        rm -f "$work/redis.sock"
    done
    cmp "$work/redis" "$work/redis-with" && done_+=("redis-server")
fi
if has memcached python3; then
    cat >"$work/memcached.py" <<'PYTHON'
import socket, sys, threading
def client(n):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(sys.argv[1]); f = s.makefile("rb")
        for i in range(500):
            v = b"%d" % (i * n)
            s.sendall(b"set k%d-%d 0 0 %d\r\n%s\r\nget k%d-%d\r\nincr n 1\r\n" % (n, i, len(v), v, n, i))
            assert f.readline() == b"STORED\r\n" and f.readline().startswith(b"VALUE") and f.readline() == v + b"\r\n" and f.readline() == b"END\r\n"
            f.readline()
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1]); s.sendall(b"set n 0 0 1\r\n0\r\n"); s.recv(100)
clients = [threading.Thread(target=client, args=(n,)) for n in range(1, 17)]
for c in clients: c.start()
for c in clients: c.join()
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1]); s.sendall(b"get n\r\n"); print(s.recv(100))
PYTHON
    for with in "" "$towpath preload --"; do
        # shellcheck disable=SC2086
        $with memcached -u "$(id -un)" -s "$work/memcached.sock" -t 16 -m 64 &
        server=$!
        servers+=("$server")
        waits_for test -S "$work/memcached.sock"
        timeout 120 python3 "$work/memcached.py" "$work/memcached.sock" >"$work/memcached${with:+-with}"
        kill "$server"
        wait "$server" || true
        rm -f "$work/memcached.sock"
    done
    cmp "$work/memcached" "$work/memcached-with" && done_+=("memcached")
fi
if [ "$mode" = speed ]; then
    cargo build --quiet --release --package towpath-pthread --example locking
    for arguments in "1 300" "2 300 50 100" "32 600 50 100" "32 600 1000 1000" "32 600 10000 10000"; do
        for _ in 1 2 3 4 5; do
            # shellcheck disable=SC2086
            echo "libc    $arguments: $("$built/examples/locking" $arguments)"
            # shellcheck disable=SC2086
            echo "towpath $arguments: $("$towpath" preload -- "$built/examples/locking" $arguments)"
        done
    done
fi
echo "same results with towpath preload: $(IFS=,; echo "${done_[*]}")"
[ ${#missing[@]} = 0 ] || echo "left out, not installed: ${missing[*]}"
