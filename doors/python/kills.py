#!/usr/bin/env python3
"""Kills workers at random moments of put, get, lock and wait, and counts what hangs or is lost.

    python doors/python/kills.py [--kills 50] [--with towpath|multiprocessing] [--seed 1]

Four producers put numbered messages, two consumers take them and report them; all of them count
under one lock. Every few milliseconds one of them is killed and replaced. A hang is a second in
which nothing moves although all six workers live.

Prints one line: kills, messages, messages lost, messages that came twice, hangs. With
multiprocessing the first hang ends the run, since nothing would move any more. A message counts as
lost if one of a later number came from the same producer, and it did not; the one that a consumer
was killed with counts as held, not lost.
"""

import argparse
import multiprocessing
import os
import random
import signal
import sys
import time

PRODUCERS, CONSUMERS = 4, 2
# Time without any movement that counts as a hang.
HANG = 2.0


def count(lock, died, counter):
    try:
        with lock:
            counter[0] += 1
    except died:
        with lock.repair():
            counter[0] += 1


def produce(jobs, lock, died, counter, moves, place):
    number = 0
    while True:
        jobs.put((os.getpid(), number, b"x" * (number * 37 % 700)))
        number += 1
        count(lock, died, counter)
        moves[place] += 1


def consume(jobs, report, lock, died, counter, moves, place):
    while True:
        pid, number, _ = jobs.get()
        os.write(report, b"%10d %10d\n" % (pid, number))
        count(lock, died, counter)
        moves[place] += 1


class Never(Exception):
    """An exception that multiprocessing has no cause for."""


def run(library, kills, seed):
    if library == "towpath":
        import towpath

        ctx, died = towpath.get_context("fork"), towpath.OwnerDied
    else:
        ctx, died = multiprocessing.get_context("fork"), Never
    jobs, lock = ctx.Queue(64), ctx.Lock()
    counter = ctx.RawArray("Q", 1)
    moves = multiprocessing.RawArray("Q", PRODUCERS + CONSUMERS)
    report_out, report_in = os.pipe()
    os.set_blocking(report_out, False)
    dice = random.Random(seed)

    def start(place):
        if place < PRODUCERS:
            args = (produce, (jobs, lock, died, counter, moves, place))
        else:
            args = (consume, (jobs, report_in, lock, died, counter, moves, place))
        process = ctx.Process(target=args[0], args=args[1], daemon=True)
        process.start()
        return process

    workers = [start(place) for place in range(PRODUCERS + CONSUMERS)]
    seen, rest = {}, b""
    done = hangs = 0

    def drain():
        nonlocal rest
        try:
            while chunk := os.read(report_out, 1 << 16):
                rest += chunk
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    pid, number = map(int, line.split())
                    seen.setdefault(pid, []).append(number)
        except BlockingIOError:
            pass

    try:
        while done < kills and not hangs:
            before, since = sum(moves), time.monotonic()
            # Until producers and consumers both have moved.
            while sum(moves) < before + 20:
                drain()
                time.sleep(0.001)
                if time.monotonic() - since > HANG and sum(moves) == before:
                    hangs += 1
                    break
                if time.monotonic() - since > HANG:
                    before, since = sum(moves), time.monotonic()
            if hangs:
                break
            time.sleep(dice.random() * 0.004)
            place = dice.randrange(len(workers))
            os.kill(workers[place].pid, signal.SIGKILL)
            workers[place].join()
            workers[place] = start(place)
            done += 1
        drain()
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
    drain()
    messages = sum(map(len, seen.values()))
    twice = messages - sum(len(set(numbers)) for numbers in seen.values())
    missing = sum(max(numbers) + 1 - len(set(numbers)) for numbers in seen.values())
    return done, messages, missing, twice, hangs


def main():
    arguments = argparse.ArgumentParser(description="Kills workers at random.")
    arguments.add_argument("--kills", type=int, default=50)
    arguments.add_argument("--with", dest="library", choices=("towpath", "multiprocessing"), default="towpath")
    arguments.add_argument("--seed", type=int, default=1)
    asked = arguments.parse_args()
    done, messages, missing, twice, hangs = run(asked.library, asked.kills, asked.seed)
    print(
        f"{asked.library}: {done} kills, {messages} messages, {missing} missing, {twice} twice, {hangs} hangs",
        flush=True,
    )
    # Missing are those that consumers were killed with: one each, at most.
    if hangs or twice or missing > done:
        sys.exit(1)


if __name__ == "__main__":
    main()
