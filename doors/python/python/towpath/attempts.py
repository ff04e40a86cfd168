"""Attempts that are repeated under asyncio when a descriptor says so."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable, Optional, Tuple, Type


class Attempts:
    """Attempts at one side of a queue, and the coroutines that wait for the next one."""

    def __init__(self, attempt: Callable[..., Any], fileno: Callable[[], int], failure: Type[Exception]) -> None:
        self._attempt, self._fileno, self._failure = attempt, fileno, failure
        self._waiters: Any = weakref.WeakKeyDictionary()
        self._ended: Optional[Exception] = None

    async def until_done(self, *arguments: Any) -> Any:
        """Attempts until one succeeds. A task that is cancelled has done nothing."""
        import asyncio

        loop = asyncio.get_running_loop()
        while True:
            if self._ended is not None:
                raise self._ended
            done, result = self._try(arguments)
            if done:
                # The attempt has made the descriptor forget that others wait.
                self._wake(loop)
                return result
            waiters = self._waiters.setdefault(loop, [])
            if not waiters:
                loop.add_reader(self._fileno(), self._wake, loop)
            waiter = loop.create_future()
            waiters.append(waiter)
            try:
                await waiter
            finally:
                waiters.remove(waiter)
                if not waiters and self._waiters.get(loop) is waiters:
                    del self._waiters[loop]
                    loop.remove_reader(self._fileno())

    def end(self, error: Exception) -> None:
        """Has all that wait, of any thread's loop, raise this error."""
        self._ended = error
        for loop in list(self._waiters):
            # A loop that has ended has no waiters.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake, loop)

    def _try(self, arguments: Tuple[Any, ...]) -> Tuple[bool, Any]:
        try:
            return True, self._attempt(*arguments)
        except self._failure:
            return False, None

    def _wake(self, loop: Any) -> None:
        waiters = self._waiters.pop(loop, None)
        if waiters is None:
            return
        loop.remove_reader(self._fileno())
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
