"""Queues, as multiprocessing's, that survive the kill of any process."""

from __future__ import annotations

import contextlib
import copyreg
import ctypes
import functools
import pickle
import secrets
from multiprocessing import connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, Iterator, Optional, Tuple

from . import _towpath
from .attempts import Attempts
from .errors import Closed, Empty, Full
from .world import World, _rebuild, buffer_of, repair

copyreg.pickle(_towpath.Messages, lambda it: (_rebuild, (it.world, "_messages", it.name, *it.spec)))
# Pickle alone takes a connection for an object with the number of a descriptor.
copyreg.pickle(connection.Connection, connection.reduce_connection)  # type: ignore[attr-defined]


def _dumps(thing: Any) -> bytes:
    try:
        return pickle.dumps(thing, 5)
    except (TypeError, AttributeError, pickle.PicklingError):
        # What multiprocessing knows to pickle besides: sockets, connections.
        return bytes(ForkingPickler.dumps(thing, 5))


@functools.lru_cache(256)
def _pickle_of_array(shape: Tuple[int, ...], kind: Any) -> Tuple[bytes, int]:
    """The pickle of an array without its bytes, and their number."""
    import numpy

    array, buffers = numpy.empty(shape, kind), []  # type: ignore[var-annotated]
    pickled = pickle.dumps(array, 5, buffer_callback=buffers.append)
    if len(buffers) != 1:
        raise ValueError(f"an array of {kind} cannot be written in a queue: put it")
    return pickled, array.nbytes


def _pickle_of(array: Any) -> Optional[bytes]:
    """The pickle of an array whose bytes are one buffer as it lies, without it; None: another."""
    kind = array.dtype
    if kind.kind in "biufc" and array.flags.carray and array.size and array.shape:
        return _pickle_of_array(array.shape, kind)[0]
    return None


class Queue:
    """A first-in, first-out queue of objects between processes.

    ``put`` writes into shared memory itself, without a thread: what was put is there, also if
    the process is killed the moment after. So a queue has a size (``maxsize``; 1,024 without
    one), and ``put`` waits when it is full. An object under a lease keeps its place. A message of
    more than 232 bytes, pickled, needs one of ``buffers`` buffers of ``buffer_bytes`` bytes, which
    is the longest message. Buffers of objects, as those of NumPy arrays, do not go through the
    pickle.

    With ``peer_died`` a ``get`` raises PeerDied, once, when the last process that has put was
    killed and all was taken; ``put`` when the last one that has got was killed. For queues of
    which each end has one process, or whose processes all have begun: one that has yet to put
    is not known.
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
        peer_died: bool = False,
    ) -> None:
        capacity = maxsize if maxsize > 0 else 1024
        if world is None:
            memory = 320 * (capacity + 64) * 2 + (buffer_bytes + 1024) * buffers + (1 << 17)
            world = World(create=True, processes=processes, memory=memory)
        name = name or secrets.token_hex(8)
        self._take(world._object("_messages", name, capacity, buffers, buffer_bytes, peer_died))

    def _take(self, messages: _towpath.Messages) -> None:
        self._messages = messages
        self._send = messages.send
        self._receive = messages.receive
        self._gets = Attempts(messages.attempt, messages.fileno, Empty)
        self._puts = Attempts(messages.attempt_put, functools.partial(messages.fileno, True), Full)
        self._closed = False
        # Called without a step between.
        if type(self).put is Queue.put:
            self.put = messages.put  # type: ignore[method-assign]
        if type(self).get is Queue.get:
            self.get = messages.get  # type: ignore[method-assign]

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"Queue {self!r} is closed")

    def put(self, obj: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Puts an object. Raises Full if there was no room in time."""
        self._check()
        self._messages.put(obj, block, timeout)

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Takes the oldest object. Raises Empty if there was none in time."""
        self._check()
        return self._messages.get(block, timeout)

    @contextlib.contextmanager
    def reserve(
        self, shape: Any, dtype: Any = "float64", block: bool = True, timeout: Optional[float] = None
    ) -> Iterator[Any]:
        """A NumPy array in a buffer of the queue, to be written in a ``with`` block.

        It is put when the block ends, without a copy; not if the block raises, or the process is
        killed. At first it has any values. It is valid within the block only.
        """
        import numpy

        self._check()
        shape = (int(shape),) if hasattr(shape, "__index__") else tuple(shape)
        kind = numpy.dtype(dtype)
        pickled, size = _pickle_of_array(shape, kind)
        reserved = self._messages.reserve(block, timeout)
        if reserved is None:
            raise Full
        try:
            yield numpy.ndarray(shape, kind, reserved.begin(pickled, size))
            reserved.send(pickled, size)
        finally:
            reserved.end()

    @contextlib.contextmanager
    def lease(self, block: bool = True, timeout: Optional[float] = None) -> Iterator[Any]:
        """Takes the oldest object for a ``with`` block, without a copy of its buffers.

        If the process is killed within the block the object comes in again, for another
        receiver; also if the block raises. NumPy arrays in it lie in the queue, and are valid
        within the block only.
        """
        self._check()
        lease = self._messages.lease(block, timeout)
        if lease is None:
            raise Empty
        try:
            yield lease.object()
        except BaseException:
            lease.give_back()
            raise
        lease.done()

    def try_get(self) -> Any:
        """As ``get_nowait``; if it raises Empty the descriptor becomes readable in time."""
        self._check()
        return self._messages.attempt()

    def as_fd(self) -> int:
        """A descriptor for event loops: after ``try_get`` has raised Empty it becomes readable
        when another ``try_get`` may succeed. It may be readable for no reason."""
        return self._messages.fileno()

    fileno = as_fd

    async def get_async(self) -> Any:
        """``get`` for asyncio. A task that is cancelled loses nothing."""
        self._check()
        return await self._gets.until_done()

    def try_put(self, obj: Any) -> None:
        """As ``put_nowait``; if it raises Full the descriptor of puts becomes readable in time."""
        self._check()
        self._messages.attempt_put(obj)

    def put_as_fd(self) -> int:
        """A descriptor for event loops, as ``as_fd``, for attempts by ``try_put``."""
        return self._messages.fileno(True)

    async def put_async(self, obj: Any) -> None:
        """``put`` for asyncio. A task that is cancelled has put nothing."""
        self._check()
        await self._puts.until_done(obj)

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
        """This process puts and gets no more; its threads and tasks that wait raise Closed. The
        other processes go on."""
        self._closed = True
        self.__dict__.pop("put", None)
        self.__dict__.pop("get", None)
        self._messages.end_waits()
        for attempts in self._gets, self._puts:
            attempts.end(Closed(f"Queue {self!r} is closed"))

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
        self._check()
        return self._messages.get()

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
        with self._counted():
            super().put(obj, block, timeout)

    def try_put(self, obj: Any) -> None:
        """As Queue.try_put; counts the object."""
        with self._counted():
            super().try_put(obj)

    async def put_async(self, obj: Any) -> None:
        """As Queue.put_async; counts the object."""
        with self._counted():
            await super().put_async(obj)

    @contextlib.contextmanager
    def reserve(
        self, shape: Any, dtype: Any = "float64", block: bool = True, timeout: Optional[float] = None
    ) -> Iterator[Any]:
        """As Queue.reserve; counts the array."""
        with self._counted(), super().reserve(shape, dtype, block, timeout) as array:
            yield array

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        # Counted first: the object may be done before this returns.
        self._add(1)
        try:
            yield
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
