#!/usr/bin/env python3
"""Inference fan-out: batches go to workers, of which one is killed, and every answer comes.

    python inference_fan_out.py [--workers 3] [--batches 40]

A worker takes a batch by a lease, without a copy. If it is killed meanwhile the batch comes in
again, for another worker. It may have answered already: the front end counts each batch once.
The weights lie in shared memory once, whatever the number of workers.
"""

import argparse
import asyncio
import os
import signal

import numpy
import towpath


def serve(weights, batches, answers):
    while True:
        with batches.lease() as (number, batch):
            # Shape and work of a model's last layer.
            scores = numpy.maximum(batch @ weights, 0)
            answers.put((number, scores.argmax(axis=1), os.getpid()))


async def collect(answers, count):
    found = {}
    while len(found) < count:
        number, labels, pid = await answers.get_async()
        found[number] = labels, pid
    return found


def main():
    arguments = argparse.ArgumentParser(description="Fans batches out to workers.")
    arguments.add_argument("--workers", type=int, default=3)
    arguments.add_argument("--batches", type=int, default=40)
    asked = arguments.parse_args()
    ctx = towpath.get_context("fork")
    numbers = numpy.random.default_rng(1)
    weights = numpy.frombuffer(ctx.RawArray("d", 64 * 10)).reshape(64, 10)
    weights[:] = numbers.normal(size=(64, 10))
    inputs = [numbers.normal(size=(128, 64)) for _ in range(asked.batches)]
    batches, answers = ctx.Queue(64, buffers=asked.batches), ctx.Queue()
    workers = [
        ctx.Process(target=serve, args=(weights, batches, answers), daemon=True) for _ in range(asked.workers)
    ]
    for worker in workers:
        worker.start()
    for number, batch in enumerate(inputs):
        batches.put((number, batch))
        if number == asked.batches // 2:
            os.kill(workers[0].pid, signal.SIGKILL)
    found = asyncio.run(asyncio.wait_for(collect(answers, asked.batches), 40))
    for worker in workers:
        worker.kill()
        worker.join()
    for number, batch in enumerate(inputs):
        assert (found[number][0] == numpy.maximum(batch @ weights, 0).argmax(axis=1)).all()
    print(f"{len(found)} of {asked.batches} batches answered; one of {asked.workers} workers was killed")


if __name__ == "__main__":
    main()
