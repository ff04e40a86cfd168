"""Calls as multiprocessing has them, worlds by name, Ctrl-C, and the end of processes."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

import towpath


def remnants():
    return [name for name in os.listdir("/dev/shm") if "towpath" in name]


def answer(ctx_objects):
    lock, queue, event, value, array, barrier = ctx_objects
    event.wait()
    for _ in range(100):
        with lock:
            value.value += 1
    array[1] = 2.5
    queue.put(barrier.wait())


def test_objects_reach_children_by_all_methods(ctx):
    objects = (ctx.Lock(), ctx.Queue(), ctx.Event(), ctx.Value("i", 5), ctx.Array("d", [1, 2, 3]), ctx.Barrier(3))
    children = [ctx.Process(target=answer, args=(objects,)) for _ in range(3)]
    for child in children:
        child.start()
    objects[2].set()
    assert sorted(objects[1].get(timeout=30) for _ in children) == [0, 1, 2]
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert objects[3].value == 305
    assert objects[4][:] == [1, 2.5, 3]


def test_recursive_lock_counts_and_lock_refuses_others():
    ctx = towpath.get_context()
    lock = ctx.RLock()
    assert lock.acquire() and lock.acquire()
    lock.release()
    other = threading.Thread(target=lambda: results.append(lock.acquire(False)))
    results = []
    other.start()
    other.join()
    assert results == [False]
    lock.release()
    with pytest.raises(AssertionError):
        lock.release()
    with pytest.raises(ValueError):
        ctx.Lock().release()


def test_bounded_semaphore_refuses_and_semaphore_adds():
    ctx = towpath.get_context()
    bounded, free = ctx.BoundedSemaphore(2), ctx.Semaphore(0)
    assert bounded.acquire() and bounded.acquire() and not bounded.acquire(False)
    bounded.release(2)
    with pytest.raises(ValueError):
        bounded.release()
    free.release(3)
    assert free.get_value() == 3
    for _ in range(3):
        assert free.acquire(False)
    assert not free.acquire(timeout=0.01)


def test_semaphore_that_only_takes_goes_on_for_ever():
    semaphore = towpath.get_context().Semaphore(0)
    taker = threading.Thread(target=lambda: [semaphore.acquire() for _ in range(3000)])
    child = towpath.get_context("fork").Process(target=lambda: [semaphore.release() for _ in range(3000)])
    taker.start()
    child.start()
    taker.join()
    child.join()
    assert semaphore.get_value() == 0


def test_condition_notifies_and_times_out():
    condition = towpath.get_context().Condition()
    ready = []

    def wait():
        with condition:
            ready.append(condition.wait_for(lambda: ready and ready[0] == "go", 30))

    waiter = threading.Thread(target=wait)
    waiter.start()
    with condition:
        ready.append("go")
        condition.notify_all()
    waiter.join()
    assert ready == ["go", True]
    with condition:
        assert not condition.wait(0.02)
    with pytest.raises(RuntimeError):
        condition.wait()


@pytest.mark.parametrize("wait", ["get", "put", "lease", "reserve"])
def test_close_ends_waits_of_this_process(wait):
    queue = towpath.get_context().Queue(1, buffers=1)
    if wait in ("put", "reserve"):
        queue.put(b"x" * 1000)
    begun, outcome = threading.Event(), []

    def waiter():
        begun.set()
        try:
            if wait == "put":
                queue.put(b"y" * 1000)
            elif wait == "get":
                queue.get()
            else:
                with queue.lease() if wait == "lease" else queue.reserve((100,)):
                    pass
        except ValueError as error:
            outcome.append(error)

    thread = threading.Thread(target=waiter, daemon=True)
    thread.start()
    begun.wait(30)
    time.sleep(0.1)
    queue.close()
    thread.join(30)
    assert not thread.is_alive() and isinstance(outcome[0], towpath.Closed)


def test_close_ends_tasks_that_wait():
    queue = towpath.get_context().Queue()

    async def main():
        task = asyncio.create_task(queue.get_async())
        await asyncio.sleep(0.05)
        queue.close()
        with pytest.raises(towpath.Closed):
            await asyncio.wait_for(task, 30)

    asyncio.run(main())


def test_queue_is_full_and_empty_and_joins():
    ctx = towpath.get_context()
    queue = ctx.JoinableQueue(4)
    for number in range(4):
        queue.put(number)
    assert queue.full() and queue.qsize() == 4
    with pytest.raises(towpath.Full):
        queue.put(4, timeout=0.02)
    for number in range(4):
        assert queue.get() == number
        queue.task_done()
    queue.join()
    with pytest.raises(ValueError):
        queue.task_done()
    with pytest.raises(ValueError):
        queue.put(b"x" * (1 << 20))
    queue.shutdown()
    with pytest.raises(towpath.Closed):
        queue.put(1)


def test_named_world_shares_arrays_and_goes_with_its_last_process():
    name = f"py-{os.getpid()}"
    script = f"""
