"""A pool of workers over MPI, by the package schwimmbad: many small tasks, results in order."""

import sys

from schwimmbad import MPIPool


def square(x):
    return x * x


with MPIPool() as pool:
    if not pool.is_master():
        pool.wait()
        sys.exit(0)
    for tasks in (10, 1000):
        assert list(pool.map(square, range(tasks))) == [x * x for x in range(tasks)]
