/* What `towpath bench --peers` measures of an MPI. Started with 2 processes or more:
 *   mpi_bench round_trip SECONDS            8 bytes there and back            -> nanoseconds
 *   mpi_bench stress MESSAGES SECONDS       all others to rank 0, 8 bytes each -> messages, seconds, processor seconds, then each sender's share
 *   mpi_bench bulk BYTES SECONDS            rank 1 to rank 0                   -> bytes per second
 *   mpi_bench all SECONDS                   a line for each figure: its name, a size in bytes or -, and the figure
 *   mpi_bench waiting SECONDS               the same for 8 bytes there and back and the barrier alone
 *   mpi_bench win_lock STATE SECONDS        MPI_Win_lock of rank 0's window, with a read inside: local (rank 0 alone), remote (ranks 0 and 1 in turn),
 *                                           contended (all at once)    -> acquire_ns, or acquisitions_per_s and least_share, a line each
 *   mpi_bench sample KEYS SORTED            sample sort of the 32-bit keys in file KEYS, into file SORTED -> solution_ms, a line; also with 1 process
 * Prints one line of numbers (or lines), from rank 0. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WINDOW = 64, DATA = 1, END = 2 };

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of batches, as for everybody else in the comparison. Rank 1 asks, and says with each word whether there is another. */
static void round_trip(int rank, double seconds) {
    enum { BATCH = 200, BATCHES = 20000, LAST = 1 };
    static double times[BATCHES];
    long long word = 0;
    if (rank == 0) {
        do {
            MPI_Recv(&word, 1, MPI_LONG_LONG, 1, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&word, 1, MPI_LONG_LONG, 1, DATA, MPI_COMM_WORLD);
        } while (word != LAST);
        double median;
        MPI_Recv(&median, 1, MPI_DOUBLE, 1, END, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("%.3f\n", median);
    } else if (rank == 1) {
        int batches = 0;
        double begun = MPI_Wtime();
        while (batches < BATCHES && (batches < 3 || MPI_Wtime() - begun < seconds)) {
            double start = MPI_Wtime();
            for (int i = 0; i < BATCH; i++) {
                MPI_Send(&word, 1, MPI_LONG_LONG, 0, DATA, MPI_COMM_WORLD);
                MPI_Recv(&word, 1, MPI_LONG_LONG, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            times[batches++] = (MPI_Wtime() - start) / BATCH * 1e9;
        }
        word = LAST;
        MPI_Send(&word, 1, MPI_LONG_LONG, 0, DATA, MPI_COMM_WORLD);
        MPI_Recv(&word, 1, MPI_LONG_LONG, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        qsort(times, batches, sizeof *times, by_size);
        MPI_Send(&times[batches / 2], 1, MPI_DOUBLE, 0, END, MPI_COMM_WORLD);
    }
}

static void stress(int rank, int size, long messages, double seconds) {
    int senders = size - 1;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), before = cpu(), finished = 0;
    long arrived = 0, *from = calloc(size, sizeof *from), *share = calloc(size, sizeof *share);
    if (rank == 0) {
        /* Receives posted ahead take arrivals faster than one at a time. */
        long long words[WINDOW];
        MPI_Request requests[WINDOW];
        int done[WINDOW], n, ended = 0, taken = 0;
        MPI_Status status[WINDOW];
        for (int i = 0; i < WINDOW; i++)
            MPI_Irecv(&words[i], 1, MPI_LONG_LONG, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[i]);
        while (ended < senders) {
            MPI_Waitsome(WINDOW, requests, &n, done, status);
            for (int i = 0; i < n; i++) {
                if (status[i].MPI_TAG == END) {
                    ended++;
                    if (!taken) { taken = 1; memcpy(share, from, size * sizeof *from); }
                } else {
                    arrived++;
                    from[status[i].MPI_SOURCE]++;
                }
                if (ended < senders)
                    MPI_Irecv(&words[done[i]], 1, MPI_LONG_LONG, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[done[i]]);
            }
        }
        finished = MPI_Wtime() - start;
        for (int i = 0; i < WINDOW; i++)
            if (requests[i] != MPI_REQUEST_NULL) { MPI_Cancel(&requests[i]); MPI_Request_free(&requests[i]); }
    } else {
        long mine = messages / senders + (messages % senders > rank - 1);
        long long word = rank;
        for (long i = 0; i < mine; i++) {
            MPI_Send(&word, 1, MPI_LONG_LONG, 0, DATA, MPI_COMM_WORLD);
            if (i % 1024 == 0 && MPI_Wtime() - start > seconds) break;
        }
        MPI_Send(&word, 1, MPI_LONG_LONG, 0, END, MPI_COMM_WORLD);
    }
    double used = cpu() - before, sum = 0;
    MPI_Reduce(&used, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%ld %.9f %.6f", arrived, finished, sum);
        for (int i = 1; i < size; i++) printf(" %ld", share[i]);
        printf("\n");
    }
}

/* Whether a round took too little of the time to count, as rank 0 finds: all repeat it, longer. */
static int was_short(double took, double seconds) {
    int again = took < seconds / 3;
    MPI_Bcast(&again, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return again;
}

static void bulk(int rank, long bytes, double seconds) {
    /* Two buffers in turn, as towpath's own measurement does; the receiver says when it has one. */
    char *buffer[2] = {malloc(bytes), malloc(bytes)}, ack = 0;
    memset(buffer[0], 1, bytes);
    memset(buffer[1], 2, bytes);
    long count = 4;
    for (;;) {
        double start = MPI_Wtime();
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        for (long i = 0; i < count; i++) {
            MPI_Wait(&requests[i % 2], MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Isend(buffer[i % 2], (int)bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &requests[i % 2]);
            else if (rank == 0) MPI_Irecv(buffer[i % 2], (int)bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &requests[i % 2]);
        }
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (rank == 0) MPI_Send(&ack, 1, MPI_BYTE, 1, END, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(&ack, 1, MPI_BYTE, 0, END, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double took = MPI_Wtime() - start;
        if (!was_short(took, seconds)) {
            if (rank == 0) printf("%.3f\n", (double)bytes * count / took);
            return;
        }
        count *= 4;
    }
}

/* A message of so many bytes to the partner and back: the median of batches, in microseconds, at rank 0. */
static double ping(int rank, long bytes, double seconds) {
    enum { BATCHES = 5000 };
    static double times[BATCHES];
    char *buffer = calloc(bytes + 1, 1);
    int batches = 0, size = 1, more = 1;
    double begun = MPI_Wtime(), median = 0;
    while (more) {
        double start = MPI_Wtime();
        for (int i = 0; i < size; i++) {
            if (rank == 0) {
                MPI_Send(buffer, (int)bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD);
                MPI_Recv(buffer, (int)bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(buffer, (int)bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD);
            }
        }
        double took = MPI_Wtime() - start;
        int decision[2] = {0, size};
        if (rank == 0) {
            /* The first ones warm up, and find out how many make a batch of about half a millisecond. */
            int warm = took > 2e-4 || size >= 200 || MPI_Wtime() - begun > seconds / 2;
            if (warm || batches) times[batches++] = took / size * 1e6;
            else decision[1] = size * 2;
            decision[0] = batches < BATCHES && (batches < 3 || MPI_Wtime() - begun < seconds);
            MPI_Send(decision, 2, MPI_INT, 1, END, MPI_COMM_WORLD);
        } else {
            MPI_Recv(decision, 2, MPI_INT, 0, END, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        more = decision[0];
        size = decision[1];
    }
    if (rank == 0) {
        qsort(times, batches, sizeof *times, by_size);
        median = times[batches / 2];
    }
    free(buffer);
    return median;
}

/* One-way messages of 8 bytes from all others to rank 0, which has receives posted ahead: messages each second. */
static double many_to_one(int rank, int size, double seconds) {
    long long words[WINDOW], word = rank;
    MPI_Request requests[WINDOW];
    long count = 2000;
    for (;;) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        if (rank == 0) {
            long left = count * (size - 1), posted = 0;
            int done[WINDOW], n;
            for (int i = 0; i < WINDOW; i++) {
                requests[i] = MPI_REQUEST_NULL;
                if (posted < left) { MPI_Irecv(&words[i], 1, MPI_LONG_LONG, MPI_ANY_SOURCE, DATA, MPI_COMM_WORLD, &requests[i]); posted++; }
            }
            long arrived = 0;
            while (arrived < left) {
                MPI_Waitsome(WINDOW, requests, &n, done, MPI_STATUSES_IGNORE);
                for (int i = 0; i < n; i++) {
                    arrived++;
                    if (posted < left) { MPI_Irecv(&words[done[i]], 1, MPI_LONG_LONG, MPI_ANY_SOURCE, DATA, MPI_COMM_WORLD, &requests[done[i]]); posted++; }
                }
            }
        } else {
            for (long i = 0; i < count; i++) MPI_Send(&word, 1, MPI_LONG_LONG, 0, DATA, MPI_COMM_WORLD);
        }
        double took = MPI_Wtime() - start;
        if (!was_short(took, seconds)) return count * (size - 1) / took;
        count *= 4;
    }
}

enum { BARRIER, ALLREDUCE, ALLTOALL };

/* A collective operation of all: microseconds. */
static double collective(int which, int rank, int size, double seconds) {
    enum { PIECE = 1024 };
    char *from = calloc(size, PIECE), *to = calloc(size, PIECE);
    long count = 1;
    for (;;) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (long i = 0; i < count; i++) {
            double x = rank, sum;
            if (which == BARRIER) MPI_Barrier(MPI_COMM_WORLD);
            else if (which == ALLREDUCE) MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            else MPI_Alltoall(from, PIECE, MPI_BYTE, to, PIECE, MPI_BYTE, MPI_COMM_WORLD);
        }
        double took = MPI_Wtime() - start;
        if (!was_short(took, seconds)) {
            free(from);
            free(to);
            return took / count * 1e6;
        }
        count *= 4;
    }
}

/* Work that no compiler removes: so many steps of some nanoseconds. */
static void work(long steps) {
    static volatile double x = 1;
    for (long i = 0; i < steps; i++) x = x * 1.0000001 + 1e-9;
}

/* What an MPI_Test of a receive that nothing comes for costs a rank that works for about a microsecond between two, in microseconds: the slowest rank's. All of them do so. */
static double testing(int rank, int size, double seconds) {
    long steps = 1000000, count = 100;
    double start = MPI_Wtime();
    work(steps);
    steps = (long)(1e-6 * steps / (MPI_Wtime() - start)) + 1;
    int word = 0, done;
    MPI_Request request;
    MPI_Irecv(&word, 1, MPI_INT, (rank + 1) % size, END, MPI_COMM_WORLD, &request);
    for (;;) {
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        for (long i = 0; i < count; i++) work(steps);
        double bare = MPI_Wtime() - start;
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        for (long i = 0; i < count; i++) {
            work(steps);
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        }
        double took = MPI_Wtime() - start, lost = took > bare ? (took - bare) / count * 1e6 : 0, most;
        if (!was_short(took, seconds)) {
            MPI_Send(&word, 1, MPI_INT, (rank + size - 1) % size, END, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Allreduce(&lost, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            return most;
        }
        count *= 4;
    }
}

static void all(int rank, int size, double seconds) {
    static const long sizes[] = {0, 8, 64, 1024, 8192, 65536, 262144, 1048576, 4194304};
    int kinds = sizeof sizes / sizeof *sizes;
    double share = seconds / (size == 2 ? kinds + 5 : 5);
    if (size == 2) {
        for (int i = 0; i < kinds; i++) {
            double us = ping(rank, sizes[i], share);
            if (rank == 0) printf("round_trip_us %ld %.6f\n", sizes[i], us);
        }
    }
    double rate = many_to_one(rank, size, share);
    double times[3];
    for (int which = 0; which < 3; which++) times[which] = collective(which, rank, size, share);
    double test = testing(rank, size, share);
    if (rank == 0) {
        if (size == 2) printf("messages_per_s - %.3f\n", rate);
        printf("many_to_one_per_s - %.3f\nbarrier_us - %.6f\nallreduce_us - %.6f\nalltoall_us - %.6f\n", rate, times[BARRIER],
               times[ALLREDUCE], times[ALLTOALL]);
        printf("test_us - %.6f\n", test);
    }
}

static void waiting(int rank, int size, double seconds) {
    double us = size == 2 ? ping(rank, 8, seconds / 2) : 0, barrier = collective(BARRIER, rank, size, seconds / 2);
    if (rank == 0) {
        if (size == 2) printf("round_trip_us 8 %.6f\n", us);
        printf("barrier_us - %.6f\n", barrier);
    }
}

/* One acquisition: with a read, since an MPI may put the lock off until there is one. Returns when it was had. */
static double hold(MPI_Win window) {
    long word;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Get(&word, 1, MPI_LONG, 0, 0, 1, MPI_LONG, window);
    MPI_Win_flush(0, window);
    double had = MPI_Wtime();
    MPI_Win_unlock(0, window);
    return had;
}

static void win_lock(int rank, int size, const char *state, double seconds) {
    enum { TIMES = 1000000 };
    static double times[TIMES];
    long *memory, count = 0, least, sum;
    MPI_Win window;
    MPI_Win_allocate(sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    if (!strcmp(state, "local")) {
        if (rank == 0) {
            while (count < TIMES && MPI_Wtime() - begun < seconds) {
                double start = MPI_Wtime();
                hold(window);
                times[count++] = (MPI_Wtime() - start) * 1e9;
            }
        }
    } else if (!strcmp(state, "remote")) {
        int more = 1, peer = 1 - rank;
        while (rank < 2 && more) {
            double start = 0;
            if (rank == 0) MPI_Recv(&more, 1, MPI_INT, peer, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 0 && !more) break;
            start = MPI_Wtime();
            times[count++] = (hold(window) - start) * 1e9;
            if (rank == 1) more = count < TIMES && MPI_Wtime() - begun < seconds;
            MPI_Send(&more, 1, MPI_INT, peer, DATA, MPI_COMM_WORLD);
            if (rank == 1 && more) MPI_Recv(&more, 1, MPI_INT, peer, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    } else {
        while (MPI_Wtime() - begun < seconds) {
            hold(window);
            count++;
        }
    }
    double took = MPI_Wtime() - begun, longest;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Reduce(&count, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&count, &least, 1, MPI_LONG, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    int median_at = !strcmp(state, "remote") ? 1 : 0;
    if (strcmp(state, "contended")) {
        if (rank == median_at) {
            qsort(times, count, sizeof *times, by_size);
            printf("acquire_ns %.3f\n", times[count / 2]);
            fflush(stdout);
        }
    } else if (rank == 0) {
        printf("acquisitions_per_s %.3f\nleast_share %.4f\n", sum / longest, (double)least * size / sum);
    }
    MPI_Win_free(&window);
}

enum { SAMPLE = 64 };

static int by_key(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Number of the range of a key: range n begins at samples[n * SAMPLE], the first one at 0. */
static int range_of(const uint32_t *samples, int size, uint32_t key) {
    int low = 0, high = size - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (samples[middle * SAMPLE] <= key) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* Four passes over a byte each, so that the keys end where they began. */
static void radix_sort(uint32_t *keys, int count) {
    uint32_t *other = malloc(4L * count + 4), *swap;
    for (int shift = 0; shift < 32; shift += 8, swap = keys, keys = other, other = swap) {
        int at[257] = {0};
        for (int i = 0; i < count; i++) at[(keys[i] >> shift & 255) + 1]++;
        for (int d = 0; d < 256; d++) at[d + 1] += at[d];
        for (int i = 0; i < count; i++) other[at[keys[i] >> shift & 255]++] = keys[i];
    }
    free(other);
}

/* Offsets of parts that lie one behind the other. Returns their total length. */
static int offsets(const int *counts, int *at, int size) {
    int sum = 0;
    for (int n = 0; n < size; sum += counts[n++]) at[n] = sum;
    return sum;
}

static FILE *file_or_abort(const char *name, const char *mode) {
    FILE *file = fopen(name, mode);
    if (!file) MPI_Abort(MPI_COMM_WORLD, 2);
    return file;
}

/* As `sample-bulk` of `lab/apps`, each rank with the same number of keys: those that part the ranges are chosen from samples, keys go to their range's rank and are sorted there. */
static void sample(int rank, int size, const char *from, const char *to) {
    FILE *file = file_or_abort(from, "rb");
    fseek(file, 0, SEEK_END);
    int count = (int)(ftell(file) / 4 / size);
    long all = (long)count * size;
    uint32_t *mine = malloc(4L * count), *dealt = malloc(4L * count), *got = malloc(4 * all);
    uint32_t part[SAMPLE], *samples = malloc(4L * SAMPLE * size);
    int *range = malloc(sizeof *range * count), *counts = calloc(4L * size, sizeof *counts);
    int *sends = counts, *sends_at = counts + size, *gets = counts + 2 * size, *gets_at = counts + 3 * size;
    fseek(file, 4L * count * rank, SEEK_SET);
    if (fread(mine, 4, count, file) != (size_t)count) MPI_Abort(MPI_COMM_WORLD, 2);
    fclose(file);
    /* Room for keys has been written to before the time starts, as in `lab/apps`. */
    memset(got, 1, 4 * all);

    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < SAMPLE; i++) part[i] = mine[(long)i * count / SAMPLE];
    MPI_Allgather(part, SAMPLE, MPI_UINT32_T, samples, SAMPLE, MPI_UINT32_T, MPI_COMM_WORLD);
    qsort(samples, (size_t)SAMPLE * size, 4, by_key);
    for (int i = 0; i < count; i++) sends[range[i] = range_of(samples, size, mine[i])]++;
    offsets(sends, sends_at, size);
    for (int i = 0; i < count; i++) dealt[sends_at[range[i]]++] = mine[i];
    offsets(sends, sends_at, size);
    MPI_Alltoall(sends, 1, MPI_INT, gets, 1, MPI_INT, MPI_COMM_WORLD);
    int have = offsets(gets, gets_at, size);
    MPI_Alltoallv(dealt, sends, sends_at, MPI_UINT32_T, got, gets, gets_at, MPI_UINT32_T, MPI_COMM_WORLD);
    radix_sort(got, have);
    MPI_Barrier(MPI_COMM_WORLD);
    double took = (MPI_Wtime() - start) * 1e3, longest;

    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Gather(&have, 1, MPI_INT, gets, 1, MPI_INT, 0, MPI_COMM_WORLD);
    uint32_t *sorted = malloc(4 * all);
    if (rank == 0) offsets(gets, gets_at, size);
    MPI_Gatherv(got, have, MPI_UINT32_T, sorted, gets, gets_at, MPI_UINT32_T, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        file = file_or_abort(to, "wb");
        fwrite(sorted, 4, all, file);
        fclose(file);
        printf("solution_ms %.6f\n", longest);
    }
    free(mine), free(dealt), free(got), free(samples), free(range), free(counts), free(sorted);
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 2 && !strcmp(argv[1], "round_trip")) round_trip(rank, atof(argv[2]));
    else if (argc > 3 && !strcmp(argv[1], "stress")) stress(rank, size, atol(argv[2]), atof(argv[3]));
    else if (argc > 3 && !strcmp(argv[1], "bulk")) bulk(rank, atol(argv[2]), atof(argv[3]));
    else if (argc > 2 && !strcmp(argv[1], "all")) all(rank, size, atof(argv[2]));
    else if (argc > 2 && !strcmp(argv[1], "waiting")) waiting(rank, size, atof(argv[2]));
    else if (argc > 3 && !strcmp(argv[1], "win_lock")) win_lock(rank, size, argv[2], atof(argv[3]));
    else if (argc > 3 && !strcmp(argv[1], "sample")) sample(rank, size, argv[2], argv[3]);
    MPI_Finalize();
    return 0;
}