import towpath
world = towpath.World({name!r}, create=True)
table = world.array("table", (3, 4), "int32")
assert table.sum() == 0
table[2] = 7
with world.lock("balance"):
    pass
import subprocess, sys
subprocess.run([sys.executable, "-c", '''
import towpath
world = towpath.World({name!r})
with world.lock("balance"):
    table = world.array("table", (3, 4), "int32")
    assert table.sum() == 28
    table[0, 0] = 1
'''], check=True)
assert table.sum() == 29
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=50)
    assert not [file for file in os.listdir("/dev/shm") if name in file]
    with pytest.raises(towpath.WorldError):
        towpath.World(name)


def test_array_of_another_size_is_refused():
    world = towpath.World(create=True)
    array = world.array("a", 10, "uint8")
    array[:] = numpy.arange(10)
    assert world.array("a", (2, 5), "uint8")[1, 4] == 9
    for shape in (9, 11, (2, 3), -1):
        with pytest.raises(ValueError):
            world.array("a", shape, "uint8")
    pair = numpy.dtype([("x", "i4"), ("y", "f4")])
    world.array("pair", 2, pair)["y"] = 0.5
    for other in ("int64", "f8", [("x", "i4"), ("y", "i4")]):
        with pytest.raises(ValueError, match=r"'f4|<f4"):
            world.array("pair", 2, other)
    with pytest.raises(ValueError, match="u1.*i1"):
        world.array("a", 10, "int8")
    assert world.array("pair", 2, pair)["y"].sum() == 1
    assert world.array("b", numpy.int64(3)).shape == (3,)
    assert world.array("c", (numpy.int32(2), 0)).shape == (2, 0)


def read_three(ring, ready, results):
    ring.subscribe()
    ready.release()
    results.put([ring.receive_bytes(30) for _ in range(3)])


