"""Objects in queues: buffers beside the pickle, arrays in place, descriptors, asyncio."""

import asyncio
import array
import gc
import os
import pickle
import select
import signal
import threading
import time

import numpy
import pytest

import towpath


def echo(queue, back):
    while (thing := queue.get()) is not None:
        back.put(thing)


def sum_leases(queue, back):
    while True:
        with queue.lease(timeout=30) as thing:
            if thing is None:
                return
            back.put((float(thing.sum()), thing.dtype.str, thing.shape))


THINGS = [
    None,
    17,
    b"",
    b"x" * 231,
    b"y" * 232,
    b"z" * 100_000,
    bytearray(b"mutable"),
    "text" * 5000,
    (1, [2.5, {"k": b"v"}]),
    array.array("i", range(10)),
]

ARRAYS = [
    numpy.arange(5),
    numpy.zeros((0, 3)),
    numpy.array(3.5),
    numpy.arange(60_000, dtype="float32").reshape(200, 300),
    numpy.arange(600).reshape(20, 30).T,
    numpy.arange(600)[::7],
    numpy.array([("a", 1)], dtype=[("name", "U3"), ("number", "i4")]),
    numpy.array([1, "mixed", None], dtype=object),
]


def test_things_come_back_as_they_were(ctx):
    queue, back = ctx.Queue(buffer_bytes=1 << 20), ctx.Queue(buffer_bytes=1 << 20)
    process = ctx.Process(target=echo, args=(queue, back))
    process.start()
    for thing in THINGS[1:]:
        queue.put(thing)
        returned = back.get(timeout=30)
        assert returned == thing and type(returned) is type(thing)
    for thing in ARRAYS:
        queue.put(thing)
        returned = back.get(timeout=30)
        numpy.testing.assert_array_equal(returned, thing)
        assert returned.dtype == thing.dtype and returned.flags.writeable
    queue.put({"two": ARRAYS[3], "three": [ARRAYS[0], ARRAYS[3] + 1]})
    returned = back.get(timeout=30)
    numpy.testing.assert_array_equal(returned["three"][1], ARRAYS[3] + 1)
    frozen = numpy.arange(1000)
    frozen.flags.writeable = False
    queue.put(frozen)
    assert not back.get(timeout=30).flags.writeable
    queue.put(None)
    process.join()
    assert process.exitcode == 0


def test_buffers_do_not_go_through_the_pickle():
    queue = towpath.Queue()
    numbers = numpy.arange(10_000)
    queue.put(numbers)
    message = queue._receive()
    assert len(message) >= numbers.nbytes and pickle.dumps(numbers, 5) not in message
    assert message.count(numbers.tobytes()) == 1
    assert message.index(numbers.tobytes()) % 64 == 0


def test_thing_that_cannot_be_put_leaves_nothing():
    queue = towpath.Queue(buffers=2)
    for _ in range(5):
        with pytest.raises(Exception):
            queue.put(lambda: None)
        with pytest.raises(ValueError):
            queue.put(numpy.zeros(1 << 20))
        with pytest.raises(pickle.PicklingError):
            queue.put(pickle.PickleBuffer(memoryview(b"abcdef")[::2]))
        with pytest.raises(towpath.Empty):
            queue.get(False)
    for _ in range(2):
        queue.put(b"z" * 1000)
    with pytest.raises(towpath.Full):
        queue.put(b"z" * 1000, False)


def test_reserved_array_arrives_without_a_copy():
    ctx = towpath.get_context("fork")
    queue, back = ctx.Queue(buffers=2), ctx.Queue()
    process = ctx.Process(target=sum_leases, args=(queue, back))
    process.start()
    for number in range(1, 6):
        with queue.reserve((100, number), "float32") as numbers:
            numbers[:] = number
        assert back.get(timeout=30) == (100.0 * number * number, "<f4", (100, number))
    with queue.reserve(10, "u1") as numbers:
        numbers[:] = 1
    assert back.get(timeout=30) == (10.0, "|u1", (10,))
    queue.put(None)
    process.join()


def test_reservation_that_fails_sends_nothing():
    queue = towpath.Queue(buffers=1)
    for _ in range(3):
        with pytest.raises(KeyError):
            with queue.reserve(10):
                raise KeyError
    with pytest.raises(ValueError):
        with queue.reserve(1 << 20):
            pass
    with pytest.raises(ValueError):
        with queue.reserve(2, object):
            pass
    with queue.reserve(10) as numbers:
        with pytest.raises(towpath.Full):
            with queue.reserve(10, block=False):
                pass
        numbers[:] = 2
    with queue.lease() as numbers:
        assert numbers.sum() == 20
        first = numbers.__array_interface__["data"][0]
    with queue.reserve(10) as numbers:
        assert numbers.__array_interface__["data"][0] == first, "the only buffer there is"


