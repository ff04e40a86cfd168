"""Locks, queues and shared arrays between processes that survive the kill of any of them."""

from ._towpath import Event, Lock, RwLock, Semaphore
from .context import Context, get_context
from .errors import Closed, Empty, Full, OwnerDied, PeerDied, WorldError, WorldFull
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
    "Full",
    "JoinableQueue",
    "Lock",
    "OwnerDied",
    "PeerDied",
    "Queue",
    "RwLock",
    "Semaphore",
    "SimpleQueue",
    "World",
    "WorldError",
    "WorldFull",
    "get_context",
    "repair",
]
