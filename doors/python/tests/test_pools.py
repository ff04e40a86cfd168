"""Pools and executors: as multiprocessing's, and with workers that are killed."""

import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

import towpath


def square(number):
    return number * number


def die_at_three(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_once(path):
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "done"
    os.kill(os.getpid(), signal.SIGKILL)


def sleep_and_return(number):
    time.sleep(0.02)
    return number, os.getpid()


def fail(number):
    raise KeyError(number)


def unfit():
    return lambda: None


def twice(data):
    return data * 2


def refuse():
    raise OSError("not today")


def test_future_of_the_killed_is_lost_and_no_other(ctx):
    with ctx.Executor(2) as executor:
        futures = [executor.submit(die_at_three, number) for number in range(10)]
        for number, future in enumerate(futures):
            if number != 3:
                assert future.result(40) == number
        with pytest.raises(towpath.WorkerDied) as lost:
            futures[3].result(40)
        assert lost.value.exitcode == -signal.SIGKILL
        assert lost.value.pid > 0 and "TowpathWorker" in lost.value.name
        assert list(executor.map(square, range(20), chunksize=3)) == [square(n) for n in range(20)]


def test_job_that_may_run_twice_is_tried_again(tmp_path):
    with towpath.Executor(1, retries=1) as executor:
        assert executor.submit(die_once, str(tmp_path / "was-here")).result(40) == "done"
    with towpath.Executor(1, retries=2) as executor:
        with pytest.raises(towpath.WorkerDied):
            executor.submit(die_at_three, 3).result(40)


def test_workers_killed_at_random_lose_what_they_ran():
    dice = random.Random(11)
    with towpath.get_context("fork").Executor(3) as executor:
        futures = [executor.submit(sleep_and_return, number) for number in range(240)]
        kills = 0
        while kills < 12:
            time.sleep(dice.random() * 0.05)
            pids = executor.pids()
            try:
                os.kill(dice.choice(pids), signal.SIGKILL)
                kills += 1
            except (IndexError, ProcessLookupError):
                # Its successor has yet to come.
                pass
        lost = 0
        for number, future in enumerate(futures):
            try:
                assert future.result(40)[0] == number
            except towpath.WorkerDied:
                lost += 1
        assert lost <= kills


def test_long_arguments_and_results_go_in_parts():
    with towpath.get_context("fork").Executor(2) as executor:
        data = os.urandom(1 << 20)
        results = [executor.submit(twice, data) for _ in range(4)]
        assert all(result.result(40) == data * 2 for result in results)


def test_errors_come_back_with_their_cause():
    with towpath.get_context("fork").Executor(1) as executor:
        error = executor.submit(fail, 7).exception(40)
        assert isinstance(error, KeyError) and error.args == (7,)
        assert "in fail" in str(error.__cause__)
        assert isinstance(executor.submit(unfit).exception(40), multiprocessing.pool.MaybeEncodingError)
        with pytest.raises(Exception):
            executor.submit(lambda: 0).result(40)
        assert executor.submit(square, 3).result(40) == 9
    with pytest.raises(RuntimeError):
        executor.submit(square, 3)


def test_shutdown_cancels_what_has_not_begun():
    executor = towpath.get_context("fork").Executor(1)
    futures = [executor.submit(time.sleep, 0.1) for _ in range(10)]
    executor.shutdown(cancel_futures=True)
    assert futures[0].result(0) is None
    assert futures[9].cancelled()
    assert all(future.done() for future in futures)


def test_worker_that_cannot_start_breaks_the_executor():
    with towpath.get_context("fork").Executor(1, initializer=refuse) as executor:
        with pytest.raises(OSError, match="not today"):
            executor.submit(square, 1).result(40)
        with pytest.raises(BrokenProcessPool):
            executor.submit(square, 1)
    with towpath.get_context("fork").Executor(1, initializer=os._exit, initargs=(3,)) as executor:
        with pytest.raises(towpath.WorkerDied):
            executor.submit(square, 1).result(40)


def test_pool_has_the_calls_of_multiprocessing(ctx):
    with ctx.Pool(2, maxtasksperchild=5) as pool:
        assert pool.apply(square, (4,)) == 16
        assert pool.map(square, range(30), 4) == [square(n) for n in range(30)]
        assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
        assert list(pool.imap(square, range(5))) == [0, 1, 4, 9, 16]
        assert sorted(pool.imap_unordered(square, range(5), 2)) == [0, 1, 4, 9, 16]
        seen = []
        result = pool.map_async(square, range(3), callback=seen.append)
        assert result.get(40) == [0, 1, 4] and seen == [[0, 1, 4]]
        with pytest.raises(KeyError):
            pool.apply(fail, (1,))
        pool.close()
        pool.join()
        with pytest.raises(ValueError):
            pool.apply(square, (1,))


def test_worker_of_a_pool_runs_so_many_jobs():
    with towpath.get_context("fork").Pool(2, maxtasksperchild=3) as pool:
        pids = [pid for _, pid in pool.map(sleep_and_return, range(18), 1)]
        assert len(set(pids)) >= 6 and all(pids.count(pid) <= 3 for pid in set(pids))


def test_pool_goes_on_when_a_worker_is_killed():
    with towpath.get_context("fork").Pool(2) as pool:
        with pytest.raises(towpath.WorkerDied):
            pool.map(die_at_three, range(6), 1)
        numbers, lost = pool.imap(die_at_three, range(6)), 0
        for number in (0, 1, 2, None, 4, 5):
            try:
                assert numbers.next(40) == number
            except towpath.WorkerDied:
                lost += 1
        assert lost == 1
        hanging = pool.apply_async(time.sleep, (1000,))
        assert pool.apply(square, (3,)) == 9
        pool.terminate()
        pool.join()
        with pytest.raises(towpath.WorkerDied):
            hanging.get(40)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_end_with_their_killed_parent(method, tmp_path):
    # Workers in the midst of a job, and daemons that wait.
    script = tmp_path / "parent.py"
    script.write_text(f"""
import os, signal, time, towpath

def wait(ready, queue):
    ready.put(os.getpid())
    queue.get()

def work(ready):
    ready.put(os.getpid())
    time.sleep(1000)

if __name__ == "__main__":
    ctx = towpath.get_context("{method}")
    ready, queue = ctx.Queue(), ctx.Queue()
    daemons = [ctx.Process(target=wait, args=(ready, queue), daemon=True) for _ in range(2)]
    for daemon in daemons:
        daemon.start()
    starters = [ctx.Process(target=work, args=(ready,), daemon=True)]
    starters[0].start()
    executor = ctx.Executor(2)
    futures = [executor.submit(os.getpid) for _ in range(8)]
    print(*{{ready.get(timeout=40) for _ in range(3)}}, *{{future.result(40) for future in futures}}, flush=True)
    for pid in executor.pids():
        executor.submit(time.sleep, 1000)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
""")
    done = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, timeout=50)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) >= 4
    while any(runs(pid) for pid in pids):
        time.sleep(0.02)


