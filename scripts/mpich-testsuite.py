#!/usr/bin/env python3
"""Runs the MPI test suite of MPICH's sources (test/mpi, in C), unmodified, over Towpath:   scripts/mpich-testsuite.py SOURCES [--mpi open-mpi] [DIRECTORY ...]

SOURCES is the unpacked source of any release of MPICH (from MPICH's site, or `apt-get source mpich` on Debian), whatever MPI is tested: the suite is configured stand-alone
and built with the mpicc of scripts/install-peers.sh, in a folder of its own (--work; kept, so that a second run builds nothing anew). Each line of each folder's testlist is run
with the ranks, arguments and environment that it names, and judged as the suite's own runtests does it. What does not pass over Towpath is run a second time over Towpath, then over
the MPI's own transport and over libfabric's tcp provider. A table of those goes to standard output, and to --results; ends with 1 if a test fails twice over Towpath and passes over the MPI's own transport.

Not run: tests marked xfail, those that ask for more memory (--memory) or more ranks (--ranks), and those that this MPI cannot build. Needs a release build and scripts/build-fabric.sh.
Standard library only. It ends only processes that it started.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIRECTORIES = ["pt2pt", "rma", "coll", "comm", "threads/pt2pt", "threads/rma", "threads/comm", "threads/coll", "datatype", "topo", "errhan", "attr", "info", "init", "group"]
# The suite's own programs and support code; what they call is not ours to warn about.
CFLAGS = "CFLAGS=-O1 -w -Wno-implicit-function-declaration -Wno-int-conversion"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", type=Path)
    parser.add_argument("directories", nargs="*", default=DIRECTORIES)
    parser.add_argument("--mpi", default="mpich", choices=["mpich", "open-mpi"])
    parser.add_argument("--work", type=Path, help="where to build (target/mpich-testsuite/MPI)")
    parser.add_argument("--fabric", type=Path, help="folder of libtowpath-fi.so (the one that towpath mpirun --print-env names)")
    parser.add_argument("--over", default="towpath", choices=["towpath", "own", "tcp"], help="what to run everything over at first")
    parser.add_argument("--lists", default="testlist", help="which lists, with commas between (testlist.dtp: many datatypes; testlist.cvar: every algorithm of MPICH's collective operations)")
    parser.add_argument("--ranks", type=int, default=8, help="leave out tests with more ranks")
    parser.add_argument("--memory", type=float, default=2, help="leave out tests that ask for more GB")
    parser.add_argument("--time", type=float, default=60, help="seconds a test may take")
    parser.add_argument("--only", default="", help="a regular expression of test lines")
    parser.add_argument("--results", type=Path, help="append a line for each test")
    parser.add_argument("--no-build", action="store_true", help="run what is built already")
    return parser.parse_intermixed_args()


def build(options, peer, work):
    """Configures the suite once, then makes what is missing; a program that does not build does not stop the others."""
    suite = options.sources.resolve() / "test" / "mpi"
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "Makefile").exists():
        with open(work / "configure.log", "w") as log:
            cc = peer / "bin" / "mpicc"
            strict = "no" if options.mpi == "mpich" else "yes"
            command = [suite / "configure", f"--with-mpi={peer}", f"CC={cc}", f"MPICC={cc}", "--disable-fortran", "--disable-cxx", "--disable-romio", f"--enable-strictmpi={strict}", "--enable-threads=multiple"]
            if subprocess.run(command, cwd=work, stdout=log, stderr=log).returncode:
                sys.exit(f"cannot configure the suite: see {log.name}")
    for directory in ["util", "dtpools", "threads/util", *options.directories]:
        if (work / directory / "Makefile").exists():
            with open(work / f"make-{directory.replace('/', '-')}.log", "w") as log:
                subprocess.run(["make", "-k", "-C", directory, CFLAGS, "all"], cwd=work, stdout=log, stderr=log)


class Test:
    """One line of a testlist."""

    def __init__(self, directory, line):
        words = line.split()
        self.directory, self.program, self.line = directory, words[0], " ".join(words)
        self.ranks = int(words[1]) if len(words) > 1 else 2
        self.arguments, self.environment, self.keys = [], {}, {}
        for word in words[2:]:
            key, _, value = word.partition("=")
            if key == "arg":
                self.arguments.append(value)
            elif key == "env":
                name, _, value = value.partition("=")
                self.environment[name] = value
            else:
                self.keys[key] = value

    def why_not(self, options, work):
        """Why it is not run, or None."""
        if self.keys.get("xfail"):
            return "xfail"
        if self.ranks > options.ranks:
            return "ranks"
        if float(self.keys.get("mem", 0)) > options.memory:
            return "memory"
        if options.mpi != "mpich" and self.keys.get("strict") == "false":
            return "not of the standard"
        if not (work / self.directory / Path(self.program)).is_file():
            return "not built"
        return None

    def passed(self, status, output):
        """What runtests looks at: the status, and what is said beside `No Errors`."""
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        result = self.keys.get("resultTest")
        if result == "TestStatus":
            return status != 0 and not any(line == "No Errors" for line in lines)
        if result == "TestErrFatal":
            return status != 0
        said = any(re.fullmatch("No [Ee]rrors", line) for line in lines)
        other = [line for line in lines if not re.fullmatch("No [Ee]rrors|Test Passed", line)]
        if result == "TestStatusNoErrors":
            return status != 0 and said
        return status == 0 and said and not other


def descendants(root):
    """The processes that `root` has started, and theirs."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(words[1]), []).append(int(stat.parent.name))
    found, new = [], [root]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found += new
    return found


