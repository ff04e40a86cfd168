"""Queues, as multiprocessing's, that survive the kill of any process."""

from __future__ import annotations

import contextlib
import copyreg
import ctypes
import pickle
import secrets
from multiprocessing.reduction import ForkingPickler
from pickle import loads
from typing import Any, Iterator, Optional

from . import _towpath
from .errors import Closed, Empty, Full
from .world import World, _rebuild, buffer_of, repair

copyreg.pickle(_towpath.Messages, lambda it: (_rebuild, (it.world, "_messages", it.name, *it.spec)))


def _dumps(thing: Any) -> bytes:
    try:
        return pickle.dumps(thing, 5)
    except (TypeError, AttributeError, pickle.PicklingError):
        # What multiprocessing knows to pickle besides: sockets, connections.
        return bytes(ForkingPickler.dumps(thing, 5))


class Queue:
    """A first-in, first-out queue of objects between processes.

    ``put`` writes into shared memory itself, without a thread: what was put is there, also if
    the process is killed the moment after. So a queue has a size (``maxsize``, rounded up to a
    power of two; 1,024 without one), and ``put`` waits when it is full. A message of more than
    232 bytes, pickled, needs one of ``buffers`` buffers of ``buffer_bytes`` bytes, which is the
    longest message.
    """

    def __init__(
        self,
        maxsize: int = 0,
        *,
        world: Optional[World] = None,
        name: Optional[str] = None,
        buffers: int = 16,
        buffer_bytes: int = 1 << 18,
        processes: int = 64,
    ) -> None:
        capacity = maxsize if maxsize > 0 else 1024
        if world is None:
            memory = 320 * (capacity + 64) * 2 + (buffer_bytes + 1024) * buffers + (1 << 17)
            world = World(create=True, processes=processes, memory=memory)
        name = name or secrets.token_hex(8)
        self._take(world._object("_messages", name, capacity, buffers, buffer_bytes))

    def _take(self, messages: _towpath.Messages) -> None:
        self._messages = messages
        self._send = messages.send
        self._receive = messages.receive
        self._closed = False

    def put(self, obj: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Puts an object. Raises Full if there was no room in time, PeerDied once after the last
        receiver died."""
        if self._closed:
            raise Closed(f"Queue {self!r} is closed")
        if not self._send(_dumps(obj), block, timeout):
            raise Full

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Takes the oldest object. Raises Empty if there was none in time, PeerDied once after
        the last sender died and all was received."""
        if self._closed:
            raise Closed(f"Queue {self!r} is closed")
        message = self._receive(block, timeout)
        if message is None:
            raise Empty
        return loads(message)

    @contextlib.contextmanager
    def lease(self, block: bool = True, timeout: Optional[float] = None) -> Iterator[Any]:
        """Takes the oldest object for a ``with`` block.

        If the process is killed within the block the object comes in again, for another
        receiver; also if the block raises.
        """
        lease = self._messages.lease(block, timeout)
        if lease is None:
            raise Empty
        try:
            yield loads(lease.bytes())
        except BaseException:
            lease.give_back()
            raise
        lease.done()

    def put_nowait(self, obj: Any) -> None:
        """``put(obj, False)``."""
        self.put(obj, False)

    def get_nowait(self) -> Any:
        """``get(False)``."""
        return self.get(False)

    def qsize(self) -> int:
        """Number of objects that wait, about."""
        return len(self._messages)

    def empty(self) -> bool:
        """Returns whether no object waits, about."""
        return len(self._messages) == 0

    def full(self) -> bool:
        """Returns whether there is no room, about."""
        return len(self._messages) >= self._messages.spec[0]

    def close(self) -> None:
        """This process puts and gets no more. The others go on."""
        self._closed = True

    def shutdown(self) -> None:
        """Closes the queue for all: puts raise Closed, gets too when all was taken."""
        self._messages.close()

    def join_thread(self) -> None:
        """Does nothing: there is no thread, and what was put is in the queue."""

    def cancel_join_thread(self) -> None:
        """Does nothing: there is no thread."""

    def __reduce__(self):
        return _queue, (type(self), self._messages)


def _queue(kind: type, messages: _towpath.Messages) -> Any:
    queue = kind.__new__(kind)
    queue._take(messages)
    return queue


class SimpleQueue(Queue):
    """A queue without time-outs."""

    def get(self) -> Any:  # type: ignore[override]
        """Takes the oldest object."""
        return Queue.get(self)

    def put(self, obj: Any) -> None:  # type: ignore[override]
        """Puts an object."""
        Queue.put(self, obj)


class JoinableQueue(Queue):
    """A queue that counts what is not done yet."""

    def _take(self, messages: _towpath.Messages) -> None:
        super()._take(messages)
        world, name = messages.world, messages.name
        self._count = ctypes.c_uint64.from_buffer(buffer_of(world._object("_bytes", f"{name}-n", 8)))
        self._done = world.condition(f"{name}-done")

    def put(self, obj: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """As Queue.put; counts the object."""
        # Counted first: it may be done before this returns.
        self._add(1)
        try:
            super().put(obj, block, timeout)
        except BaseException:
            self._add(-1)
            raise

    def _add(self, change: int) -> None:
        with repair(self._done._inner.lock):
            if self._count.value + change < 0:
                raise ValueError("task_done() called too many times")
            self._count.value += change
            if self._count.value == 0:
                self._done.notify_all()

    def task_done(self) -> None:
        """One object is done with."""
        self._add(-1)

    def join(self) -> None:
        """Waits until all objects are done with."""
        with repair(self._done._inner.lock):
            while self._count.value:
                self._done.wait()