def test_worker_in_a_call_that_holds_the_gil_ends_with_its_parent(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text("""
import ctypes, os, signal, time, towpath

def holds(ready):
    ready.put(os.getpid())
    ctypes.PyDLL(None).sleep(1000)

if __name__ == "__main__":
    ctx = towpath.get_context("spawn")
    ready = ctx.Queue()
    executor = ctx.Executor(1)
    executor.submit(holds, ready)
    print(ready.get(timeout=40), flush=True)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
""")
    done = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, timeout=50)
    pid = int(done.stdout)
    try:
        for _ in range(1500):
            if not runs(pid):
                return
            time.sleep(0.02)
        raise AssertionError("the worker goes on")
    finally:
        if runs(pid):
            os.kill(pid, signal.SIGKILL)


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_program_ends_when_all_is_done():
    script = """
import time, towpath
if __name__ == "__main__":
    executor = towpath.Executor(2)
    executor.submit(time.sleep, 0.2)
    executor.submit(print, "done", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=50)
    assert done.stdout == b"done\n" and done.returncode == 0


def test_worker_that_cannot_be_started_fails_each_job():
    executor = towpath.Executor(1, towpath.get_context("spawn"), initializer=lambda: None)
    for _ in range(3):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            executor.submit(square, 2).result(10)
    executor.shutdown()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        towpath.Pool(2, lambda: None, context=towpath.get_context("spawn"))


def test_callback_cannot_wait_for_the_workers():
    executor, errors = towpath.Executor(1), []

    def shut(_):
        try:
            executor.shutdown()
        except RuntimeError as error:
            errors.append(error)

    future = executor.submit(time.sleep, 0.2)
    future.add_done_callback(shut)
    future.result(10)
    executor.shutdown()
    assert len(errors) == 1


def test_terminate_fails_all_jobs_that_are_not_done():
    pool = towpath.Pool(2)
    one, many = pool.apply_async(time.sleep, (60,)), pool.map_async(time.sleep, [60] * 50, chunksize=1)
    endless, later = pool.imap(time.sleep, iter(lambda: 60, None)), pool.starmap_async(pow, [(1, 2)] * 20)
    time.sleep(0.3)
    pool.terminate()
    pool.join()
    for result in (one, many, later):
        with pytest.raises(towpath.WorkerDied):
            result.get(10)
    with pytest.raises(towpath.WorkerDied):
        endless.next(10)


def refuse_value(_):
    raise OSError("a callback's")


def test_pool_goes_on_when_a_callback_raises(capsys):
    with towpath.Pool(1) as pool:
        results = [pool.apply_async(square, (number,), callback=refuse_value) for number in range(3)]
        assert [result.get(10) for result in results] == [0, 1, 4]
        assert pool.map(square, range(3)) == [0, 1, 4]
    assert capsys.readouterr().err.count("OSError: a callback's") == 3


def test_pool_is_shown_while_another_thread_holds_its_lock():
    with towpath.Pool(1) as pool:
        shown = []
        thread = threading.Thread(target=lambda: shown.append(repr(pool)), daemon=True)
        with pool._workers._lock:
            thread.start()
            thread.join(10)
        assert shown and "pool_size=1" in shown[0]


@pytest.mark.parametrize("before", ["", "finalizer = weakref.finalize(weakref, print)"])
def test_jobs_of_a_pool_end_with_the_program(before):
    script = f"""
