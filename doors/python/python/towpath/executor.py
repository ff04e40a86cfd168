"""An executor of concurrent.futures that loses one future, not itself, when a worker is killed."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import os
import weakref
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple

from .workers import Workers


def _run_chunk(function: Callable[..., Any], chunk: Any) -> Any:
    return [function(*args) for args in chunk]


class _Dropped(Exception):
    """Of a job that was taken back."""


class Executor(concurrent.futures.Executor):
    """As ProcessPoolExecutor, with its arguments; but the kill of a worker concerns one future.

    The future of the job that the dead ran raises WorkerDied; the other jobs go to other workers,
    and another worker takes the place. With ``retries`` a job that is lost is tried again so many
    times first: for jobs that may run twice.
    """

    def __init__(
        self,
        max_workers: Optional[int] = None,
        mp_context: Any = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Tuple[Any, ...] = (),
        *,
        max_tasks_per_child: Optional[int] = None,
        retries: int = 0,
    ) -> None:
        if mp_context is None:
            from .context import get_context

            # As ProcessPoolExecutor: workers that end and start again should not be forks.
            mp_context = get_context("spawn" if max_tasks_per_child is not None else None)
        count = os.cpu_count() or 1 if max_workers is None else max_workers
        self._retries = retries
        self._workers = Workers(mp_context, count, initializer, initargs, max_tasks_per_child, daemon=False)
        self._shut = False
        weakref.finalize(self, Workers.close, self._workers).atexit = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[Any]":
        """Runs a call in a worker; returns its future."""
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def done(succeeded: bool, value: Any) -> None:
            if isinstance(value, _Dropped):
                future.cancel()
                future.set_running_or_notify_cancel()
            elif succeeded:
                future.set_result(value)
            elif future.running() or future.set_running_or_notify_cancel():
                future.set_exception(value)

        workers = self._workers
        try:
            workers.submit((fn, args, kwargs), done, future.set_running_or_notify_cancel, 1 + self._retries)
        except Exception as error:
            if workers._broken is not None:
                raise BrokenProcessPool("no worker can start") from workers._broken
            if workers._closing:
                raise
            # It cannot be pickled.
            future.set_running_or_notify_cancel()
            future.set_exception(error)
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: int = 1,
        **others: Any,
    ) -> Iterator[Any]:
        """As map; ``chunksize`` calls go to a worker at a time, and are lost together."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **others)
        calls = zip(*iterables)
        chunks = iter(lambda: tuple(itertools.islice(calls, chunksize)), ())
        found = super().map(functools.partial(_run_chunk, fn), chunks, timeout=timeout, **others)
        return itertools.chain.from_iterable(found)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more jobs; waits until those that there are are done."""
        self._shut = True
        self._workers.close()
        if cancel_futures:
            for job in self._workers.drop_waiting():
                job.done(False, _Dropped())
        if wait:
            self._workers.join()

    def pids(self) -> "list[int]":
        """Process numbers of the workers that run."""
        return self._workers.pids()
