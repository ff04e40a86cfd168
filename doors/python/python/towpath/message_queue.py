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
import pickle
import secrets
import time
from typing import Any, List, Optional

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
        self._set(world, Handle(ranks, world.name or "", capacity), True)
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

    def wait_until_ready(self) -> None:
        """Waits until the writer and all readers are there."""
        if not self._is_writer:
            self._ready.wait()
            return
        while self._ring.readers() < len(self._handle.local_reader_ranks):
            time.sleep(0.001)
        # All have it: no file stays, whatever is killed.
        self._world.unlink()
        self._ready.set()

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