def die_with_reservation(queue, ready):
    with queue.reserve(10):
        ready.set()
        time.sleep(1000)


def die_with_lease(queue, ready):
    with queue.lease() as numbers:
        numbers[:] = 0
        ready.set()
        time.sleep(1000)


def test_buffers_of_the_killed_come_back():
    ctx = towpath.get_context("fork")
    queue = ctx.Queue(buffers=1)
    for target in (die_with_reservation, die_with_lease):
        ready = ctx.Event()
        process = ctx.Process(target=target, args=(queue, ready))
        if target is die_with_lease:
            with queue.reserve(10) as numbers:
                numbers[:] = 5
        process.start()
        assert ready.wait(30)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    # With its bytes as the dead left them.
    with queue.lease(timeout=30) as numbers:
        assert numbers.shape == (10,) and numbers.sum() == 0
    with queue.reserve(10, timeout=30):
        pass


def test_view_outlives_its_queue():
    queue = towpath.Queue()
    queue.put(numpy.arange(1000))
    with queue.lease() as numbers:
        pass
    with queue.reserve(10) as written:
        pass
    queue._messages.world._objects.clear()
    del queue
    gc.collect()
    # Any values, but mapped.
    numbers.sum()
    written[:] = 1


def put_slowly(queue):
    for number in range(20):
        time.sleep(0.005)
        queue.put(number)


def test_descriptor_becomes_readable():
    ctx = towpath.get_context("fork")
    queue = ctx.Queue()
    process = ctx.Process(target=put_slowly, args=(queue,))
    process.start()
    poll = select.poll()
    poll.register(queue, select.POLLIN)
    found = []
    while len(found) < 20:
        try:
            found.append(queue.try_get())
        except towpath.Empty:
            assert poll.poll(30_000)
    assert found == list(range(20))
    process.join()


def test_tasks_await_objects():
    ctx = towpath.get_context("fork")
    queue = ctx.Queue()

    async def take(most):
        return [await queue.get_async() for _ in range(most)]

    async def all_of_them():
        cancelled = asyncio.create_task(queue.get_async())
        await asyncio.sleep(0.01)
        cancelled.cancel()
        takers = [asyncio.create_task(take(5)) for _ in range(4)]
        await asyncio.sleep(0.01)
        process = ctx.Process(target=put_slowly, args=(queue,))
        process.start()
        found = await asyncio.wait_for(asyncio.gather(*takers), 30)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(queue.get_async(), 0.02)
        process.join()
        return found

    found = asyncio.run(all_of_them())
    assert sorted(sum(found, [])) == list(range(20))
    queue.put("later")
    assert asyncio.run(queue.get_async()) == "later"


def take_slowly(queue, most):
    for _ in range(most):
        time.sleep(0.005)
        queue.get()
        if isinstance(queue, towpath.JoinableQueue):
            queue.task_done()


@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_tasks_put_objects(kind):
    ctx = towpath.get_context("fork")
    queue = getattr(ctx, kind)(3, buffers=2)

    async def put(number):
        for _ in range(4):
            await queue.put_async(bytes(number) * 200)

    async def all_of_them():
        for _ in range(3):
            await queue.put_async(None)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(queue.put_async("lost"), 0.02)
        putters = [asyncio.create_task(put(number)) for number in range(4)]
        await asyncio.sleep(0.01)
        process = ctx.Process(target=take_slowly, args=(queue, 19))
        process.start()
        await asyncio.wait_for(asyncio.gather(*putters), 30)
        process.join()

    asyncio.run(all_of_them())
    assert queue.empty()
    if kind == "JoinableQueue":
        queue.join()


def test_maxsize_is_exact():
    ctx = towpath.get_context()
    for most in (1, 3, 6, 100):
        queue = ctx.Queue(most)
        for _ in range(2):
            for number in range(most):
                assert not queue.full()
                queue.put_nowait(number)
            assert queue.full() and queue.qsize() == most
            with pytest.raises(towpath.Full):
                queue.put_nowait("no room")
            with queue.lease() as oldest, pytest.raises(towpath.Full):
                assert oldest == 0
                queue.put_nowait("a lease keeps its place")
            assert [queue.get() for _ in range(most - 1)] == list(range(1, most))


def test_lock_takes_all_forms_of_arguments():
    lock = towpath.get_context().Lock()
    assert lock.acquire() is True
    results = []

    def other():
        results.extend([lock.acquire(False), lock.acquire(block=False), lock.acquire(True, 0.01)])
        results.append(lock.acquire(timeout=0.01))
        with pytest.raises(ValueError):
            lock.release()
        with pytest.raises(TypeError):
            lock.acquire(no=1)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert results == [False] * 4
    assert lock.release() is None
    with lock as got:
        assert got is True
    with pytest.raises(ValueError):
        lock.release()
    with pytest.raises(TypeError):
        lock.acquire(1, 2, 3)
    with pytest.raises(TypeError):
        type(lock).acquire(5)
    assert "OwnerDied" in type(lock).acquire.__doc__


