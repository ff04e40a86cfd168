"""Worlds: shared memory with named objects, and the processes that use them."""

from __future__ import annotations

import contextlib
import copyreg
import ctypes
import math
import multiprocessing
import os
import weakref
from multiprocessing import reduction, util
from threading import BrokenBarrierError
from typing import Any, Iterator, Optional

from . import _towpath
from .errors import OwnerDied, PeerDied

# Worlds of this process by inode of their segment, and all of them.
_by_inode: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_all: weakref.WeakSet = weakref.WeakSet()
# Queues, broadcasts and conditions, which a process leaves before it leaves their worlds.
_joined: weakref.WeakSet = weakref.WeakSet()
# Handles that a fork has copied. They are their parent's: the child must not end them.
_inherited: list = []


class World(_towpath._World):
    """A world: shared memory with objects by name, for processes of one user on one host.

    ``World("bank", create=True)`` makes a world, or takes the place of a dead one of that name;
    ``World("bank")`` opens it; ``World(create=True)`` makes one without a name, which travels by
    pickle to child processes and of which no file exists; ``World()`` joins the world of
    ``towpath run``. ``processes`` is the number of processes that may use it at a time,
    ``memory`` the number of bytes for its objects.

    A process enters when it first uses an object, a forked child too. The name is removed when
    the last process leaves; if all of them are killed, by the next that makes a world of this
    name, or by ``towpath clean``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        stat = os.fstat(self.fileno())
        self._objects: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        _by_inode.setdefault((stat.st_dev, stat.st_ino), self)
        _all.add(self)

    def lock(self, name: str) -> _towpath.Lock:
        """The lock of that name, made if there is none."""
        return self._object("_lock", name, False)

    def rlock(self, name: str) -> _towpath.Lock:
        """The lock of that name, which its holder may acquire again."""
        return self._object("_lock", name, True)

    def condition(self, name: str, lock: Optional[_towpath.Lock] = None) -> "Condition":
        """The condition of that name, with a lock of this world; without one, with its own."""
        if lock is None:
            lock = self.rlock(f"{name}-lock")
        return self._object("_condition", name, lock, wrap=Condition)

    def semaphore(self, name: str, value: int = 1) -> _towpath.Semaphore:
        """The semaphore of that name, made with so many permits if there is none."""
        return self._object("_semaphore", name, value, False)

    def bounded_semaphore(self, name: str, value: int = 1) -> _towpath.Semaphore:
        """The semaphore of that name, of which no process releases more than it has taken."""
        return self._object("_semaphore", name, value, True)

    def event(self, name: str) -> _towpath.Event:
        """The event of that name."""
        return self._object("_event", name)

    def barrier(self, name: str, parties: int) -> "Barrier":
        """The barrier of that name, for 1 to 64 threads or processes."""
        barrier = self._object("_barrier", name, parties, wrap=Barrier)
        if barrier.parties != parties:
            raise ValueError(f"the barrier {name!r} is for {barrier.parties}, not {parties}")
        return barrier

    def rwlock(self, name: str) -> _towpath.RwLock:
        """The readers-writer lock of that name."""
        return self._object("_rwlock", name)

    def broadcast(self, name: str, capacity: int = 1 << 16) -> "Broadcast":
        """The broadcast ring of that name, of so many bytes: one writer, up to 64 readers."""
        return self._object("_broadcast", name, capacity, wrap=Broadcast)

    def array(self, name: str, shape: Any, dtype: Any = "float64") -> Any:
        """The NumPy array of that name over the shared memory itself; zeros when it is made.

        ValueError if it has another number of bytes or another dtype.
        """
        import numpy

        kind = numpy.dtype(dtype)
        if kind.hasobject:
            raise ValueError("an array of Python objects cannot be shared")
        shape = (int(shape),) if hasattr(shape, "__index__") else tuple(map(int, shape))
        if min(shape, default=0) < 0:
            raise ValueError("negative dimensions are not allowed")
        count = math.prod(shape)
        # The layout of a structure is that of its fields.
        form = kind.str if kind.fields is None else str(kind.descr)
        shared = self._object("_bytes", name, count * kind.itemsize, form)
        if len(shared) != count * kind.itemsize:
            raise ValueError(f"the array {name!r} has {len(shared)} bytes, not {count * kind.itemsize}")
        buffer = buffer_of(shared)
        return numpy.frombuffer(buffer, dtype=kind, count=count).reshape(shape)

    def _object(self, kind: str, name: str, *args: Any, wrap: Any = None) -> Any:
        # One handle of an object in a process: it knows which thread holds a lock.
        key = kind, name, args[-1:] if kind in ("_lock", "_bytes") else ()
        found = self._objects.get(key)
        if found is None:
            found = getattr(self, kind)(name, *args)
            if wrap is not None:
                found = wrap(found)
            if kind in ("_messages", "_broadcast", "_condition"):
                _joined.add(found)
            self._objects[key] = found
        return found

    def __reduce__(self):
        if self.name is not None:
            return _open, (self.name,)
        return _attach, (reduction.DupFd(self.fileno()),)

    def __repr__(self) -> str:
        return f"<towpath.World {self.name or 'without a name'}, rank {self.rank} of {self.size}>"


def _open(name: str) -> World:
    for world in list(_all):
        if world.name == name:
            return world
    return World(name)


def _attach(passed: Any) -> World:
    descriptor = passed.detach()
    stat = os.fstat(descriptor)
    known = _by_inode.get((stat.st_dev, stat.st_ino))
    if known is not None:
        os.close(descriptor)
        return known
    return World(descriptor=descriptor)


def buffer_of(shared: _towpath.Bytes) -> Any:
    """A ctypes array over bytes of a world, which keeps them mapped."""
    buffer = (ctypes.c_char * len(shared)).from_address(shared.address)
    buffer._owner = shared
    return buffer


class Condition:
    """A condition, as multiprocessing's. It has the lock's methods, too."""

    def __init__(self, inner: _towpath._Condition) -> None:
        self._inner = inner
        self.acquire = inner.lock.acquire
        self.release = inner.lock.release
        self.wait = inner.wait
        self.notify = inner.notify
        self.notify_all = inner.notify_all
        self._end = inner._end

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> bool:
        return self._inner.lock.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._inner.lock.__exit__(*exc)

    def wait_for(self, predicate: Any, timeout: Optional[float] = None) -> Any:
        """Waits until the predicate is true; returns its last value."""
        import time

        result = predicate()
        until = None if timeout is None else time.monotonic() + timeout
        while not result:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def repair(self, timeout: Optional[float] = None) -> Any:
        """As the lock's."""
        return repair(self._inner.lock, timeout)

    def __reduce__(self):
        inner = self._inner
        return _condition, (inner.world, inner.name, inner.lock)


