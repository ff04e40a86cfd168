#!/usr/bin/env python3
"""A parameter server: workers fit a line to data of their own, and one of them is killed.

    python parameter_server.py [--workers 3] [--steps 200]

The parameters are an array in shared memory under a readers-writer lock. Workers write gradients
where the server reads them (`reserve`, `lease`): no array is copied or pickled. The killed worker
leaves nothing behind that the others wait for.
"""

import argparse
import os
import signal

import numpy
import towpath


def work(seed, parameters, lock, gradients, start):
    numbers = numpy.random.default_rng(seed)
    x = numbers.normal(size=(256, 2))
    x[:, 1] = 1
    y = x @ [3.0, -1.0]
    start.wait()
    while True:
        with lock.read():
            now = numpy.array(parameters)
        with gradients.reserve(2) as gradient:
            gradient[:] = x.T @ (x @ now - y) / len(x)


def main():
    arguments = argparse.ArgumentParser(description="Workers send gradients to a server.")
    arguments.add_argument("--workers", type=int, default=3)
    arguments.add_argument("--steps", type=int, default=200)
    asked = arguments.parse_args()
    ctx = towpath.get_context("fork")
    parameters = numpy.frombuffer(ctx.RawArray("d", 2))
    lock, gradients, start = ctx.RwLock(), ctx.Queue(2 * asked.workers, buffers=2 * asked.workers), ctx.Event()
    workers = [
        ctx.Process(target=work, args=(seed, parameters, lock, gradients, start), daemon=True)
        for seed in range(asked.workers)
    ]
    for worker in workers:
        worker.start()
    start.set()
    for step in range(asked.steps):
        if step == asked.steps // 3:
            os.kill(workers[0].pid, signal.SIGKILL)
        with gradients.lease() as gradient, lock.write():
            # A gradient is up to nine steps old: larger steps would overshoot.
            parameters -= 0.1 * gradient
    for worker in workers:
        worker.kill()
        worker.join()
    print(f"fitted {parameters[0]:.2f} x + {parameters[1]:.2f}; one of {asked.workers} workers was killed")
    assert numpy.allclose(parameters, [3, -1], atol=0.05)


if __name__ == "__main__":
    main()
