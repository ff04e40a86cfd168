"""Partner of share.c in Python: share.py WORLD ROUNDS."""

import sys

import towpath

world, rounds = towpath.World(sys.argv[1]), int(sys.argv[2])
lock, table = world.lock("balance"), world.array("table", (8,), "uint64")
changed = world.condition("changed", lock)
permits = world.semaphore("permits", 1)
for _ in range(rounds):
    with lock:
        table[0] += 1
        changed.notify_all()
    with permits:
        pass
with lock:
    while table[1] < rounds:
        changed.wait(10)
