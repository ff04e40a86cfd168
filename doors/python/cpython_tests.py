#!/usr/bin/env python3
"""Runs CPython's own tests of multiprocessing against towpath.get_context().

    python doors/python/cpython_tests.py [--method fork] [--only _TestLock] [--quick] [--verbose]

They are those of the installed Python (test._test_multiprocessing), of queues, locks, semaphores,
conditions, events, barriers, values, arrays and pools. Each runs in a child of its own, with a time
limit. DIFFERS says which ones fail, and why; the run fails if any other one does, or if one of
those succeeds. Without the tests of CPython it says so and ends with 0.
"""

import argparse
import io
import multiprocessing
import os
import signal
import sys
import time
import unittest

import towpath

try:
    from test import _test_multiprocessing as theirs
except ImportError:
    theirs = None

CLASSES = (
    "_TestQueue",
    "_TestLock",
    "_TestSemaphore",
    "_TestCondition",
    "_TestEvent",
    "_TestBarrier",
    "_TestValue",
    "_TestArray",
    "_TestSharedCTypes",
    "_TestPool",
    "_TestPoolWorkerErrors",
    "_TestPoolWorkerLifetime",
)
LIMIT = 60.0

DIFFERS = {
    "_TestQueue.test_queue_feeder_donot_stop_onexc": "put itself raises for what cannot be pickled",
    "_TestCondition.test_notify": "looks into the semaphores of multiprocessing's conditions",
    "_TestCondition.test_notify_all": "looks into the semaphores of multiprocessing's conditions",
    "_TestCondition.test_notify_n": "looks into the semaphores of multiprocessing's conditions",
}


def mixin(method):
    ctx = towpath.get_context(method)
    names = """Process Pool Pipe Queue JoinableQueue Lock RLock Semaphore BoundedSemaphore Condition Event
        Barrier Value Array RawValue RawArray""".split()
    calls = {name: staticmethod(getattr(ctx, name)) for name in names if name != "Process"}
    calls.update(TYPE="processes", Process=ctx.Process, connection=multiprocessing.connection)
    for name in ("current_process", "parent_process", "active_children", "set_executable"):
        calls[name] = staticmethod(getattr(multiprocessing, name))
    return type("Mixin", (theirs.BaseMixin,), calls)


def define(method):
    """Makes the classes of tests, in this module, where a spawned child finds them too."""
    towards = mixin(method)
    for name in CLASSES:
        base = getattr(theirs, name, None)
        if base is not None:
            globals()[name] = type(name, (base, towards, unittest.TestCase), {"__module__": __name__})


def cases(only):
    for name in CLASSES:
        made = globals().get(name)
        if made is None or (only and only not in name):
            continue
        for test in unittest.defaultTestLoader.getTestCaseNames(made):
            yield f"{name}.{test}", made, test


# A spawned child imports this module, and has the method from its parent.
METHOD = "TOWPATH_TEST_METHOD"
if theirs is not None and METHOD in os.environ:
    define(os.environ[METHOD])


def children_of(pid):
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as found:
            yield from map(int, found.read().split())


def end(pid):
    """Kills a child and its descendants, by their numbers."""
    try:
        found = list(children_of(pid))
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in found:
        end(child)


def run(made, test):
    """Runs one test in a child; returns "ok", "skipped", "hangs", or the text of the failure."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        text = io.StringIO()
        sys.stdout = sys.stderr = text
        done = unittest.TextTestRunner(stream=text, verbosity=0).run(unittest.TestSuite([made(test)]))
        outcome = b"skipped" if done.skipped else b"ok" if done.wasSuccessful() else text.getvalue().encode()
        os.write(into, outcome[-60_000:])
        os.close(into)
        os._exit(0)
    os.close(into)
    os.set_blocking(out, False)
    until, text = time.monotonic() + LIMIT, b""
    while time.monotonic() < until:
        try:
            chunk = os.read(out, 1 << 16)
        except BlockingIOError:
            time.sleep(0.01)
            continue
        text += chunk
        # Its children may keep the pipe open.
        if not chunk or text in (b"ok", b"skipped") or text.rstrip().endswith(b")"):
            break
    end(child)
    os.waitpid(child, 0)
    os.close(out)
    return text.decode(errors="replace") or "hangs"


def main():
    arguments = argparse.ArgumentParser(description="CPython's tests of multiprocessing, over towpath.")
    arguments.add_argument("--method", default="fork")
    arguments.add_argument("--only", default="")
    arguments.add_argument("--quick", action="store_true", help="leaves out those of DIFFERS")
    arguments.add_argument("--verbose", action="store_true")
    asked = arguments.parse_args()
    if theirs is None:
        print("this Python has no tests of its own: nothing was run")
        return
    os.environ[METHOD] = asked.method
    # For those of multiprocessing's own objects that they use besides.
    multiprocessing.set_start_method(asked.method, force=True)
    define(asked.method)
    counts, wrong = {"ok": 0, "skipped": 0, "differs": 0}, []
    for name, made, test in cases(asked.only):
        known = name in DIFFERS
        if known and asked.quick:
            continue
        outcome = run(made, test)
        if asked.verbose:
            print(f"{name}: {outcome if outcome in ('ok', 'skipped', 'hangs') else 'fails'}", flush=True)
        if outcome == "skipped":
            counts["skipped"] += 1
        elif (outcome == "ok") == known:
            wrong.append(name)
            print(f"{name}: {'succeeds, and is in DIFFERS' if known else outcome}", flush=True)
        else:
            counts["differs" if known else "ok"] += 1
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()), f"{len(wrong)} unexpected", sep=", ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