def _condition(world: World, name: str, lock: _towpath.Lock) -> Condition:
    return world.condition(name, lock)


class Barrier:
    """A barrier, as multiprocessing's, whose waiters are told of a death by PeerDied.

    After a death the next episode is among those that are left. A time-out or ``abort`` breaks it
    for all, until ``reset``.
    """

    # Words in shared memory: arrivals in this episode, the episode, whether it is broken, resets,
    # participants that are known to be dead or have left, and the episode, plus one, in which the
    # last death was told.
    _ARRIVALS, _EPISODE, _BROKEN, _RESETS, _GONE, _TOLD = range(6)
    # Longest time between two looks whether it is broken, in seconds.
    _TURN = 0.05

    def __init__(self, inner: _towpath._Barrier) -> None:
        self._world, self._name = inner.world, inner.name
        self._inners = {0: inner}
        self._words = memoryview(buffer_of(self._world._object("_bytes", f"{self._name}-n", 48))).cast("B").cast("Q")
        self._order = self._world.lock(f"{self._name}-order")
        self._parties = inner.parties
        self._action: Any = None
        self._timeout: Optional[float] = None

    def __repr__(self) -> str:
        return repr(self._inners[0])

    @property
    def parties(self) -> int:
        """Number of participants."""
        return self._parties

    @property
    def broken(self) -> bool:
        """True after a time-out or ``abort``, until ``reset``."""
        return bool(self._words[self._BROKEN])

    @property
    def n_waiting(self) -> int:
        """Number of waiters."""
        return self._words[self._ARRIVALS]

    def join(self) -> None:
        """Takes this thread's place without arriving: the others are told if it dies."""
        self._inner(self._words[self._RESETS]).join()

    def leave(self) -> bool:
        """Arrives without waiting, and gives this thread's place up: no later episode waits for it,
        and none is told when it ends.

        Returns whether it had a place. It, or another process, may come in its place.
        """
        with repair(self._order):
            if not self._inner(self._words[self._RESETS]).leave():
                return False
            self._count_gone()
            self._end_if_complete()
            return True

    def abort(self) -> None:
        """Breaks it: waiters, within 50 ms, and all that come raise BrokenBarrierError."""
        with repair(self._order):
            self._words[self._BROKEN] = 1

    def reset(self) -> None:
        """Makes it usable again. Those that wait raise BrokenBarrierError."""
        with repair(self._order):
            self._words[self._RESETS] += 1
            for word in (self._ARRIVALS, self._BROKEN, self._GONE, self._TOLD):
                self._words[word] = 0

    def wait(self, timeout: Optional[float] = None) -> int:
        """Arrives and waits for all; returns a number that is different for each of them.

        Raises PeerDied if a participant died, BrokenBarrierError if it is broken. When another
        process has taken the place of one that died or left, numbers are different again after
        ``reset``.
        """
        import time

        timeout = self._timeout if timeout is None else timeout
        until = None if timeout is None else time.monotonic() + timeout
        with repair(self._order):
            resets = self._words[self._RESETS]
            if self._words[self._BROKEN]:
                raise BrokenBarrierError("the barrier is broken: reset it")
            index, episode = self._words[self._ARRIVALS], self._words[self._EPISODE]
            self._words[self._ARRIVALS] += 1
            self._end_if_complete()
        try:
            self._pass(resets, until)
        except PeerDied:
            self._note_death(resets, episode)
            raise
        if self._action is not None:
            if index == 0:
                try:
                    self._action()
                except BaseException:
                    self.abort()
                    raise
            self._pass(resets, until)
        return index

    def _note_death(self, resets: int, episode: int) -> None:
        """Counts the death of which all are told that have waited in this episode."""
        with repair(self._order):
            if self._words[self._RESETS] != resets or self._words[self._TOLD] == episode + 1:
                return
            self._words[self._TOLD] = episode + 1
            self._count_gone()
            if self._words[self._EPISODE] == episode:
                self._next_episode()

    def _count_gone(self) -> None:
        self._words[self._GONE] = min(self._words[self._GONE] + 1, self._parties - 1)

    def _end_if_complete(self) -> None:
        if self._words[self._ARRIVALS] >= self._parties - self._words[self._GONE]:
            self._next_episode()

    def _next_episode(self) -> None:
        self._words[self._ARRIVALS] = 0
        self._words[self._EPISODE] += 1

    def _inner(self, resets: int) -> Any:
        inner = self._inners.get(resets)
        if inner is None:
            # What waits at the one before has arrived there, and is not waited for here.
            inner = self._world._object("_barrier", f"{self._name}-r{resets}", self._parties)
            self._inners = {resets: inner}
        return inner

    def _pass(self, resets: int, until: Optional[float]) -> None:
        import time

        inner = self._inner(resets)
        while True:
            left = self._TURN if until is None else min(self._TURN, max(until - time.monotonic(), 0.0))
            if inner._wait(left):
                return
            if self._words[self._BROKEN] or self._words[self._RESETS] != resets:
                raise BrokenBarrierError("the barrier was broken or reset meanwhile")
            if until is not None and time.monotonic() >= until:
                self.abort()
                raise BrokenBarrierError("not all participants came in time")

    def __reduce__(self):
        return _barrier, (self._world, self._name, self._parties, self._action, self._timeout)


