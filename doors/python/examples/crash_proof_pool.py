#!/usr/bin/env python3
"""A pool whose workers are killed while it works, and which answers all the same.

    python crash_proof_pool.py [--jobs 100] [--workers 4]

Every eighth job kills its worker the first time that it runs, as the kernel's out-of-memory killer
would. The executor tries a lost job once more (``retries=1``), since these jobs may run twice.
Without ``retries`` the future of such a job raises ``towpath.WorkerDied``, and the others are not
disturbed. concurrent.futures.ProcessPoolExecutor would lose all of them.
"""

import argparse
import os
import signal
import tempfile

import towpath


def job(number, folder):
    if number % 8 == 0:
        try:
            os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return sum(range(number * 1000))


def main():
    arguments = argparse.ArgumentParser(description="Loses workers, and no answers.")
    arguments.add_argument("--jobs", type=int, default=100)
    arguments.add_argument("--workers", type=int, default=4)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with towpath.Executor(asked.workers, retries=1) as executor:
            futures = [executor.submit(job, number, folder) for number in range(asked.jobs)]
            answers = [future.result() for future in futures]
        killed = len(os.listdir(folder))
    assert answers == [sum(range(number * 1000)) for number in range(asked.jobs)]
    print(f"{len(answers)} of {asked.jobs} answers; {killed} workers were killed meanwhile")


if __name__ == "__main__":
    main()
