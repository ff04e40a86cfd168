/* Several threads of each rank in their MPI at the same time (MPI_THREAD_MULTIPLE), everything that arrives checked:
 *   tagged      each thread exchanges messages of 0 to 400,000 bytes with a thread of every rank, also its own
 *   anywhere    receives from any rank, posted before and after their messages
 *   matched     threads that all look for the same messages (MPI_Mprobe): each is found once
 *   one-sided   numbers drawn from a counter (each once), sums, and areas that are written and read back
 *   waiting     some threads wait for long while others of the same rank exchange messages
 * mpicc -O2 -pthread threads.c; mpiexec -n N ./a.out [ROUNDS]. Prints a line each and ends with 0 if all are right. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, LONGEST = 400000 };

static const int lengths[] = {0, 1, 8, 100, 2000, 20000, 70000, LONGEST};
static int rank, ranks, rounds = 60;
static int wrong[THREADS];
static MPI_Win win;
static int64_t *memory;
/* Of the window: the counter, a sum, an area for each thread of each rank. */
enum { COUNTER = 0, SUM = 1, AREAS = 2, AREA = 512 };

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int length(uint64_t what)
{
    return lengths[mix(what) % (sizeof lengths / sizeof *lengths)];
}

static void fill(unsigned char *at, int len, uint64_t what)
{
    for (int i = 0; i < len; i++)
        at[i] = (unsigned char)(mix(what) + i * 31u + (i >> 8));
}

static int is(const unsigned char *at, int len, uint64_t what)
{
    for (int i = 0; i < len; i++)
        if (at[i] != (unsigned char)(mix(what) + i * 31u + (i >> 8)))
            return 0;
    return 1;
}

static void *need(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        MPI_Abort(MPI_COMM_WORLD, 2);
    return p;
}

static uint64_t number(int from, int to, int thread, int round)
{
    return (((uint64_t)from * 1000 + to) * 100 + thread) * 100000 + round + 1;
}

static void tagged(int me)
{
    unsigned char *out = need((size_t)ranks * LONGEST), *in = need((size_t)ranks * LONGEST);
    MPI_Request *requests = need(2 * ranks * sizeof *requests);
    for (int round = 0; round < rounds; round++) {
        /* Thread `me` of one rank to thread `(me + round)` of the other; tags are the receiving thread's, by round. */
        int to = (me + round) % THREADS, from = (me - round % THREADS + THREADS) % THREADS;
        for (int r = 0; r < ranks; r++) {
            int len = length(number(r, rank, from, round));
            MPI_Irecv(in + (size_t)r * LONGEST, len, MPI_BYTE, r, round * THREADS + me, MPI_COMM_WORLD, &requests[r]);
        }
        for (int r = 0; r < ranks; r++) {
            uint64_t what = number(rank, r, me, round);
            fill(out + (size_t)r * LONGEST, length(what), what);
            MPI_Isend(out + (size_t)r * LONGEST, length(what), MPI_BYTE, r, round * THREADS + to, MPI_COMM_WORLD, &requests[ranks + r]);
        }
        MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
        for (int r = 0; r < ranks; r++) {
            uint64_t what = number(r, rank, from, round);
            wrong[me] += !is(in + (size_t)r * LONGEST, length(what), what);
        }
    }
    free(out), free(in), free(requests);
}

/* Sends are waited for at the end only: a thread that waits for its send may keep others from theirs, where a message of any rank will do. */

static void anywhere(int me)
{
    unsigned char **out = need(rounds * sizeof *out), *in = need(LONGEST);
    MPI_Request *sends = need(rounds * sizeof *sends);
    char *seen = need((size_t)ranks * rounds);
    memset(seen, 0, (size_t)ranks * rounds);
    for (int round = 0; round < rounds; round++) {
        int to = (rank + 1 + round % ranks) % ranks, first = (round + me) % 2;
        uint64_t what = number(rank, round, me, 7);
        int len = 4 + length(what) % 100000;
        MPI_Request request;
        MPI_Status status;
        out[round] = need(len);
        fill(out[round], len, what);
        memcpy(out[round], &round, 4);
        if (first)
            MPI_Irecv(in, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, me, MPI_COMM_WORLD, &request);
        MPI_Isend(out[round], len, MPI_BYTE, to, me, MPI_COMM_WORLD, &sends[round]);
        if (!first)
            MPI_Irecv(in, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, me, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
        int got, of;
        MPI_Get_count(&status, MPI_BYTE, &got);
        memcpy(&of, in, 4);
        if (of < 0 || of >= rounds || seen[(size_t)status.MPI_SOURCE * rounds + of]++) {
            wrong[me]++;
            continue;
        }
        what = number(status.MPI_SOURCE, of, me, 7);
        fill(in, 4, what);
        wrong[me] += got != 4 + length(what) % 100000 || !is(in, got, what);
    }
    MPI_Waitall(rounds, sends, MPI_STATUSES_IGNORE);
    for (int round = 0; round < rounds; round++)
        free(out[round]);
    free(out), free(in), free(sends), free(seen);
}

static void matched(int me)
{
    /* Every thread sends to every one; whichever finds a message takes it. The first bytes say what it is. */
    unsigned char **out = need(rounds * sizeof *out), *in = need(LONGEST + 8);
    MPI_Request *sends = need(rounds * sizeof *sends);
    for (int round = 0; round < rounds; round++) {
        int to = (rank + round) % ranks, len;
        uint64_t what = number(rank, to, me, round);
        MPI_Message message;
        MPI_Status status;
        out[round] = need(length(what) + 8);
        memcpy(out[round], &what, 8);
        fill(out[round] + 8, length(what), what);
        MPI_Isend(out[round], 8 + length(what), MPI_BYTE, to, 1, MPI_COMM_WORLD, &sends[round]);
        MPI_Mprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &len);
        MPI_Mrecv(in, len, MPI_BYTE, &message, MPI_STATUS_IGNORE);
        memcpy(&what, in, 8);
        wrong[me] += len < 8 || len != 8 + length(what) || !is(in + 8, len - 8, what);
    }
    MPI_Waitall(rounds, sends, MPI_STATUSES_IGNORE);
    for (int round = 0; round < rounds; round++)
        free(out[round]);
    free(out), free(in), free(sends);
}

