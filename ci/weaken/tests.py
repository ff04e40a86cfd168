"""Tests under loom, and on other machines of tests, with an ordering weakened by the environment.

A test of these programs runs the rooms' own text on a machine that asks `towpath_machine::weaken` about each access. It runs in a process
of its own: `TOWPATH_PLACES` makes it tell which accesses it reaches, `TOWPATH_WEAKEN` weakens one of them.
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

# Programs by package; what stands before each test's name in orderings.txt.
PROGRAMS = {
    "towpath-models": ["deadlock", "models", "parts", "robust", "sequential", "suspicion"],
}
# Seconds for a test as it is written. One with an ordering weakened gets three times what the test took, and these.
PATIENCE, MORE = 90, 10
# Modules of the programs that run on no such machine.
OTHERS = re.compile(r"^robust (broadcast|others|queues|rw_lock)::")


class Programs:
    """The programs with such tests, built."""

    def __init__(self, root, whole, packages=PROGRAMS):
        """Those of some packages; with `whole`, as `cargo test --workspace` has built them."""
        self.paths = {}
        what = ["--workspace"] if whole else [w for package in packages for w in ("--package", package)]
        tests = [w for name in sorted({n for package in packages for n in PROGRAMS[package]}) for w in ("--test", name)]
        command = ["cargo", "test", "--quiet", "--no-run", "--message-format=json", *what, *([] if whole else tests)]
        said = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
        for line in said.splitlines():
            artifact = json.loads(line)
            if artifact.get("reason") != "compiler-artifact" or not artifact.get("executable") or "test" not in artifact["target"]["kind"]:
                continue
            package = re.sub(r".*[/#]([a-z_-]+)@.*|.*/([a-z_-]+)#.*", lambda m: m.group(1) or m.group(2), artifact["package_id"])
            package = package if package.startswith("towpath") else f"towpath-{package}"
            if package in packages and artifact["target"]["name"] in PROGRAMS[package]:
                self.paths[package.removeprefix("towpath-"), artifact["target"]["name"]] = artifact["executable"]

    def tests(self):
        """All of their tests: package, program, test."""
        for (package, program), path in sorted(self.paths.items()):
            listed = subprocess.run([path, "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout
            for name in re.findall(r"^(\S+): test$", listed, re.M):
                if not OTHERS.search(f"{program} {name}"):
                    yield package, program, name

    def run(self, test, seconds, **environment):
        """Runs a test. Returns `passed`, `failed`, `endless` or `wrong`, and the seconds that it took."""
        package, program, name = test
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TOWPATH_")}
        begun = time.time()
        try:
            done = subprocess.run(
                [self.paths[package, program], "--exact", name, "--include-ignored", "--test-threads", "1"],
                env=clean | {"RUST_BACKTRACE": "0"} | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return "endless", time.time() - begun
        took = time.time() - begun
        # A weakening that the test does not understand is the caller's fault.
        if b"TOWPATH_WEAKEN:" in done.stdout or b"TOWPATH_PLACES:" in done.stdout:
            return "wrong", took
        if b"running 1 test" not in done.stdout:
            return "wrong", took
        return ("passed" if done.returncode == 0 else "failed"), took


def reach(programs, known):
    """Which tests reach each place, with their seconds; kept in the file `known`, test by test."""
    lines = known.read_text().splitlines() if known and known.exists() else []
    told = {tuple(line.split("\t")[:3]): line for line in lines}
    for test in programs.tests():
        if test in told:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "places"
            outcome, took = programs.run(test, PATIENCE, TOWPATH_PLACES=str(file))
            places = sorted(set(file.read_text().split())) if outcome == "passed" and file.exists() else []
        told[test] = "\t".join([*test, f"{took:.2f}", " ".join(places)])
        print(f"{' '.join(test)}: {outcome}, {took:.1f} s, {len(places)} places", flush=True)
        known and known.write_text("\n".join(told.values()) + "\n")
    places = {}
    for line in told.values():
        package, program, name, took, reached = line.split("\t")
        for place in reached.split():
            places.setdefault(place, []).append((float(took), (package, program, name)))
    return {place: sorted(tests) for place, tests in places.items()}
