/* Messages over 4 GiB between ranks 0 and 1, checked word for word: by a derived type, by a count of more than 32 bits where the MPI has such calls (MPI 4), found by a probe, and
 * one-sided.
 * mpicc -O2 large.c; mpiexec -n 2 ./a.out [MEBIBYTES]. Needs that much memory twice (4,608 MiB: 9 GiB in all). Prints a line each and ends with 0 if all are right. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static int rank, bad;
static uint64_t *words;
static size_t count;
static MPI_Datatype mebibyte, halves;

static uint64_t word(uint64_t i, uint64_t seed)
{
    return (i + seed) * 0x9e3779b97f4a7c15u;
}

static void fill(uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        words[i] = word(i, seed);
}

static void check(const char *what, uint64_t seed, double start)
{
    double end = MPI_Wtime();
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < count; i++)
        if (words[i] != word(i, seed) && !wrong++)
            first = i;
    if (wrong) {
        bad = 1;
        printf("%-22s wrong: %zu of %zu words, the first at byte %zu\n", what, wrong, count, first * 8);
    } else {
        printf("%-22s right, %.2f GB/s\n", what, (double)count * 8 / (end - start) / 1e9);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int mebibytes = argc > 1 ? atoi(argv[1]) : 4608;
    count = (size_t)mebibytes << 17;
    /* Mapped, so that no allocator has anything to do with it. */
    words = mmap(NULL, count * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) {
        fprintf(stderr, "no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Type_contiguous(1 << 20, MPI_BYTE, &mebibyte);
    MPI_Type_commit(&mebibyte);
    double start;

    /* The receive is there first; then the message. */
    fill(rank == 0 ? 1 : 99);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (rank == 0) {
        MPI_Ssend(words, mebibytes, mebibyte, 1, 7, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(words, mebibytes, mebibyte, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check("a derived type", 1, start);
    }

    /* The message is there first. */
    fill(rank == 0 ? 2 : 99);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (rank == 0) {
        MPI_Send(words, mebibytes, mebibyte, 1, 8, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Status status;
        MPI_Count bytes;
        MPI_Probe(0, 8, MPI_COMM_WORLD, &status);
        MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
        if (bytes != (MPI_Count)count * 8) {
            printf("a probe says %lld bytes, not %zu\n", (long long)bytes, count * 8);
            bad = 1;
        }
        MPI_Recv(words, mebibytes, mebibyte, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check("found by a probe", 2, start);
    }

#if MPI_VERSION >= 4
    fill(rank == 0 ? 3 : 99);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (rank == 0) {
        MPI_Send_c(words, (MPI_Count)count * 8, MPI_BYTE, 1, 9, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv_c(words, (MPI_Count)count * 8, MPI_BYTE, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check("a large count", 3, start);
    }
#endif

    MPI_Win win;
    MPI_Win_create(words, (MPI_Aint)count * 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    /* Half of the window goes to the other half of the other's: more than 2 GiB, at more than 2 GiB. */
    MPI_Type_contiguous((mebibytes / 2) << 17, MPI_UINT64_T, &halves);
    MPI_Type_commit(&halves);
    fill(rank == 0 ? 4 : 99);
    MPI_Win_fence(0, win);
    start = MPI_Wtime();
    if (rank == 0)
        for (int half = 0; half < 2; half++)
            MPI_Put(words + half * (count / 2), 1, halves, 1, (MPI_Aint)half * (count / 2) * 8, 1, halves, win);
    MPI_Win_fence(0, win);
    if (rank == 1)
        check("written", 4, start);
    fill(rank == 0 ? 5 : 99);
    MPI_Win_fence(0, win);
    start = MPI_Wtime();
    if (rank == 1)
        for (int half = 0; half < 2; half++)
            MPI_Get(words + half * (count / 2), 1, halves, 0, (MPI_Aint)half * (count / 2) * 8, 1, halves, win);
    MPI_Win_fence(0, win);
    if (rank == 1)
        check("read", 5, start);
    MPI_Win_free(&win);

    MPI_Bcast(&bad, 1, MPI_INT, 1, MPI_COMM_WORLD);
    MPI_Finalize();
    return bad;
}