static char *drawn;

static void onesided(int me)
{
    int64_t out[AREA], in[AREA], one = 1, found;
    for (int round = 0; round < rounds; round++) {
        MPI_Fetch_and_op(&one, &found, MPI_INT64_T, 0, COUNTER, MPI_SUM, win);
        MPI_Win_flush(0, win);
        if (found < 0 || found >= (int64_t)ranks * THREADS * rounds || drawn[found])
            wrong[me]++;
        else
            drawn[found] = 1;
        int to = (rank + 1 + round) % ranks, len = 1 + (int)(mix(round) % AREA);
        MPI_Accumulate(&one, 1, MPI_INT64_T, to, SUM, 1, MPI_INT64_T, MPI_SUM, win);
        MPI_Aint area = AREAS + (MPI_Aint)(rank * THREADS + me) * AREA;
        for (int i = 0; i < len; i++)
            out[i] = (int64_t)mix(number(rank, to, me, round) + i);
        MPI_Put(out, len, MPI_INT64_T, to, area, len, MPI_INT64_T, win);
        MPI_Win_flush(to, win);
        memset(in, 0, sizeof in);
        MPI_Get(in, len, MPI_INT64_T, to, area, len, MPI_INT64_T, win);
        MPI_Win_flush(to, win);
        wrong[me] += memcmp(in, out, len * sizeof *in) != 0;
    }
}

static void waiting(int me)
{
    /* Thread 0 waits for a message that the rank before sends only when its other threads are done. */
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, word = me;
    if (me == 0) {
        MPI_Recv(&word, 1, MPI_INT, before, 100, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong[me] += word != 12345;
        return;
    }
    for (int round = 0; round < 4 * rounds; round++) {
        int got;
        MPI_Sendrecv(&round, 1, MPI_INT, next, me, &got, 1, MPI_INT, before, me, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong[me] += got != round;
    }
    if (me == 1) {
        word = 12345;
        MPI_Send(&word, 1, MPI_INT, next, 100, MPI_COMM_WORLD);
    }
}

static void (*act)(int);

static void *thread(void *of)
{
    act((int)(intptr_t)of);
    return NULL;
}

static int phase(const char *name, void (*what)(int))
{
    pthread_t threads[THREADS];
    memset(wrong, 0, sizeof wrong);
    act = what;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, (void *)i))
            MPI_Abort(MPI_COMM_WORLD, 2);
    int bad = 0, all;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        bad += wrong[i];
    }
    MPI_Allreduce(&bad, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%-10s %s, %d wrong, %.2f s\n", name, all ? "FAILED" : "ok", all, MPI_Wtime() - start);
        fflush(stdout);
    }
    return all != 0;
}

int main(int argc, char **argv)
{
    int level, bad = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (level < MPI_THREAD_MULTIPLE) {
        if (rank == 0)
            fprintf(stderr, "this MPI was built without MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return 2;
    }
    if (argc > 1)
        rounds = atoi(argv[1]);
    bad |= phase("tagged", tagged);
    bad |= phase("anywhere", anywhere);
    bad |= phase("matched", matched);

    size_t draws = (size_t)ranks * THREADS * rounds;
    drawn = need(draws);
    memset(drawn, 0, draws);
    MPI_Win_allocate((AREAS + (MPI_Aint)ranks * THREADS * AREA) * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memory[COUNTER] = memory[SUM] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    bad |= phase("one-sided", onesided);
    MPI_Win_flush_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(win);
    int64_t sum, mine;
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    mine = memory[SUM];
    MPI_Win_unlock(rank, win);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    /* Each number was drawn, and by one. */
    unsigned char *all = need(draws);
    MPI_Reduce(drawn, all, (int)draws, MPI_UNSIGNED_CHAR, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        size_t once = 0;
        for (size_t i = 0; i < draws; i++)
            once += all[i] == 1;
        if (once != draws || sum != (int64_t)draws) {
            printf("one-sided: %zu of %zu numbers drawn once, the sum is %lld\n", once, draws, (long long)sum);
            bad = 1;
        }
    }
    MPI_Win_free(&win);
    bad |= phase("waiting", waiting);
    MPI_Bcast(&bad, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return bad;
}