def _barrier(world: World, name: str, parties: int, action: Any, timeout: Optional[float]) -> Barrier:
    barrier = world.barrier(name, parties)
    barrier._action, barrier._timeout = action, timeout
    return barrier


class Broadcast:
    """Messages from one writer to up to 64 readers, which get what is sent after they came."""

    def __init__(self, inner: _towpath._Broadcast) -> None:
        self._inner = inner
        self._ends: dict = {}
        self._pid = os.getpid()

    def _as(self, kind: str) -> Any:
        if self._pid != os.getpid():
            _inherited.append(self._ends)
            self._ends, self._pid = {}, os.getpid()
        end = self._ends.get(kind)
        if end is None:
            end = self._ends[kind] = getattr(self._inner, kind)()
        return end

    def subscribe(self) -> None:
        """Becomes a reader: gets all that is sent from now on."""
        self._as("_reader")

    def readers(self) -> int:
        """Number of readers. The caller becomes the writer."""
        return self._as("_writer").readers()

    def send_bytes(self, message: Any, timeout: Optional[float] = None) -> bool:
        """Sends bytes, or a buffer of them, to all readers; False if the time was over."""
        message = message if isinstance(message, bytes) else memoryview(message).tobytes()
        return self._as("_writer").send(message, timeout)

    def receive_bytes(self, timeout: Optional[float] = None) -> Optional[bytes]:
        """The next message; None if the time was over. Raises Closed at the end."""
        return self._as("_reader").receive(timeout)

    def _end(self) -> None:
        self.close()

    def close(self) -> None:
        """Ends the writer or reader that this process has been."""
        if self._pid == os.getpid():
            for end in self._ends.values():
                end.close()
            self._ends = {}

    def __reduce__(self):
        return _broadcast, (self._inner.world, self._inner.name, self._inner.capacity)