import time, weakref
{before}
import towpath
if __name__ == "__main__":
    pool = towpath.Pool(1)
    result = pool.apply_async(time.sleep, (100,))
    time.sleep(0.3)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=30)
    assert done.returncode == 0


def test_pool_of_more_workers_than_a_queue_has_places_for():
    numbers = []
    with towpath.get_context("fork").Pool(70) as pool:
        done = [pool.apply_async(sleep_and_return, (number,), callback=numbers.append) for number in range(280)]
        results = [each.get(timeout=120) for each in done]
        pool.close()
        pool.join()
    assert [number for number, _ in results] == list(range(280))
    assert sorted(number for number, _ in numbers) == list(range(280))
    assert len({pid for _, pid in results}) > 48, "workers of more than one group ran jobs"


def fail_to_start():
    raise OSError("no device")


def test_every_call_of_a_broken_pool_has_the_reason():
    with towpath.get_context("fork").Pool(2, initializer=fail_to_start) as pool:
        with pytest.raises(OSError, match="no device"):
            pool.apply(square, (3,))
        while any(process is not None for process in pool._pool):
            time.sleep(0.01)
        for call in (pool.map, lambda f, them: pool.starmap(f, [(one,) for one in them])):
            with pytest.raises(OSError, match="no device"):
                call(square, range(4))
        assert "pool_size=2" in repr(pool)


def ignore_the_signal(ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    time.sleep(0.3)


def test_worker_whose_job_ignores_the_signal_ends_after_the_job():
    context = towpath.get_context("fork")
    ready = context.Event()
    pool = context.Pool(1, initializer=globals().__setitem__, initargs=("READY", ready))
    job = pool.apply_async(ignore_ready)
    assert ready.wait(40)
    pool.terminate()
    pool.join()
    job.get(timeout=40)


def ignore_ready():
    ignore_the_signal(globals()["READY"])


def test_job_that_terminate_ends_says_so():
    context = towpath.get_context("fork")
    ready = context.Event()
    pool = context.Pool(1, initializer=globals().__setitem__, initargs=("READY", ready))
    job = pool.apply_async(wait_long)
    assert ready.wait(40)
    pool.terminate()
    with pytest.raises(towpath.WorkerDied, match="were terminated"):
        job.get(timeout=40)
    pool.join()


def wait_long():
    globals()["READY"].set()
    time.sleep(1000)
