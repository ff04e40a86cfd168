"""Exceptions of Towpath."""

from __future__ import annotations

from queue import Empty, Full
from threading import BrokenBarrierError
from typing import Optional

__all__ = ["Closed", "Empty", "Full", "OwnerDied", "PeerDied", "WorkerDied", "WorldError", "WorldFull"]


class WorldError(RuntimeError):
    """A world cannot be made, opened or entered; the text says why, and what helps."""


class WorldFull(WorldError):
    """A world has no room for another object."""


class _Died(RuntimeError):
    """A process died: its rank, process id and name, where they are known."""

    def __init__(
        self,
        text: str = "",
        rank: Optional[int] = None,
        pid: Optional[int] = None,
        name: Optional[str] = None,
    ) -> None:
        super().__init__(text)
        self.rank = rank
        self.pid = pid
        self.name = name

    def __reduce__(self):
        return type(self), (self.args[0], self.rank, self.pid, self.name)


class OwnerDied(_Died):
    """The last owner of a lock died with it, and may have left half-changed data.

    The lock is free, and stays marked: each acquisition raises this until one by
    ``with lock.repair():`` has ended without an exception.
    """


class PeerDied(_Died, BrokenBarrierError):
    """Another process of a barrier, a queue or a broadcast died."""


class Closed(ValueError):
    """A queue or a broadcast was closed."""


class WorkerDied(PeerDied):
    """The worker that ran a job was killed, or ended, before the job was done. The others go on.

    ``exitcode``: as multiprocessing's, negative for a signal.
    """

    def __init__(
        self,
        text: str = "",
        rank: Optional[int] = None,
        pid: Optional[int] = None,
        name: Optional[str] = None,
        exitcode: Optional[int] = None,
    ) -> None:
        super().__init__(text, rank, pid, name)
        self.exitcode = exitcode

    def __reduce__(self):
        return type(self), (self.args[0], self.rank, self.pid, self.name, self.exitcode)
