"""Locks, queues and shared arrays between processes that survive the kill of any of them."""

from ._towpath import Event, Lock, RwLock, Semaphore
from .context import Context, get_context
from .errors import Closed, Empty, Full, OwnerDied, PeerDied, WorkerDied, WorldError, WorldFull
from .executor import Executor
from .pool import Pool
from .queues import JoinableQueue, Queue, SimpleQueue
from .world import Barrier, Broadcast, Condition, World, repair

__all__ = [
    "Barrier",
    "Broadcast",
    "Closed",
    "Condition",
    "Context",
    "Empty",
    "Event",
    "Executor",
    "Full",
    "JoinableQueue",
    "Lock",
    "OwnerDied",
    "PeerDied",
    "Pool",
    "Queue",
    "RwLock",
    "Semaphore",
    "SimpleQueue",
    "WorkerDied",
    "World",
    "WorldError",
    "WorldFull",
    "get_context",
    "repair",
]
