#!/usr/bin/env python3
"""Compares towpath with multiprocessing: a queue of eight producers, and an uncontended lock.

    python doors/python/bench.py [--messages 20000] [--runs 3]

The two take turns. Prints medians, and the ratio of each figure.
"""

import argparse
import multiprocessing
import statistics
import time

import towpath

PRODUCERS = 8


def produce(queue, messages, body):
    for _ in range(messages):
        queue.put(body)


def queue_rate(ctx, messages):
    """Messages of 64 bytes per second, from the first one that arrives to the last."""
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
    return rate


def lock_time(ctx, rounds=200_000):
    """Nanoseconds of an acquire and a release."""
    lock = ctx.Lock()
    acquire, release = lock.acquire, lock.release
    since = time.perf_counter()
    for _ in range(rounds):
        acquire()
        release()
    return (time.perf_counter() - since) / rounds * 1e9


def with_time(ctx, rounds=200_000):
    """Nanoseconds of a with block."""
    lock = ctx.Lock()
    since = time.perf_counter()
    for _ in range(rounds):
        with lock:
            pass
    return (time.perf_counter() - since) / rounds * 1e9


def main():
    arguments = argparse.ArgumentParser(description="Compares towpath with multiprocessing.")
    arguments.add_argument("--messages", type=int, default=20_000)
    arguments.add_argument("--runs", type=int, default=3)
    asked = arguments.parse_args()
    contexts = {"towpath": towpath.get_context("fork"), "multiprocessing": multiprocessing.get_context("fork")}
    measures = {
        "queue, 8 to 1, 64 B, messages/s": lambda ctx: queue_rate(ctx, asked.messages),
        "lock, acquire and release, ns": lock_time,
        "lock, with block, ns": with_time,
    }
    for name, measure in measures.items():
        found = {library: [] for library in contexts}
        for _ in range(asked.runs):
            for library, ctx in contexts.items():
                found[library].append(measure(ctx))
        ours, theirs = (statistics.median(found[library]) for library in contexts)
        print(f"{name}: towpath {ours:.0f}, multiprocessing {theirs:.0f}, ratio {ours / theirs:.2f}", flush=True)


if __name__ == "__main__":
    main()