def test_conditions_may_be_any_object_as_in_multiprocessing():
    ctx = towpath.get_context()
    queue = ctx.Queue(1)
    queue.put(1, 1)
    with pytest.raises(towpath.Full):
        queue.put(2, 0)
    assert queue.get(1) == 1
    for call in (queue.get, queue.lease(0).__enter__):
        with pytest.raises(towpath.Empty):
            call(block=0) if call == queue.get else call()
    lock, semaphore = ctx.Lock(), ctx.Semaphore(1)
    assert lock.acquire(1, 5) and semaphore.acquire(1)
    assert not semaphore.acquire(0) and not semaphore.acquire(None)
    lock.release()
    assert lock.acquire(block=0)


class Acts:
    """Makes an attempt at a queue while it is unpickled."""

    queue = None

    def __reduce__(self):
        return Acts.act, ()

    @staticmethod
    def act():
        # Another thread has the interpreter meanwhile.
        time.sleep(0.2)
        return Acts.queue.try_get()


def test_attempt_may_be_made_while_an_object_is_unpickled():
    queue = Acts.queue = towpath.Queue()
    queue.put(Acts())
    queue.put("second")
    assert queue.try_get() == "second"
    found = []
    for thing in (Acts(), "second", "third"):
        queue.put(thing)
    first = threading.Thread(target=lambda: found.append(queue.try_get()))
    first.start()
    time.sleep(0.05)
    found.append(queue.try_get())
    first.join()
    assert found == ["second", "third"]


def put_connection(queue, go):
    ours, theirs = towpath.get_context().Pipe()
    queue.put([theirs])
    ours.send("through the pipe")
    go.wait(30)


def test_connection_goes_through_a_queue(ctx):
    queue, go = ctx.Queue(), ctx.Event()
    process = ctx.Process(target=put_connection, args=(queue, go))
    process.start()
    [connection] = queue.get(timeout=30)
    assert connection.poll(30) and connection.recv() == "through the pipe"
    go.set()
    process.join()
    assert process.exitcode == 0


def test_reserved_array_is_counted_by_a_joinable_queue():
    queue = towpath.JoinableQueue()
    with queue.reserve(3) as array:
        array[:] = 1
    with pytest.raises(KeyError), queue.reserve(3):
        raise KeyError
    assert queue.get().sum() == 3
    queue.task_done()
    with pytest.raises(ValueError):
        queue.task_done()
    queue.join()


def test_error_of_a_long_object_names_sizes_and_the_argument():
    queue = towpath.Queue(buffer_bytes=4096)

    def reserve():
        with queue.reserve(5000, "uint8"):
            pass

    for act in (lambda: queue.put(bytes(4999)), lambda: queue.try_put(bytes(4999)), reserve):
        with pytest.raises(ValueError, match="5[0-9]{3} bytes.* 4096:.*buffer_bytes"):
            act()
    queue.put(bytes(4095))
    assert queue.get() == bytes(4095)


def test_errors_name_what_python_can_do(ctx):
    with pytest.raises(towpath.WorldError, match=r'World\("nowhere", create=True\)'):
        towpath.World("nowhere").lock("x")
    with pytest.raises(towpath.WorldFull, match=r"\(memory=\)"):
        towpath.World(create=True, memory=1 << 16).array("table", (1 << 20,), "uint8")
    with pytest.raises(ValueError, match=r"\(processes=\)"):
        towpath.get_context(processes=0).Lock()
    with pytest.raises((OSError, towpath.WorldError)) as told:
        ctx.Array("d", 2**46)
    assert "towpath run" not in str(told.value) and "--size" not in str(told.value)


def write_one(ring, ready):
    ring.send_bytes(b"one")
    ready.set()
    time.sleep(1000)


def test_reader_is_told_of_the_writer_and_second_writer_of_the_first(ctx):
    ring, ready = ctx.broadcast(1 << 16), ctx.Event()
    ring.subscribe()
    writer = ctx.Process(target=write_one, args=(ring, ready), name="the-writer")
    writer.start()
    assert ready.wait(40) and ring.receive_bytes(40) == b"one"
    with pytest.raises(RuntimeError, match="one writer already"):
        ring.send_bytes(b"two")
    os.kill(writer.pid, signal.SIGKILL)
    with pytest.raises(towpath.PeerDied, match="writer of the broadcast") as told:
        ring.receive_bytes(40)
    assert told.value.pid == writer.pid
    writer.join()
