"""A part of CPython's own tests of multiprocessing; cpython_tests.py runs all of them."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("only", ["_TestLock", "_TestSemaphore", "_TestQueue", "_TestArray"])
def test_tests_of_cpython_succeed(only):
    script = os.path.join(os.path.dirname(__file__), "..", "cpython_tests.py")
    call = [sys.executable, script, "--quick", "--only", only]
    done = subprocess.run(call, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
