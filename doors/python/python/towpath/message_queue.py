"""A queue with the methods of vLLM's ``MessageQueue``, over a broadcast ring.

    writer = MessageQueue(n_reader=2, n_local_reader=2)
    handle = writer.export_handle()                     # goes to the readers, by pickle
    reader = MessageQueue.create_from_handle(handle, rank)
    queue.wait_until_ready()                            # each of them

What differs: no process polls while it waits; a reader that is killed holds the writer back no
longer; ``dequeue`` raises PeerDied when the writer was killed, and all was read. All readers are on
this host. There is no ``create_from_process_group``: broadcast the handle with
``torch.distributed.broadcast_object_list``.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import secrets
import select
import time
from typing import Any, List, Optional

from .errors import PeerDied
from .queues import _dumps
from .world import World, ring_memory

# Longest time between two looks at what cancels a wait, in seconds.
_TURN = 0.1
# Bytes of the ring, at most: messages of any length go through in pieces.
_MOST = 1 << 24


@dataclasses.dataclass(frozen=True)
class Handle:
    """What a reader needs to find the queue."""

    local_reader_ranks: List[int]
    world: str
    capacity: int
    writer: int = 0
    """The writer's process."""


class _Process:
    """A process by its number, of which only whether it has ended is asked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._descriptor: Optional[int] = os.pidfd_open(pid)
        except ProcessLookupError:
            self._descriptor = None

    def __enter__(self) -> "_Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def has_ended(self) -> bool:
        return self._descriptor is None or bool(select.select([self._descriptor], [], [], 0)[0])


class MessageQueue:
    """One writer, whose objects all readers get. See the module's text."""

    def __init__(
        self,
        n_reader: int,
        n_local_reader: int,
        local_reader_ranks: Optional[List[int]] = None,
        max_chunk_bytes: int = 24 << 20,
        max_chunks: int = 10,
        connect_ip: Optional[str] = None,
    ) -> None:
        ranks = list(range(n_local_reader)) if local_reader_ranks is None else list(local_reader_ranks)
        if n_reader != n_local_reader or len(ranks) != n_local_reader:
            raise ValueError("all readers must be on this host")
        capacity = min(max(max_chunk_bytes * max_chunks, 1 << 16), _MOST)
        world = World(
            f"queue-{secrets.token_hex(8)}", create=True, processes=n_reader + 8, memory=ring_memory(capacity)
        )
        self._set(world, Handle(ranks, world.name or "", capacity, os.getpid()), True)
        # The writer from now on.
        self._ring.readers()

    def _set(self, world: World, handle: Handle, is_writer: bool) -> None:
        self._world, self._handle, self._is_writer = world, handle, is_writer
        self._ring = world.broadcast("ring", handle.capacity)
        self._ready = world.event("ready")

    def export_handle(self) -> Handle:
        """What readers need."""
        return self._handle

    @staticmethod
    def create_from_handle(handle: Handle, rank: int) -> "MessageQueue":
        """The reader of that rank."""
        if rank not in handle.local_reader_ranks:
            raise ValueError(f"rank {rank} is not one of the readers {handle.local_reader_ranks}")
        queue = MessageQueue.__new__(MessageQueue)
        queue._set(World(handle.world), handle, False)
        queue._ring.subscribe()
        return queue

    def wait_until_ready(self, timeout: Optional[float] = None) -> None:
        """Waits until the writer and all readers are there. Raises TimeoutError; PeerDied in a reader
        whose writer was killed before."""
        until = None if timeout is None else time.monotonic() + timeout
        if self._is_writer:
            while self._ring.readers() < len(self._handle.local_reader_ranks):
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError("not all readers came in time")
                time.sleep(0.001)
            # All have it: no file stays, whatever is killed.
            self._world.unlink()
            self._ready.set()
            return
        with _Process(self._handle.writer) as writer:
            while not self._ready.wait(_TURN if until is None else min(_TURN, max(until - time.monotonic(), 0.0))):
                # It is asked for first: it may have set the event and ended since.
                if writer.has_ended() and not self._ready.is_set():
                    self._world.unlink()
                    raise PeerDied("the writer of the queue died before all readers were there", None, writer.pid, None)
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError("the queue was not ready in time")

    def enqueue(self, obj: Any, timeout: Optional[float] = None) -> None:
        """Sends an object to all readers. Raises TimeoutError if a living one had no room in time."""
        if not self._is_writer:
            raise RuntimeError("only the writer enqueues")
        if not self._ring.send_bytes(_dumps(obj), timeout):
            raise TimeoutError("a reader had no room for the message in time")

    def dequeue(self, timeout: Optional[float] = None, cancel: Any = None, indefinite: bool = False) -> Any:
        """The next object. Raises TimeoutError; RuntimeError once ``cancel`` (an event) is set;
        PeerDied if the writer was killed and all was read."""
        if self._is_writer:
            raise RuntimeError("only readers dequeue")
        until = None if timeout is None or indefinite else time.monotonic() + timeout
        while True:
            turn = None if cancel is None else _TURN
            if until is not None:
                left = max(until - time.monotonic(), 0.0)
                turn = left if turn is None else min(turn, left)
            message = self._ring.receive_bytes(turn)
            if message is not None:
                return pickle.loads(message)
            if cancel is not None and cancel.is_set():
                raise RuntimeError("cancelled")
            if until is not None and time.monotonic() >= until:
                raise TimeoutError("no message came in time")

    def broadcast_object(self, obj: Any = None) -> Any:
        """The writer's object, in the writer and in all readers."""
        if self._is_writer:
            self.enqueue(obj)
            return obj
        return self.dequeue()

    def shutdown(self) -> None:
        """Ends this process's part. When the writer's has ended readers get Closed."""
        self._ring.close()
