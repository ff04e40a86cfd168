"""A context with multiprocessing's signatures."""

from __future__ import annotations

import ctypes
import multiprocessing
import secrets
from multiprocessing import sharedctypes
from typing import Any, Callable, Optional

from . import _towpath
from .errors import WorldFull
from .executor import Executor
from .pool import Pool
from .processes import BY_METHOD
from .queues import JoinableQueue, Queue, SimpleQueue
from .world import Barrier, Broadcast, Condition, World, buffer_of, ring_memory

# Longest value that lies in the world of the small objects.
_SMALL = 4096


class Context:
    """Locks, queues and shared memory for the processes of one start method.

    Its small objects lie in a world without a name, its queues and large arrays in worlds of
    their own: no file exists that a kill could leave behind. What it does not make itself
    (``Manager``, ``cpu_count`` …) is multiprocessing's.
    """

    def __init__(self, method: Optional[str] = None, *, processes: int = 128) -> None:
        self._base = multiprocessing.get_context(method)
        # multiprocessing's, whose daemons end when this process is killed, too.
        self.Process = BY_METHOD[self._base.get_start_method()]
        self._processes = processes
        self._world: Optional[World] = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)

    def _new_world(self) -> World:
        self._world = World(create=True, processes=self._processes, memory=1 << 20)
        return self._world

    def _make(self, make: Callable[[World, str], Any]) -> Any:
        name = secrets.token_hex(8)
        try:
            return make(self._world or self._new_world(), name)
        except WorldFull:
            return make(self._new_world(), name)

    def Lock(self) -> _towpath.Lock:
        """A lock that its holder alone releases; it tells of the death of its owner."""
        return self._make(lambda world, name: world.lock(name))

    def RLock(self) -> _towpath.Lock:
        """A lock that its holder may acquire again."""
        return self._make(lambda world, name: world.rlock(name))

    def Condition(self, lock: Optional[_towpath.Lock] = None) -> Condition:
        """A condition beside a lock of such a context, or its own RLock."""
        if lock is not None:
            return lock.world.condition(secrets.token_hex(8), lock)
        return self._make(lambda world, name: world.condition(name))

    def Semaphore(self, value: int = 1) -> _towpath.Semaphore:
        """A semaphore whose permits come back from the dead."""
        return self._make(lambda world, name: world.semaphore(name, value))

    def BoundedSemaphore(self, value: int = 1) -> _towpath.Semaphore:
        """A semaphore of which no process releases more than it has taken."""
        return self._make(lambda world, name: world.bounded_semaphore(name, value))

    def Event(self) -> _towpath.Event:
        """An event."""
        return self._make(lambda world, name: world.event(name))

    def Barrier(
        self, parties: int, action: Optional[Callable[[], Any]] = None, timeout: Optional[float] = None
    ) -> Barrier:
        """A barrier whose waiters are told of a death."""
        barrier = self._make(lambda world, name: world.barrier(name, parties))
        barrier._action, barrier._timeout = action, timeout
        return barrier

    def RwLock(self) -> _towpath.RwLock:
        """A readers-writer lock."""
        return self._make(lambda world, name: world.rwlock(name))

    def broadcast(self, capacity: int = 1 << 16) -> Broadcast:
        """A broadcast ring of so many bytes: one writer, up to 64 readers."""
        world = World(create=True, processes=self._processes, memory=ring_memory(capacity))
        return world.broadcast("ring", capacity)

    def Queue(self, maxsize: int = 0, **size: int) -> Queue:
        """A queue; ``buffers`` and ``buffer_bytes``: see Queue."""
        return Queue(maxsize, **size)

    def SimpleQueue(self) -> SimpleQueue:
        """A queue without time-outs."""
        return SimpleQueue()

    def JoinableQueue(self, maxsize: int = 0, **size: int) -> JoinableQueue:
        """A queue that counts what is not done yet."""
        return JoinableQueue(maxsize, **size)

    def Pool(
        self,
        processes: Optional[int] = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Any = (),
        maxtasksperchild: Optional[int] = None,
    ) -> Pool:
        """multiprocessing's pool, which goes on when a worker is killed."""
        return Pool(processes, initializer, initargs, maxtasksperchild, context=self)

    def Executor(self, max_workers: Optional[int] = None, **others: Any) -> Executor:
        """An executor that goes on when a worker is killed."""
        return Executor(max_workers, self, **others)

    def RawValue(self, typecode_or_type: Any, *args: Any) -> Any:
        """A ctypes object in shared memory."""
        kind = sharedctypes.typecode_to_type.get(typecode_or_type, typecode_or_type)
        value = sharedctypes.rebuild_ctype(kind, self._place(ctypes.sizeof(kind)), None)
        value.__init__(*args)
        return value

    def RawArray(self, typecode_or_type: Any, size_or_initializer: Any) -> Any:
        """A ctypes array in shared memory."""
        kind = sharedctypes.typecode_to_type.get(typecode_or_type, typecode_or_type)
        initial = () if isinstance(size_or_initializer, int) else tuple(size_or_initializer)
        length = size_or_initializer if isinstance(size_or_initializer, int) else len(initial)
        array = sharedctypes.rebuild_ctype(kind, self._place(ctypes.sizeof(kind) * length), length)
        if initial:
            array.__init__(*initial)
        return array

    def Value(self, typecode_or_type: Any, *args: Any, lock: Any = True) -> Any:
        """A ctypes object in shared memory, with a lock."""
        return self._locked(self.RawValue(typecode_or_type, *args), lock)

    def Array(self, typecode_or_type: Any, size_or_initializer: Any, *, lock: Any = True) -> Any:
        """A ctypes array in shared memory, with a lock."""
        return self._locked(self.RawArray(typecode_or_type, size_or_initializer), lock)

    def _locked(self, thing: Any, lock: Any) -> Any:
        if lock is False:
            return thing
        return sharedctypes.synchronized(thing, self.RLock() if lock in (True, None) else lock)

    def _place(self, size: int) -> "_Place":
        if size <= _SMALL:
            return _Place(self._make(lambda world, name: world._object("_bytes", name, max(size, 1))))
        world = World(create=True, processes=self._processes, memory=size + _SMALL)
        return _Place(world._object("_bytes", "array", size))


class _Place:
    """Memory of a ctypes object, as multiprocessing asks for it."""

    def __init__(self, shared: _towpath.Bytes) -> None:
        self._shared = shared

    def create_memoryview(self) -> memoryview:
        return memoryview(buffer_of(self._shared))


def get_context(method: Optional[str] = None, *, processes: int = 128) -> Context:
    """A context for a start method (fork, spawn, forkserver), as multiprocessing.get_context.

    ``processes``: the number of processes that may use its objects at a time.
    """
    return Context(method, processes=processes)
