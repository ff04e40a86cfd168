"""Processes of the explorer's example `weakened`, and work for several of them."""
import concurrent.futures
import os
import pathlib
import resource
import select
import subprocess
import sys
import threading

# Longer than any trial takes, in seconds.
PATIENCE = 300

# More than any trial takes that ends, in bytes: one that does not end must not take the others' memory.
MEMORY = 4 << 30


class Explorer:
    """A process of `weakened try`."""

    def __init__(self, binary):
        self.binary, self.process = binary, None

    def ask(self, *words):
        if not self.process or self.process.poll() is not None:
            self.process = subprocess.Popen([self.binary, "try"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            resource.prlimit(self.process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        self.process.stdin.write(("\t".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.process.kill()
            self.process.wait()
            return ["endless", "0", ""]
        answer = self.process.stdout.readline().decode().rstrip("\n").split("\t")
        if len(answer) == 3:
            return answer
        # It ends, which may take a while: the next trial is for another process.
        self.process.kill()
        self.process.wait()
        return ["ended", "0", ""]

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()


def binary(root, args):
    """The example, as it was built or named in TOWPATH_WEAKENED."""
    if named := os.environ.get("TOWPATH_WEAKENED"):
        if not os.access(named, os.X_OK):
            sys.exit(f"TOWPATH_WEAKENED: {named} is no program: cargo build --package towpath-explore --example weakened makes it")
        return named
    subprocess.run(["cargo", "build", "--quiet", *args, "--package", "towpath-explore", "--example", "weakened"], cwd=root, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    return str(root / target / ("release" if args else "debug") / "examples" / "weakened")


def parallel(work, jobs, program, number):
    """Runs jobs on so many explorers."""
    jobs, lock = list(reversed(jobs)), threading.Lock()

    def run():
        explorer = Explorer(program)
        while True:
            with lock:
                if not jobs:
                    break
                job = jobs.pop()
            work(explorer, job)
        explorer.close()

    # What fails in one of them fails the whole.
    with concurrent.futures.ThreadPoolExecutor(number) as threads:
        for ended in [threads.submit(run) for _ in range(number)]:
            ended.result()
