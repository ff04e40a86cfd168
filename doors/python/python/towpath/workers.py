"""Workers: processes that run jobs. One that is killed loses the job that it ran, and no other.

Each worker has an inbox, of which the parent is the only sender; up to 48 share a queue of results.
Before a worker runs a job it writes the job's number into its mark, in shared memory: after its
death the parent knows by the mark which of the jobs that it had sent there was running. That one is
lost (or tried again); the others go to other workers. What the dead had put into the results
before is received first, since the notice of its death comes behind it in the same queue.

A worker ends when its parent is killed (processes.py). One of another context's processes ends
after its job: its inbox has lost the last sender.
"""

from __future__ import annotations

import atexit
import collections
import multiprocessing.connection
import os
import struct
import threading
import weakref
from multiprocessing.pool import ExceptionWithTraceback, MaybeEncodingError
from pickle import loads
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from .errors import PeerDied, WorkerDied
from .queues import Queue, _dumps
from .world import World, buffer_of

# Head of a message to a worker: its generation, number of the job (0: the end), parts that follow.
_JOB = struct.Struct("<QQQ")
# Head of a message to the parent: slot, generation, number of the job, parts that follow, kind.
_RESULT = struct.Struct("<QQQQQ")
_READY, _VALUE, _ERROR, _UNFIT, _DIED = range(5)

# Bytes of the part of a message that lies in one buffer.
_PART = 1 << 18
# Workers that share a queue of results, which has places for 64 processes, the dead of late included.
_GROUP = 48
# Jobs that a worker is sent before it has answered.
_AHEAD = 2
# Workers in a row that may die before they are ready.
_STILLBORN = 3

_live: "weakref.WeakSet[Workers]" = weakref.WeakSet()


def _parts(data: bytes, room: int) -> List[memoryview]:
    view = memoryview(data)
    return [view[at : at + room] for at in range(0, len(data), room)] or [view]


def _run(
    slot: int,
    generation: int,
    inbox: Queue,
    results: Queue,
    marks: Any,
    most: Optional[int],
    initializer: Optional[Callable[..., Any]],
    initargs: Tuple[Any, ...],
) -> None:
    """A worker's life."""
    mark = memoryview(buffer_of(marks)).cast("B").cast("Q")

    def tell(number: int, kind: int, data: bytes = b"") -> None:
        parts = _parts(data, _PART - _RESULT.size)
        for left, part in zip(reversed(range(len(parts))), parts):
            results._send(_RESULT.pack(slot, generation, number, left, kind) + part)

    try:
        if initializer is not None:
            try:
                initializer(*initargs)
            except BaseException as error:
                tell(0, _UNFIT, _dumps_error(error))
                return
        tell(0, _READY)
        done = 0
        parts: List[bytes] = []
        while most is None or done < most:
            message = inbox._receive()
            of, number, left = _JOB.unpack_from(message)
            if of != generation:
                # Sent to a predecessor; the parent sends it again.
                parts.clear()
                continue
            if number == 0:
                return
            parts.append(message[_JOB.size :])
            if left:
                continue
            mark[slot] = number
            data = b"".join(parts)
            parts.clear()
            tell(number, *_outcome(data))
            done += 1
    except PeerDied:
        # The parent was killed.
        pass


def _outcome(data: bytes) -> Tuple[int, bytes]:
    try:
        function, args, kwargs = loads(data)
        value = function(*args, **kwargs)
    except Exception as error:
        return _ERROR, _dumps_error(error)
    try:
        return _VALUE, _dumps(value)
    except Exception as error:
        return _ERROR, _dumps(MaybeEncodingError(error, value))


def _dumps_error(error: BaseException) -> bytes:
    wrapped = ExceptionWithTraceback(error, error.__traceback__)
    try:
        data = _dumps(wrapped)
        loads(data)
        return data
    except Exception as unfit:
        return _dumps(MaybeEncodingError(unfit, error))


class _Job:
    __slots__ = ("number", "data", "start", "done", "tries")

    def __init__(self, data: bytes, start: Callable[[], bool], done: Callable[[bool, Any], None], tries: int):
        self.number = 0
        self.data = data
        self.start: Optional[Callable[[], bool]] = start
        self.done = done
        self.tries = tries