@pytest.mark.parametrize("method, capacity", [("fork", 1 << 16), ("spawn", 5 << 20)])
def test_broadcast_reaches_all_readers(method, capacity):
    ctx = towpath.get_context(method)
    ring, results, ready = ctx.broadcast(capacity), ctx.Queue(), ctx.Semaphore(0)
    readers = [ctx.Process(target=read_three, args=(ring, ready, results)) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in readers:
        assert ready.acquire(timeout=30)
    for number in range(3):
        assert ring.send_bytes(bytes([number]) * 100, 30)
    for reader in readers:
        assert results.get(timeout=30) == [bytes([number]) * 100 for number in range(3)]
        reader.join()


def test_broadcast_takes_any_buffer_of_bytes():
    ring = towpath.get_context("fork").broadcast()
    ring.readers()
    for message in (b"it", bytearray(b"it"), memoryview(b"it")):
        assert ring.send_bytes(message, 1)
    with pytest.raises(TypeError):
        ring.send_bytes("it", 1)


def test_objects_show_their_names():
    world = towpath.World("shown", create=True)
    objects = [world.lock("a"), world.rlock("b"), world.rwlock("c"), world.semaphore("d")]
    objects += [world.bounded_semaphore("e"), world.condition("f"), world.barrier("g", 2)]
    kinds = ["Lock", "RLock", "RwLock", "Semaphore", "BoundedSemaphore", "Condition", "Barrier"]
    for thing, kind, name in zip(objects, kinds, "abcdefg"):
        assert repr(thing) == f'<towpath.{kind} "{name}" of world "shown">'
    with pytest.raises(ValueError):
        world.semaphore("h", -1)
    with pytest.raises(ValueError, match="is for 2, not 3"):
        world.barrier("g", 3)
    code = "import towpath; towpath.World('shown').barrier('g', 3)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert other.returncode == 1 and "barrier for 2 participants" in other.stderr


def wait_at(barrier, results):
    try:
        results.put(barrier.wait(30))
    except threading.BrokenBarrierError as error:
        results.put(type(error).__name__)


def test_barrier_breaks_and_is_reset():
    ctx = towpath.get_context("fork")
    barrier, results = ctx.Barrier(3), ctx.Queue()
    for end in (barrier.abort, barrier.reset, lambda: barrier.wait(0.05)):
        waiter = ctx.Process(target=wait_at, args=(barrier, results))
        waiter.start()
        while barrier.n_waiting < 1:
            time.sleep(0.001)
        try:
            end()
        except threading.BrokenBarrierError:
            pass
        assert results.get(timeout=30) == "BrokenBarrierError"
        waiter.join()
        if end != barrier.reset:
            assert barrier.broken
            with pytest.raises(threading.BrokenBarrierError):
                barrier.wait(30)
            barrier.reset()
        assert not barrier.broken and barrier.n_waiting == 0
        waiters = [ctx.Process(target=wait_at, args=(barrier, results)) for _ in range(2)]
        for waiter in waiters:
            waiter.start()
        assert sorted([barrier.wait(30), results.get(timeout=30), results.get(timeout=30)]) == [0, 1, 2]
        for waiter in waiters:
            waiter.join()
        # For other processes than those, which were its participants.
        barrier.reset()


def fail():
    raise KeyError


def test_action_that_fails_breaks_the_barrier():
    barrier = towpath.get_context("fork").Barrier(2, fail)
    results = []

    def wait():
        try:
            barrier.wait(30)
        except Exception as error:
            results.append(type(error))

    other = threading.Thread(target=wait)
    other.start()
    wait()
    other.join()
    assert set(results) == {KeyError, threading.BrokenBarrierError}


WAITS = {
    "get": "queue.get()",
    "acquire": "lock.acquire()",
    "wait": "event.wait()",
    "barrier": "ctx.Barrier(2).wait()",
    "condition": "condition.acquire(); condition.wait()",
    "put": "[queue.put(0) for _ in range(10000)]",
}


@pytest.mark.parametrize("wait", WAITS)
def test_interrupt_ends_a_wait(wait):
    # Where a shell has started the tests in the background, children ignore the signal.
    script = f"""
import signal, sys, threading, towpath
signal.signal(signal.SIGINT, signal.default_int_handler)
ctx = towpath.get_context()
queue, lock, event, condition = ctx.Queue(), ctx.Lock(), ctx.Event(), ctx.Condition()
threading.Thread(target=lock.acquire, daemon=True).start()
print("waits", flush=True)
try:
    {WAITS[wait]}
except KeyboardInterrupt:
    sys.exit(7)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as waiter:
        try:
            assert waiter.stdout.readline() == b"waits\n"
            time.sleep(0.5)
            waiter.send_signal(signal.SIGINT)
            assert waiter.wait(30) == 7
        finally:
            # One that has ended is not signalled.
            waiter.kill()


def test_nothing_is_left_when_all_are_killed():
    before = remnants()
    script = """
import os, signal, towpath, time
ctx = towpath.get_context("spawn" if os.environ.get("SPAWN") else "fork")
queue, lock, array = ctx.Queue(), ctx.Lock(), ctx.Array("d", 10000)
for number in range(100):
    queue.put(number)
child = ctx.Process(target=time.sleep, args=(0.2,), daemon=True)
child.start()
lock.acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], timeout=50)
    assert remnants() == before


def test_fork_without_multiprocessing_enters_anew():
    world = towpath.World(create=True)
    lock, event = world.lock("l"), world.event("e")
    mine = world.enter()
    child = os.fork()
    if child == 0:
        try:
            with lock:
                event.set()
            os._exit(0 if world.rank != mine else 1)
        finally:
            os._exit(2)
    assert event.wait(30)
    assert os.waitpid(child, 0)[1] == 0
    with lock:
        pass