def end(process):
    """Ends a launcher and all that it has started."""
    started = descendants(process.pid)
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
    for pid in started:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run(options, peer, work, settings, test):
    """Runs one test: `ok`, `FAILED` or `timeout`, its output and its seconds."""
    environment = {**os.environ, **settings, **test.environment, "MPITEST_THREADLEVEL_DEFAULT": "multiple" if "threads" in test.directory else ""}
    if not environment["MPITEST_THREADLEVEL_DEFAULT"]:
        del environment["MPITEST_THREADLEVEL_DEFAULT"]
    preload = environment.pop("LD_PRELOAD", None)
    command = [peer / "bin" / "mpiexec", "-n", str(test.ranks)]
    if options.mpi == "open-mpi":
        command[1:1] = ["--oversubscribe"] + (["--allow-run-as-root"] if os.getuid() == 0 else [])
        # The wheel's UCX complains that it has no device, over any transport, and the suite takes any output for a failure.
        environment["OMPI_MCA_osc"] = "^ucx"
    elif preload:
        command += ["-genv", "LD_PRELOAD", preload]
    if test.keys.get("resultTest") == "TestErrFatal" and "timeLimit" in test.keys:
        # It waits for a launcher that ends it.
        environment["MPIEXEC_TIMEOUT"] = test.keys["timeLimit"]
    log = work / f"output-{os.getpid()}.txt"
    start = time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen(command + [f"./{test.program}", *test.arguments], cwd=work / test.directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        try:
            status = process.wait(options.time)
        except subprocess.TimeoutExpired:
            status = None
            end(process)
        except BaseException:
            end(process)
            raise
    output = log.read_text(errors="replace")
    log.unlink()
    seconds = time.monotonic() - start
    return ("timeout" if status is None else "ok" if test.passed(status, output) else "FAILED"), output, seconds


def transports(options):
    """The settings of each transport."""
    towpath = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "towpath"
    text = subprocess.run([towpath, "mpirun", "--print-env", "--mpi", options.mpi], check=True, capture_output=True, text=True).stdout
    settings = dict(line.removeprefix("export ").split("=", 1) for line in text.splitlines() if line.startswith("export "))
    if options.fabric:
        folder = options.fabric.resolve()
        settings["FI_PROVIDER_PATH"] = str(folder)
        if "LD_PRELOAD" in settings:
            settings["LD_PRELOAD"] = str(folder / "libtowpath-preload.so")
    tcp = {key: value for key, value in settings.items() if key not in ("LD_PRELOAD", "FI_PROVIDER_PATH")} | {"FI_PROVIDER": "tcp"}
    if options.mpi == "open-mpi":
        # It takes the tcp provider with its layer for messages only.
        tcp["FI_PROVIDER"] = "tcp;ofi_rxm"
    return {"towpath": settings, "own": {}, "tcp": tcp}


def said(output):
    """The end of what a test has said."""
    return "".join(f"\n        {line[:200]}" for line in output.strip().splitlines()[-8:])


def note(options, report, show):
    """One test's line, for the file and perhaps for the terminal."""
    if options.results:
        with open(options.results, "a") as results:
            results.write(report + "\n")
    if show:
        print(report, flush=True)


def main():
    options = arguments()
    # So that what has been started ends with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    data = Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share"))
    peer = data / "towpath" / "peers" / options.mpi
    work = (options.work or ROOT / "target" / "mpich-testsuite" / options.mpi).resolve()
    if not options.no_build:
        build(options, peer, work)
    over = transports(options)
    if options.over != "towpath":
        over = {options.over: over[options.over]}
    first = next(iter(over))
    counts, left_out, failed, ours = {"ok": 0}, {}, [], []
    for directory in options.directories:
        # What configure has made of it, or the sources' own.
        lines = []
        for name in options.lists.split(","):
            files = [folder / directory / name for folder in (work, options.sources / "test" / "mpi")]
            lines += next((file.read_text().splitlines() for file in files if file.is_file()), [])
        lines = [line.split("#")[0].strip() for line in lines]
        for test in [Test(directory, line) for line in lines if line and not line.startswith(("!", "@"))]:
            if not re.search(options.only, f"{directory}/{test.line}") or (work / directory / test.program).is_dir():
                continue
            reason = test.why_not(options, work)
            if reason:
                left_out.setdefault(reason, []).append(f"{directory}/{test.program}")
                continue
            result, output, seconds = run(options, peer, work, over[first], test)
            counts[result] = counts.get(result, 0) + 1
            report = f"{result:8}{seconds:6.1f} s  {directory}/{test.line}"
            if result != "ok":
                failed.append(test)
                report += said(output)
            note(options, report, result != "ok" or options.only)
        print(f"{directory} ended: " + ", ".join(f"{count} {name}" for name, count in counts.items()), flush=True)
    # Once more, when the rest has ended: what fails then is compared.
    if first == "towpath":
        for test in failed:
            result, output, seconds = run(options, peer, work, over[first], test)
            report = f"again: {result:8}{seconds:6.1f} s  {test.directory}/{test.line}"
            if result != "ok":
                others = {name: run(options, peer, work, over[name], test)[0] for name in ("own", "tcp")}
                if others["own"] == "ok":
                    ours.append(test)
                report += "; " + ", ".join(f"{name}: {value}" for name, value in others.items()) + said(output)
            note(options, report, True)
        print(f"{len(failed)} did not pass at first, {len(ours)} fail over Towpath only: " + "; ".join(f"{test.directory}/{test.line}" for test in ours))
    for reason, programs in left_out.items():
        print(f"not run, {reason}: {len(programs)}: {' '.join(sorted(set(programs)))}")
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
