"""Workers that are killed while they hold, get and put."""

import os
import pickle
import random
import signal
import subprocess
import sys
import time

import pytest

import towpath


def hold(lock, ready):
    lock.acquire()
    ready.set()
    time.sleep(1000)


def hold_lease(queue, ready):
    with queue.lease():
        ready.set()
        time.sleep(1000)


def put_for_ever(queue):
    number = 0
    while True:
        queue.put((os.getpid(), number, b"x" * (number * 37 % 900)))
        number += 1


def arrive_and_leave(barrier):
    barrier.wait(30)
    assert barrier.leave() and not barrier.leave()


def arrive(barrier, ready):
    barrier.join()
    ready.set()
    time.sleep(1000)


def write_for_ever(lock, ready):
    with lock.write():
        ready.set()
        time.sleep(1000)


def killed(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def started(ctx, target, *args):
    process = ctx.Process(target=target, args=args)
    process.start()
    return process


def test_next_owner_is_told_until_a_repair(ctx):
    lock, ready = ctx.Lock(), ctx.Event()
    process = started(ctx, hold, lock, ready)
    assert ready.wait(30)
    assert not lock.acquire(False)
    killed(process)
    for _ in range(2):
        with pytest.raises(towpath.OwnerDied) as told:
            lock.acquire()
        assert told.value.rank is not None
        assert (told.value.pid, told.value.name) == (process.pid, process.name)
        assert pickle.loads(pickle.dumps(told.value)).rank == told.value.rank
    with pytest.raises(KeyError):
        with lock.repair():
            raise KeyError
    with pytest.raises(towpath.OwnerDied):
        lock.acquire()
    with lock.repair() as death:
        assert death.pid == process.pid
    with lock:
        pass
    with lock.repair() as death:
        assert death is None


def test_waiter_is_told_while_it_waits():
    ctx = towpath.get_context("fork")
    lock, ready = ctx.Lock(), ctx.Event()
    process = started(ctx, hold, lock, ready)
    assert ready.wait(30)
    killer = started(ctx, kill_after, process.pid)
    with pytest.raises(towpath.OwnerDied):
        lock.acquire()
    process.join()
    killer.join()


def kill_after(pid):
    time.sleep(0.3)
    os.kill(pid, signal.SIGKILL)


def test_lease_of_the_dead_comes_in_again(ctx):
    queue, ready = ctx.Queue(), ctx.Event()
    for message in ("short", b"l" * 1000):
        ready.clear()
        queue.put(message)
        process = started(ctx, hold_lease, queue, ready)
        assert ready.wait(30)
        with pytest.raises(towpath.Empty):
            queue.get(False)
        killed(process)
        assert queue.get(timeout=30) == message
        assert queue.empty()


def test_lease_that_fails_comes_in_again():
    queue = towpath.Queue()
    queue.put(1)
    with pytest.raises(KeyError):
        with queue.lease():
            raise KeyError
    with queue.lease() as message:
        assert message == 1
    with pytest.raises(towpath.Empty):
        queue.get(False)


def test_permits_of_the_dead_come_back():
    ctx = towpath.get_context("fork")
    semaphore, ready = ctx.Semaphore(1), ctx.Event()
    process = started(ctx, hold, semaphore, ready)
    assert ready.wait(30)
    assert not semaphore.acquire(timeout=0.05)
    killed(process)
    assert semaphore.acquire(timeout=30)


def test_barrier_tells_of_a_death():
    ctx = towpath.get_context("fork")
    barrier, ready = ctx.Barrier(2), ctx.Event()
    process = started(ctx, arrive, barrier, ready)
    assert ready.wait(30)
    barrier.join()
    killer = started(ctx, kill_after, process.pid)
    with pytest.raises(towpath.PeerDied) as told:
        barrier.wait(30)
    assert told.value.pid == process.pid
    process.join()
    killer.join()
    assert not barrier.broken and barrier.n_waiting == 0
    assert [barrier.wait(30) for _ in range(3)] == [0] * 3, "among the survivors"


def test_one_that_leaves_a_barrier_is_not_told_of():
    ctx = towpath.get_context("fork")
    barrier = ctx.Barrier(3)
    leavers = [started(ctx, arrive_and_leave, barrier) for _ in range(2)]
    assert barrier.wait(30) in range(3)
    for leaver in leavers:
        leaver.join()
        assert leaver.exitcode == 0
    assert [barrier.wait(30) for _ in range(2)] == [0] * 2, "alone"
    assert barrier.leave() and not barrier.leave()


def test_reader_is_told_of_a_dead_writer():
    ctx = towpath.get_context("fork")
    lock, ready = ctx.RwLock(), ctx.Event()
    process = started(ctx, write_for_ever, lock, ready)
    assert ready.wait(30)
    with pytest.raises(TimeoutError):
        lock.read(0.05)
    killed(process)
    with pytest.raises(towpath.OwnerDied):
        lock.read()
    with lock.write(repair=True) as guard:
        assert guard.owner_died
    with lock.read():
        pass


def test_getter_is_told_when_the_last_putter_died():
    ctx = towpath.get_context("fork")
    queue = ctx.Queue(peer_died=True)
    process = started(ctx, put_for_ever, queue)
    for number in range(50):
        assert queue.get(timeout=30)[1] == number
    killed(process)
    with pytest.raises(towpath.PeerDied) as told:
        while True:
            queue.get(timeout=30)
    assert (told.value.pid, told.value.name) == (process.pid, process.name)
    assert process.name in str(told.value)
    with pytest.raises(towpath.Empty):
        queue.get(timeout=0.1)
    queue.put("on")
    assert queue.get(timeout=30) == "on"


def put_one(queue, stays):
    queue.put("one")
    stays.wait(30)


def test_death_of_the_first_putter_is_no_end():
    ctx = towpath.get_context("fork")
    queue, stays = ctx.Queue(), ctx.Event()
    killed(started(ctx, put_for_ever, queue))
    first = started(ctx, put_one, queue, stays)
    while queue.get(timeout=30) != "one":
        pass
    killed(first)
    with pytest.raises(towpath.Empty):
        queue.get(timeout=0.1)
    second = started(ctx, put_one, queue, stays)
    assert queue.get(timeout=30) == "one"
    stays.set()
    second.join()


def test_orderly_exit_is_no_death(ctx):
    queue, back, stays = ctx.Queue(peer_died=True), ctx.Queue(peer_died=True), ctx.Event()
    stays.set()
    for _ in range(3):
        process = started(ctx, put_one, queue, stays)
        process.join()
        assert queue.get(timeout=30) == "one"
        with pytest.raises(towpath.Empty):
            queue.get(timeout=0.05)
        back.put(1)
        taker = started(ctx, back.get)
        taker.join()
        back.put(2)
        assert back.get(timeout=30) == 2


def test_putters_killed_at_random_lose_nothing():
    ctx = towpath.get_context("fork")
    queue = ctx.Queue(64)
    dice = random.Random(7)
    putters = [started(ctx, put_for_ever, queue) for _ in range(3)]
    last = {}
    for _ in range(50):
        for _ in range(dice.randrange(1, 60)):
            take(queue, last)
        victim = dice.randrange(3)
        killed(putters[victim])
        putters[victim] = started(ctx, put_for_ever, queue)
    for putter in putters:
        killed(putter)
    with pytest.raises(towpath.Empty):
        while True:
            take(queue, last, timeout=1)
    assert len(last) > 10


def take(queue, last, timeout=30):
    pid, number, body = queue.get(timeout=timeout)
    assert body == b"x" * (number * 37 % 900)
    assert number == last.get(pid, -1) + 1, "no gap, no double"
    last[pid] = number


def test_driver_of_random_kills_finds_no_hang():
    driver = os.path.join(os.path.dirname(__file__), "..", "kills.py")
    done = subprocess.run([sys.executable, driver, "--kills", "50"], capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("towpath: 50 kills")