class _Slot:
    """A worker's place, which its successors take."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.inbox = Queue(256, buffers=4, buffer_bytes=_PART, processes=16, peer_died=True)
        self.generation = 0
        self.process: Any = None
        self.sentinel = -1
        self.ready = False
        self.stopping = False
        self.budget: Optional[int] = None
        self.jobs: Dict[int, _Job] = {}
        self.partial: List[bytes] = []


class Workers:
    """The parent's side: jobs that wait, and the workers that run them."""

    def __init__(
        self,
        context: Any,
        count: int,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Tuple[Any, ...] = (),
        jobs_each: Optional[int] = None,
        daemon: bool = True,
    ) -> None:
        if count < 1:
            raise ValueError("the number of workers must be at least 1")
        if jobs_each is not None and jobs_each < 1:
            raise ValueError("a worker must run at least one job")
        if initializer is not None and not callable(initializer):
            raise TypeError("the initializer must be callable")
        self._context = context
        self._start_with = (initializer, initargs)
        self._jobs_each = jobs_each
        self._daemon = daemon
        self._results = [
            Queue(1024, buffers=16, buffer_bytes=_PART, processes=2 * _GROUP + 16, peer_died=True)
            for _ in range(0, count, _GROUP)
        ]
        world = World(create=True, processes=2 * count + 16, memory=8 * count + 4096)
        self._marks = world._object("_bytes", "marks", 8 * count)
        self._mark = memoryview(buffer_of(self._marks)).cast("B").cast("Q")
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._slots = [_Slot(number) for number in range(count)]
        self._waiting: Deque[_Job] = collections.deque()
        self._next = 1
        self._stillborn = 0
        self._closing = False
        self._broken: Optional[BaseException] = None
        self._ended = threading.Event()
        self._wake_out, self._wake_in = os.pipe()
        self._watched: Dict[int, Tuple[int, int]] = {}
        self._pid = os.getpid()
        # A sender from now on: a worker that starts finds its parent there.
        for slot in self._slots:
            slot.inbox._messages.join_sender()
        # Held by the listener that calls callers back: one at a time.
        self._telling = threading.RLock()
        self._listeners = [
            threading.Thread(target=self._listen, args=(group,), name="towpath-_listen", daemon=True)
            for group in range(len(self._results))
        ]
        watcher = threading.Thread(target=self._watch, name="towpath-_watch", daemon=True)
        self._threads = [*self._listeners, watcher]
        for thread in self._threads:
            thread.start()
        _live.add(self)

    # What callers use.

    def submit(
        self,
        call: Tuple[Any, Tuple[Any, ...], Dict[str, Any]],
        done: Callable[[bool, Any], None],
        start: Callable[[], bool] = lambda: True,
        tries: int = 1,
    ) -> None:
        """Gives the workers a job; ``done(whether it succeeded, value or error)`` follows.

        ``start`` is asked when it leaves for a worker: False drops it.
        """
        job = _Job(_dumps(call), start, done, tries)
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if self._closing:
                raise RuntimeError("the workers are shutting down")
            self._waiting.append(job)
            try:
                self._dispatch()
            except BaseException:
                # No process could be started.
                self._waiting.remove(job)
                raise

    def wait_for_room(self, most: int) -> None:
        """Waits until fewer jobs than so many wait for a worker."""
        with self._room:
            while len(self._waiting) >= most and self._broken is None and not self._ended.is_set():
                self._room.wait()

    def start_all(self) -> None:
        """Starts all workers that do not run."""
        with self._lock:
            for slot in self._slots:
                if slot.process is None:
                    self._start(slot)

    def close(self) -> None:
        """Takes no more jobs; workers end when all are done."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closing = True
            self._stop_idle()

    def drop_waiting(self) -> List[_Job]:
        """Takes the jobs back that wait for a worker."""
        with self._lock:
            dropped = list(self._waiting)
            self._waiting.clear()
            self._room.notify_all()
            self._stop_idle()
        return dropped

    def terminate(self) -> None:
        """Ends all workers at once; their jobs are lost."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closing = True
            lost = self.drop_waiting()
            for slot in self._slots:
                slot.stopping = True
                if slot.process is not None and slot.process.is_alive():
                    slot.process.terminate()
                    # For one whose job ignores the signal: it ends after the job.
                    self._tell_to_end(slot)
            self._end_if_done()
        for job in lost:
            job.done(False, WorkerDied("the workers were terminated"))

    def join(self, timeout: Optional[float] = None) -> bool:
        """Waits until all workers have ended, after ``close`` or ``terminate``."""
        if threading.current_thread() in self._threads:
            raise RuntimeError("a callback cannot wait for the workers, whose results wait for the callback")
        return self._ended.wait(timeout)

    def pids(self) -> List[int]:
        """Process numbers of the workers."""
        with self._lock:
            return [slot.process.pid for slot in self._slots if slot.process is not None]

    def count(self) -> int:
        """Number of workers."""
        return len(self._slots)

    # The parent's threads.

    def _dispatch(self) -> None:
        while self._waiting:
            job = self._waiting[0]
            is_long = len(job.data) > _PART - _JOB.size
            slot = self._free_slot(is_long)
            if slot is None:
                return
            self._waiting.popleft()
            start, job.start = job.start, None
            if start is not None and not start():
                continue
            self._room.notify()
            job.number, self._next = self._next, self._next + 1
            slot.jobs[job.number] = job
            if slot.budget is not None:
                slot.budget -= 1
            parts = _parts(job.data, _PART - _JOB.size)
            for left, part in zip(reversed(range(len(parts))), parts):
                if not self._send(slot, _JOB.pack(slot.generation, job.number, left) + part):
                    break

    def _free_slot(self, is_long: bool) -> Optional[_Slot]:
        """The worker with the fewest jobs; one that is new, if all have some."""
        best = None
        for slot in self._slots:
            if slot.process is None or slot.stopping or slot.budget == 0:
                continue
            if not slot.jobs:
                return slot
            if best is None or len(slot.jobs) < len(best.jobs):
                best = slot
        for slot in self._slots:
            if slot.process is None:
                self._start(slot)
                return slot
        # A worker that has a job may wait for room among the results.
        return best if best is not None and len(best.jobs) < _AHEAD and not is_long else None

    def _send(self, slot: _Slot, message: bytes) -> bool:
        """Sends to a worker; False if it died: the notice of its death will come."""
        while True:
            try:
                if slot.inbox._send(message, True, 0.1):
                    return True
            except PeerDied:
                return False
            if not slot.process.is_alive():
                return False

    def _start(self, slot: _Slot) -> None:
        slot.generation += 1
        slot.ready, slot.stopping, slot.budget = False, False, self._jobs_each
        slot.partial.clear()
        self._mark[slot.number] = 0
        results = self._results_of(slot.number)
        args = (slot.number, slot.generation, slot.inbox, results, self._marks, self._jobs_each)
        process = self._context.Process(target=_run, args=args + self._start_with)
        process.daemon = self._daemon
        process._is_worker = True
        process.name = process.name.replace("Process", "TowpathWorker")
        process.start()
        # Only now: a slot without a process is one that is to be started.
        slot.process = process
        self._watched[self._sentinel(slot)] = (slot.number, slot.generation)
        os.write(self._wake_in, b"x")

    @staticmethod
    def _sentinel(slot: _Slot) -> int:
        # A sentinel of multiprocessing's stays open in children of the worker.
        try:
            slot.sentinel = os.pidfd_open(slot.process.pid)
        except OSError:
            slot.sentinel = os.dup(slot.process.sentinel)
        return slot.sentinel

    def _watch(self) -> None:
        """Puts a notice behind the results of each worker that has ended."""
        while True:
            with self._lock:
                watched = dict(self._watched)
            ready = multiprocessing.connection.wait([self._wake_out, *watched])
            for sentinel in ready:
                if sentinel == self._wake_out:
                    if os.read(self._wake_out, 4096).endswith(b"q"):
                        os.close(self._wake_out)
                        os.close(self._wake_in)
                        return
                    continue
                with self._lock:
                    del self._watched[sentinel]
                os.close(sentinel)
                number, generation = watched[sentinel]
                self._results_of(number)._send(_RESULT.pack(number, generation, 0, 0, _DIED))

    def _results_of(self, number: int) -> Queue:
        return self._results[number // _GROUP]

    def _listen(self, group: int) -> None:
        while not self._ended.is_set():
            try:
                message = self._results[group]._receive()
            except PeerDied:
                # Its notice comes by the watch.
                continue
            number, generation, job, left, kind = _RESULT.unpack_from(message)
            slot = self._slots[number]
            outcomes: List[Tuple[_Job, bool, Any]] = []
            with self._lock:
                if generation != slot.generation:
                    continue
                if kind == _DIED:
                    outcomes = self._bury(slot)
                elif kind == _READY:
                    slot.ready, self._stillborn = True, 0
                elif left:
                    slot.partial.append(message[_RESULT.size :])
                    continue
                else:
                    data = b"".join([*slot.partial, message[_RESULT.size :]])
                    slot.partial.clear()
                    if kind == _UNFIT:
                        outcomes = self._break(loads(data))
                    elif job in slot.jobs:
                        outcomes = [(slot.jobs.pop(job), kind == _VALUE, data)]
                try:
                    self._dispatch()
                except Exception as error:
                    outcomes += self._break(error)
                self._stop_idle()
            for each, succeeded, value in outcomes:
                if isinstance(value, bytes):
                    try:
                        value = loads(value)
                    except Exception as error:
                        succeeded, value = False, error
                with self._telling:
                    each.done(succeeded, value)
                del each, value
            outcomes.clear()
        # The watcher ends after one of them: no worker is started any more.
        if group == 0:
            os.write(self._wake_in, b"q")

    def _bury(self, slot: _Slot) -> List[Tuple[_Job, bool, Any]]:
        process, running = slot.process, self._mark[slot.number]
        process.join()
        slot.process = None
        is_stillborn = not slot.ready and not slot.stopping
        self._stillborn += is_stillborn
        breaks = is_stillborn and self._stillborn >= _STILLBORN
        if slot.stopping:
            rest = "; the workers were terminated"
        elif breaks or self._broken is not None:
            rest = "; no worker can start"
        else:
            rest = "; the other workers go on"
        died = WorkerDied(
            f"the worker {process.name} (process {process.pid}) ended with exit code {process.exitcode} "
            f"before the job was done{rest}",
            None,
            process.pid,
            process.name,
            process.exitcode,
        )
        outcomes: List[Tuple[_Job, bool, Any]] = []
        again: List[_Job] = []
        for number, job in slot.jobs.items():
            job.tries -= number == running
            if job.tries > 0 and not slot.stopping:
                again.append(job)
            else:
                outcomes.append((job, False, died))
        slot.jobs.clear()
        self._waiting.extendleft(reversed(again))
        if breaks:
            outcomes += self._break(died)
        return outcomes

    def _break(self, error: BaseException) -> List[Tuple[_Job, bool, Any]]:
        """No worker can start: all jobs fail with that error."""
        self._broken = error
        jobs = list(self._waiting)
        self._waiting.clear()
        for slot in self._slots:
            jobs += slot.jobs.values()
            slot.jobs.clear()
        self._closing = True
        self._room.notify_all()
        return [(job, False, error) for job in jobs]

    def _stop_idle(self) -> None:
        """Sends the workers home, when the last job is done."""
        if not self._closing or self._waiting or any(slot.jobs for slot in self._slots):
            return
        for slot in self._slots:
            if slot.process is not None and not slot.stopping:
                slot.stopping = True
                self._send(slot, _JOB.pack(slot.generation, 0, 0))
        self._end_if_done()

    @staticmethod
    def _tell_to_end(slot: _Slot) -> None:
        try:
            slot.inbox._send(_JOB.pack(slot.generation, 0, 0), True, 0.0)
        except PeerDied:
            pass

    def _end_if_done(self) -> None:
        if all(slot.process is None for slot in self._slots) and not self._ended.is_set():
            self._ended.set()
            self._room.notify_all()
            for listener, results in zip(self._listeners, self._results):
                if threading.current_thread() is not listener:
                    # Wakes it.
                    results._send(_RESULT.pack(0, 0, 0, 0, _READY))


def _end_all() -> None:
    for workers in list(_live):
        # A pool's jobs end with the program, as multiprocessing's; an executor's are done first.
        if workers._daemon:
            workers.terminate()
        else:
            workers.close()
    for workers in list(_live):
        if workers._pid == os.getpid():
            workers.join()


atexit.register(_end_all)
