"""Processes that end when their parent is killed."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing import context
from multiprocessing.process import BaseProcess
from typing import Dict, Type

from . import _towpath


class _Child:
    """Daemons and workers end by SIGTERM, as multiprocessing ends daemons when the parent ends in
    good order."""

    # A job of such a process is its parent's, also if it is no daemon.
    _is_worker = False

    def _after_fork(self) -> None:
        super()._after_fork()
        parent = multiprocessing.parent_process()
        if parent is not None and (self.daemon or self._is_worker):
            threading.Thread(target=_end_after, args=(parent,), name="towpath-parent", daemon=True).start()


def _end_after(parent) -> None:
    # The sentinel is a pipe, whose other end processes hold that were forked later.
    sources = [parent.sentinel]
    try:
        sources.append(os.pidfd_open(parent.pid))
    except ProcessLookupError:
        sources.clear()
    except OSError:
        pass
    # Also while a call of C's holds the GIL.
    _towpath.end_after(sources)


class ForkProcess(_Child, context.ForkProcess):
    """A forked process."""


class SpawnProcess(_Child, context.SpawnProcess):
    """A process that starts anew."""


class ForkServerProcess(_Child, context.ForkServerProcess):
    """A process that a server forks."""


BY_METHOD: Dict[str, Type[BaseProcess]] = {kind._start_method: kind for kind in (ForkProcess, SpawnProcess, ForkServerProcess)}
