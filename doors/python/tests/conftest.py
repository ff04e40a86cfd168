"""Watchdog: a test that hangs kills its own children, and then itself."""

import faulthandler
import multiprocessing
import os
import signal
import threading

import pytest

LIMIT = 60.0


@pytest.fixture(autouse=True)
def watchdog():
    def bite():
        faulthandler.dump_traceback()
        for child in multiprocessing.active_children():
            child.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    timer = threading.Timer(LIMIT, bite)
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()
    for child in multiprocessing.active_children():
        child.kill()
        child.join()


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def ctx(request):
    import towpath

    return towpath.get_context(request.param)
