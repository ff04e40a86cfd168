#!/usr/bin/env python3
"""Compares towpath with multiprocessing: a queue of eight producers, NumPy arrays there and back,
and an uncontended lock; and with faster-fifo, copies of memory, and memory that two processes share.

    python doors/python/bench.py [--messages 20000] [--runs 3]

They take turns. Prints medians, and the ratio of each figure. With --best the best instead, of an
array's rounds and of all runs: on a machine that does other things too. faster-fifo takes part if it
is installed (`pip install faster-fifo`).
"""

import argparse
import functools
import mmap
import multiprocessing
import os
import resource
import statistics
import time

import numpy
import towpath

try:
    import faster_fifo
    import faster_fifo_reduction  # noqa: F401: makes its queues picklable
except ImportError:
    faster_fifo = None

PRODUCERS = 8


def produce(queue, messages, body):
    for _ in range(messages):
        queue.put(body)


def cpu_seconds():
    """Time of processors that this process and the children that it has joined have used."""
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def queue_rate(ctx, messages, by_cpu):
    """Messages of 64 bytes per second, from the first one that arrives to the last; or, by_cpu, for
    each second of a processor, with the processes' start and end."""
    cpu = cpu_seconds()
    queue = ctx.Queue()
    each = messages // PRODUCERS
    producers = [ctx.Process(target=produce, args=(queue, each, b"x" * 64)) for _ in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    queue.get()
    since = time.perf_counter()
    for _ in range(each * PRODUCERS - 1):
        queue.get()
    rate = (each * PRODUCERS - 1) / (time.perf_counter() - since)
    for producer in producers:
        producer.join()
    return each * PRODUCERS / (cpu_seconds() - cpu) if by_cpu else rate


class FasterFifo:
    """faster-fifo's queue, with a context's names."""

    def __init__(self):
        self.Process = multiprocessing.get_context("fork").Process

    @staticmethod
    def Queue():
        queue = faster_fifo.Queue(1 << 20)
        # It gives up after ten seconds unless it is told otherwise.
        put, get = queue.put, queue.get
        queue.put, queue.get = (lambda body: put(body, True, 60.0)), (lambda: get(True, 60.0))
        return queue


def echo(there, back):
    while (thing := there.get()) is not None:
        back.put(thing)


def echo_in_place(there, back):
    while True:
        with there.lease() as array:
            if array is None:
                return
            back.put(array)


def array_time(ctx, rounds, pick, in_place):
    """Microseconds for an array of 1 MB there and back."""
    # Two buffers: one that was just read lies in the reader's cache, from which writing would take it.
    size = {"buffer_bytes": 1 << 20, "buffers": 2} if isinstance(ctx, towpath.Context) else {}
    there, back = ctx.Queue(**size), ctx.Queue(**size)
    process = ctx.Process(target=echo_in_place if in_place else echo, args=(there, back))
    process.start()
    array, times = numpy.ones(1_000_000, "u1"), []
    for _ in range(rounds):
        since = time.perf_counter()
        if in_place:
            with there.reserve(array.shape, array.dtype) as sent:
                sent[:] = array
            with back.lease() as returned:
                assert returned[-1] == 1
        else:
            there.put(array)
            assert back.get()[-1] == 1
        times.append((time.perf_counter() - since) * 1e6)
    there.put(None)
    process.join()
    return pick(times)


def copy_time(rounds, pick):
    """Microseconds for two copies of 1 MB."""
    array, other, times = numpy.ones(1_000_000, "u1"), numpy.ones(1_000_000, "u1"), []
    for _ in range(rounds):
        since = time.perf_counter()
        other[:] = array
        array[:] = other
        times.append((time.perf_counter() - since) * 1e6)
    return pick(times)


def bare_time(rounds, pick):
    """Microseconds for an array of 1 MB there and back in bare shared memory, with busy waiting."""
    sent, returned = (numpy.frombuffer(mmap.mmap(-1, 1 << 20), "u1", 1_000_000) for _ in range(2))
    turns = numpy.frombuffer(mmap.mmap(-1, 4096), "i8")
    there, back = turns[:1], turns[64:65]
    child = os.fork()
    if child == 0:
        for turn in range(rounds):
            while there[0] <= turn:
                pass
            returned[:] = sent
            back[0] = turn + 1
        os._exit(0)
    array, times = numpy.ones(1_000_000, "u1"), []
    for turn in range(rounds):
        since = time.perf_counter()
        sent[:] = array
        there[0] = turn + 1
        while back[0] <= turn:
            pass
        assert returned[-1] == 1
        times.append((time.perf_counter() - since) * 1e6)
    os.waitpid(child, 0)
    return pick(times)


def lock_time(ctx, rounds=5_000):
    """Nanoseconds of an acquire and a release."""
    lock = ctx.Lock()
    acquire, release = lock.acquire, lock.release
    since = time.perf_counter()
    for _ in range(rounds):
        acquire()
        release()
    return (time.perf_counter() - since) / rounds * 1e9


def with_time(ctx, rounds=5_000):
    """Nanoseconds of a with block."""
    lock = ctx.Lock()
    since = time.perf_counter()
    for _ in range(rounds):
        with lock:
            pass
    return (time.perf_counter() - since) / rounds * 1e9


def compare(name, variants, runs, pick):
    """Measures the variants in turn; prints what is picked, and the first one's ratio to each."""
    found = {variant: [] for variant in variants}
    for _ in range(runs):
        for variant, measure in variants.items():
            found[variant].append(measure())
    picked = {variant: pick(values) for variant, values in found.items()}
    first = next(iter(picked.values()))
    print(f"{name}: " + ", ".join(f"{variant} {each:.0f} ({first / each:.2f})" for variant, each in picked.items()))


def main():
    arguments = argparse.ArgumentParser(description="Compares towpath with multiprocessing.")
    arguments.add_argument("--messages", type=int, default=20_000)
    arguments.add_argument("--rounds", type=int, default=300)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--best", action="store_true")
    asked = arguments.parse_args()
    ours, theirs = towpath.get_context("fork"), multiprocessing.get_context("fork")
    contexts = {"towpath": ours, "multiprocessing": theirs}
    queues = {**contexts, "faster-fifo": FasterFifo()} if faster_fifo else contexts
    least, most = (min, max) if asked.best else (statistics.median, statistics.median)
    for name, by_cpu in (("messages/s", False), ("messages per second of a processor", True)):
        rates = {name: functools.partial(queue_rate, ctx, asked.messages, by_cpu) for name, ctx in queues.items()}
        compare(f"queue, 8 to 1, 64 B, {name} (ratio)", rates, asked.runs, most)
    arrays = {
        "towpath in place": functools.partial(array_time, ours, asked.rounds, least, True),
        "towpath put and get": functools.partial(array_time, ours, asked.rounds, least, False),
        "multiprocessing": functools.partial(array_time, theirs, asked.rounds, least, False),
        "two copies": functools.partial(copy_time, asked.rounds, least),
        "bare memory": functools.partial(bare_time, asked.rounds, least),
    }
    compare("array of 1 MB there and back, us (ratio)", arrays, asked.runs, least)
    for name, measure in (("acquire and release", lock_time), ("with block", with_time)):
        locks = {library: functools.partial(measure, ctx) for library, ctx in contexts.items()}
        compare(f"lock, {name}, ns (ratio)", locks, 15 * asked.runs, least)


if __name__ == "__main__":
    main()