def ring_memory(capacity: int) -> int:
    """Bytes of a world for a broadcast ring of so many bytes, which get a power of two."""
    return (1 << max(capacity - 1, 1).bit_length()) + (1 << 16)


def _broadcast(world: World, name: str, capacity: int) -> Broadcast:
    return world.broadcast(name, capacity)


@contextlib.contextmanager
def repair(lock: _towpath.Lock, timeout: Optional[float] = None) -> Iterator[Optional[OwnerDied]]:
    """Acquires a lock, whether or not its last owner died with it.

    Gives the death, or None. If the block ends without an exception, the data count as repaired;
    otherwise the next owner is told of the death, too.
    """
    got = lock._acquire_any(timeout)
    if got is None:
        raise TimeoutError("the lock was held by others until the time was over")
    died, rank = got
    try:
        yield OwnerDied("the last owner died", *lock._dead(rank)) if died else None
        if died:
            lock.make_consistent()
    finally:
        lock.release()


def _rebuild(world: World, method: str, *args: Any) -> Any:
    return world._object(method, *args)


copyreg.pickle(_towpath.Lock, lambda it: (_rebuild, (it.world, "_lock", it.name, it.recursive)))
copyreg.pickle(
    _towpath.Semaphore, lambda it: (_rebuild, (it.world, "_semaphore", it.name, it.get_value(), it.bounded))
)
copyreg.pickle(_towpath.Event, lambda it: (_rebuild, (it.world, "_event", it.name)))
copyreg.pickle(_towpath.RwLock, lambda it: (_rebuild, (it.world, "_rwlock", it.name)))
copyreg.pickle(_towpath.Bytes, lambda it: (_rebuild, (it.world, "_bytes", it.name, len(it))))


def _end_all() -> None:
    for joined in list(_joined):
        joined._end()
    _towpath.end()
    for world in list(_all):
        world._end()


def _arrange_end() -> None:
    # After multiprocessing has waited for the children of this process.
    util.Finalize(None, _end_all, exitpriority=-100)


def _begin() -> None:
    """What each process does at first, also after a fork."""
    _towpath.set_name(multiprocessing.current_process().name)
    _arrange_end()


def _begin_fork() -> None:
    # Its name is not known before multiprocessing has set it.
    _towpath.set_name("")
    _arrange_end()


class _Sentinel:
    pass


_sentinel = _Sentinel()
_begin()
os.register_at_fork(after_in_child=_begin_fork)
util.register_after_fork(_sentinel, lambda _: _begin())
