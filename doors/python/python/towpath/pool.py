"""multiprocessing's Pool over workers of which one may be killed.

Its methods are multiprocessing's own; below them jobs go to `Workers`.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
import warnings
import weakref
from multiprocessing import pool
from typing import Any, Callable, Iterable, Optional, Tuple

from .errors import WorkerDied
from .workers import Workers


class Pool(pool.Pool):
    """As multiprocessing.Pool; but the kill of a worker concerns the job that it ran.

    ``get`` of that job, or ``next`` of ``imap``, raises WorkerDied; ``map`` raises it when the
    other jobs are done. Where multiprocessing's waits for ever. A pool of which no worker can
    start (an initializer that raises) fails all jobs with the reason.
    """

    def __init__(
        self,
        processes: Optional[int] = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: Optional[int] = None,
        context: Any = None,
    ) -> None:
        # Not multiprocessing's, which starts threads and processes of its own.
        self._state = pool.INIT
        self._change_notifier = None
        if context is None:
            from .context import get_context

            context = get_context()
        count = os.cpu_count() or 1 if processes is None else processes
        if count < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
            raise ValueError("maxtasksperchild must be a positive int or None")
        self._ctx = context
        self._cache: dict = {}
        self._processes = count
        self._workers = Workers(context, count, initializer, tuple(initargs), maxtasksperchild)
        self._taskqueue: Any = queue.SimpleQueue()
        feeder = threading.Thread(
            target=_feed, args=(self._taskqueue, self._workers, self._cache), name="towpath-feeder", daemon=True
        )
        self._feeder = feeder
        feeder.start()
        self._terminate = weakref.finalize(self, _terminate, self._taskqueue, self._workers, self._cache)
        self._workers.start_all()
        self._state = pool.RUN

    @property
    def _pool(self) -> Any:
        # Without the lock, which a thread may hold that has ended with the interpreter: `__del__` shows the
        # pool then.
        processes = [slot.process for slot in self._workers._slots]
        # multiprocessing divides by their number, also in a pool of which no worker could start.
        return [process for process in processes if process is not None] or processes

    def close(self) -> None:
        """Takes no more jobs; the workers end when all are done."""
        if self._state == pool.RUN:
            self._state = pool.CLOSE
            self._taskqueue.put(None)

    def terminate(self) -> None:
        """Ends the workers at once; jobs that are not done raise WorkerDied."""
        self._state = pool.TERMINATE
        self._terminate()

    def join(self) -> None:
        """Waits until the workers have ended, after ``close`` or ``terminate``."""
        if self._state == pool.RUN:
            raise ValueError("Pool is still running")
        if self._state not in (pool.CLOSE, pool.TERMINATE):
            raise ValueError("In unknown state")
        self._feeder.join()
        self._workers.join()

    def __del__(self) -> None:
        if self._state == pool.RUN:
            warnings.warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self)


def _terminate(tasks: Any, workers: Workers, cache: dict) -> None:
    tasks.put(None)
    workers.terminate()


def _feed(tasks: Any, workers: Workers, cache: dict) -> None:
    """Hands the jobs of each call to the workers, as they have room."""
    ahead = 2 * workers.count()
    while True:
        call = tasks.get()
        if call is None:
            break
        sequence, set_length = call
        index = -1
        for job, index, function, args, kwargs in sequence:
            workers.wait_for_room(ahead)
            done = _setter(cache, job, index)
            if workers._closing and workers._broken is None:
                done(False, WorkerDied("the workers were terminated"))
                # Of a map all that there is; of an imap no more, which may have no end.
                if set_length is not None:
                    break
                continue
            try:
                workers.submit((function, args, kwargs), done)
            except Exception as error:
                done(False, error)
            # Nothing here keeps what the caller has passed.
            del done, function, args, kwargs
        if set_length is not None:
            set_length(index + 1)
        del call, sequence, set_length
    workers.close()


def _setter(cache: dict, job: int, index: int) -> Callable[[bool, Any], None]:
    def done(succeeded: bool, value: Any) -> None:
        waiter = cache.get(job)
        if waiter is None:
            return
        try:
            waiter._set(index, (succeeded, value))
        except Exception:
            # A callback's, before the result was announced. The thread that called it goes on.
            traceback.print_exc()
            cache.pop(job, None)
            waiter._event.set()

    return done


__all__: Tuple[str, ...] = ("Pool",)
