"""The queue with vLLM's methods."""

import os
import pickle
import signal
import threading
import time

import numpy
import pytest

import towpath
from towpath.message_queue import MessageQueue


def read(handle, rank, results, count):
    queue = MessageQueue.create_from_handle(handle, rank)
    queue.wait_until_ready()
    for _ in range(count):
        results.put((rank, queue.broadcast_object()))
    try:
        results.put((rank, queue.dequeue(timeout=40)))
    except (towpath.Closed, towpath.PeerDied) as end:
        results.put((rank, type(end).__name__))


def write_and_wait(send, count):
    # No power of two.
    queue = MessageQueue(1, 1, max_chunk_bytes=5 << 20, max_chunks=1)
    send.send(queue.export_handle())
    queue.wait_until_ready()
    for number in range(count):
        queue.enqueue(number)
    time.sleep(1000)


def files():
    return [name for name in os.listdir("/dev/shm") if "queue-" in name]


def test_all_readers_get_all_objects(ctx):
    before = files()
    queue, results = MessageQueue(2, 2, max_chunk_bytes=1 << 16, max_chunks=4), ctx.Queue(buffer_bytes=1 << 22)
    handle = pickle.loads(pickle.dumps(queue.export_handle()))
    readers = [ctx.Process(target=read, args=(handle, rank, results, 3)) for rank in range(2)]
    for reader in readers:
        reader.start()
    queue.wait_until_ready()
    assert files() == before, "nothing is left, whatever is killed from now on"
    things = ["short", list(range(1000)), numpy.arange(300_000)]
    for thing in things:
        assert queue.broadcast_object(thing) is thing
    got = {0: [], 1: []}
    for _ in range(6):
        rank, thing = results.get(timeout=40)
        got[rank].append(thing)
    for found in got.values():
        assert found[:2] == things[:2]
        numpy.testing.assert_array_equal(found[2], things[2])
    queue.shutdown()
    assert sorted(results.get(timeout=40) for _ in readers) == [(0, "Closed"), (1, "Closed")]
    for reader in readers:
        reader.join()


def test_killed_reader_holds_nothing_up():
    ctx = towpath.get_context("fork")
    queue = MessageQueue(2, 2, max_chunk_bytes=1 << 14, max_chunks=4)
    results = ctx.Queue(buffers=256, buffer_bytes=4096)
    readers = [
        ctx.Process(target=read, args=(queue.export_handle(), rank, results, 1 + 200 * rank)) for rank in range(2)
    ]
    for reader in readers:
        reader.start()
    queue.wait_until_ready()
    queue.enqueue("first")
    assert {results.get(timeout=30) for _ in range(2)} == {(0, "first"), (1, "first")}
    os.kill(readers[0].pid, signal.SIGKILL)
    readers[0].join()
    for _ in range(200):
        queue.enqueue(b"x" * 2000, timeout=30)
    for _ in range(200):
        assert results.get(timeout=30) == (1, b"x" * 2000)
    queue.shutdown()
    readers[1].join()


def test_reader_is_told_that_the_writer_was_killed():
    ctx = towpath.get_context("fork")
    receive, send = ctx.Pipe(False)
    writer = ctx.Process(target=write_and_wait, args=(send, 2))
    writer.start()
    queue = MessageQueue.create_from_handle(receive.recv(), 0)
    queue.wait_until_ready()
    assert [queue.dequeue(timeout=30), queue.dequeue(timeout=30)] == [0, 1]
    with pytest.raises(TimeoutError):
        queue.dequeue(timeout=0.02)
    cancel = threading.Event()
    threading.Timer(0.05, cancel.set).start()
    with pytest.raises(RuntimeError, match="cancelled"):
        queue.dequeue(cancel=cancel)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    with pytest.raises(towpath.PeerDied):
        queue.dequeue(timeout=30, indefinite=True)
    with pytest.raises(RuntimeError):
        queue.enqueue(1)
    with pytest.raises(ValueError):
        MessageQueue.create_from_handle(queue.export_handle(), 5)


def write_and_never_be_ready(send):
    queue = MessageQueue(2, 2, max_chunk_bytes=1 << 16, max_chunks=1)
    send.send(queue.export_handle())
    queue.wait_until_ready()


def test_reader_is_told_of_a_writer_that_was_killed_before_all_were_there(ctx):
    before = files()
    receive, send = ctx.Pipe(False)
    writer = ctx.Process(target=write_and_never_be_ready, args=(send,))
    writer.start()
    handle = receive.recv()
    queue = MessageQueue.create_from_handle(handle, 0)
    with pytest.raises(TimeoutError, match="not ready in time"):
        queue.wait_until_ready(timeout=0.05)
    threading.Timer(0.2, os.kill, (writer.pid, signal.SIGKILL)).start()
    with pytest.raises(towpath.PeerDied, match="the writer") as told:
        queue.wait_until_ready()
    assert told.value.pid == writer.pid
    writer.join()
    assert files() == before


def test_writer_gives_up_when_readers_do_not_come():
    queue = MessageQueue(1, 1, max_chunk_bytes=1 << 16, max_chunks=1)
    with pytest.raises(TimeoutError, match="readers"):
        queue.wait_until_ready(timeout=0.02)


def receive_slowly(ring, ready, results, count):
    ring.subscribe()
    ready.set()
    for _ in range(count):
        time.sleep(0.12)
        message = ring.receive_bytes(60)
        results.put((message[:1], len(message), len(set(message))))


def test_long_messages_of_two_threads_arrive_whole(ctx):
    # Each waits for room, between turns, while the reader sleeps for longer than a turn.
    ring, ready, results = ctx.broadcast(1 << 16), ctx.Event(), ctx.Queue()
    reader = ctx.Process(target=receive_slowly, args=(ring, ready, results, 6))
    reader.start()
    assert ready.wait(40)

    def send(byte):
        for _ in range(3):
            assert ring.send_bytes(byte * 1_000_000, 60)

    threads = [threading.Thread(target=send, args=(byte,)) for byte in (b"a", b"b")]
    for thread in threads:
        thread.start()
    got = sorted(results.get(timeout=60) for _ in range(6))
    assert got == [(b"a", 1_000_000, 1)] * 3 + [(b"b", 1_000_000, 1)] * 3
    for thread in threads:
        thread.join()
    reader.join()
