"""The examples do what they say."""

import os
import subprocess
import sys

import pytest

EXAMPLES = {
    ("crash_proof_pool.py", "--jobs", "40"): "40 of 40 answers",
    ("parameter_server.py",): "one of 3 workers was killed",
    ("inference_fan_out.py",): "40 of 40 batches",
}


@pytest.mark.parametrize("call", EXAMPLES, ids=lambda call: call[0])
def test_example_succeeds(call):
    example = os.path.join(os.path.dirname(__file__), "..", "examples", call[0])
    done = subprocess.run([sys.executable, example, *call[1:]], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert EXAMPLES[call] in done.stdout
