/* Four kernels in the manner of the NAS parallel benchmarks, each with its result checked against one that needs no messages:
 *   ep   embarrassingly parallel: Gaussian deviates by the polar method, counted by rings     (allreduce)
 *   is   integer sort: keys to buckets by range                                               (alltoall, alltoallv, neighbours)
 *   cg   conjugate gradients on the Laplacian of a square grid, divided by rows                (halo exchange, allreduce)
 *   ft   a transposition there and back of a matrix divided by rows                            (alltoall of large blocks)
 * mpicc -O2 kernels.c -lm; mpiexec -n N ./a.out. Prints a line each and ends with 0 if all are right. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void *need(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return p;
}

/* The n-th number of a sequence that can begin anywhere (splitmix64). */
static uint64_t nth(uint64_t n)
{
    uint64_t z = (n + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double unit(uint64_t n)
{
    return (double)(nth(n) >> 11) * (2.0 / 9007199254740992.0) - 1.0;
}

static void gaussian(uint64_t from, uint64_t to, uint64_t rings[10])
{
    for (uint64_t i = from; i < to; i++) {
        double x = unit(2 * i), y = unit(2 * i + 1), t = x * x + y * y;
        if (t > 1.0 || t == 0.0)
            continue;
        double f = sqrt(-2.0 * log(t) / t), m = fmax(fabs(x * f), fabs(y * f));
        rings[m < 9.0 ? (int)m : 9]++;
    }
}

static int ep(void)
{
    const uint64_t pairs = 1 << 20;
    uint64_t mine[10] = {0}, all[10], whole[10] = {0};
    gaussian(pairs * rank / ranks, pairs * (rank + 1) / ranks, mine);
    MPI_Allreduce(mine, all, 10, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        gaussian(0, pairs, whole);
    return rank != 0 || memcmp(all, whole, sizeof whole) == 0;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int is(void)
{
    const int each = 1 << 16;
    int *to = need(ranks * sizeof(int)), *from = need(ranks * sizeof(int));
    int *to_at = need((ranks + 1) * sizeof(int)), *from_at = need((ranks + 1) * sizeof(int));
    uint32_t *keys = need(each * sizeof *keys), *sorted = need(each * sizeof *keys);
    uint64_t sum[2] = {0, 0}, total[2];
    for (int i = 0; i < each; i++) {
        keys[i] = (uint32_t)(nth((uint64_t)rank * each + i) >> 32);
        sum[0] += keys[i];
        to[(uint64_t)keys[i] * ranks >> 32]++;
    }
    for (int r = 0; r < ranks; r++)
        to_at[r + 1] = to_at[r] + to[r];
    int *next = need(ranks * sizeof(int));
    memcpy(next, to_at, ranks * sizeof(int));
    for (int i = 0; i < each; i++)
        sorted[next[(uint64_t)keys[i] * ranks >> 32]++] = keys[i];
    MPI_Alltoall(to, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++)
        from_at[r + 1] = from_at[r] + from[r];
    int got = from_at[ranks];
    uint32_t *mine = need((size_t)got * sizeof *mine);
    MPI_Alltoallv(sorted, to, to_at, MPI_UINT32_T, mine, from, from_at, MPI_UINT32_T, MPI_COMM_WORLD);
    qsort(mine, got, sizeof *mine, ascending);
    /* In order at the borders, nothing lost. */
    uint32_t last = got ? mine[got - 1] : 0, before = 0;
    MPI_Sendrecv(&last, 1, MPI_UINT32_T, rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL, 1,
                 &before, 1, MPI_UINT32_T, rank ? rank - 1 : MPI_PROC_NULL, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int right = got == 0 || before <= mine[0];
    sum[1] = 0;
    for (int i = 0; i < got; i++)
        sum[1] += mine[i];
    MPI_Allreduce(sum, total, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    int64_t count = got, counted;
    MPI_Allreduce(&count, &counted, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    free(to), free(from), free(to_at), free(from_at), free(keys), free(sorted), free(next), free(mine);
    return right && total[0] == total[1] && counted == (int64_t)each * ranks;
}

static double dot(const double *a, const double *b, size_t n)
{
    double here = 0, all;
    for (size_t i = 0; i < n; i++)
        here += a[i] * b[i];
    MPI_Allreduce(&here, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static int cg(void)
{
    const int width = 96;
    int first = width * rank / ranks, rows = width * (rank + 1) / ranks - first;
    size_t n = (size_t)rows * width;
    int up = rank ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    /* `p` has a row of each neighbour beside its own. The right side is A times a vector that we know. */
    double *known = need((n + 2 * width) * sizeof(double)), *p = need((n + 2 * width) * sizeof(double));
    double *x = need(n * sizeof(double)), *r = need(n * sizeof(double)), *q = need(n * sizeof(double));
    for (size_t i = 0; i < n; i++)
        known[width + i] = unit((uint64_t)first * width + i);
#define TIMES_A(v, out)                                                                                                       \
    do {                                                                                                                      \
        MPI_Request all[4];                                                                                                   \
        MPI_Irecv(v, width, MPI_DOUBLE, up, 2, MPI_COMM_WORLD, &all[0]);                                                      \
        MPI_Irecv(v + width + n, width, MPI_DOUBLE, down, 3, MPI_COMM_WORLD, &all[1]);                                        \
        MPI_Isend(v + width, width, MPI_DOUBLE, up, 3, MPI_COMM_WORLD, &all[2]);                                              \
        MPI_Isend(v + n, width, MPI_DOUBLE, down, 2, MPI_COMM_WORLD, &all[3]);                                                \
        MPI_Waitall(4, all, MPI_STATUSES_IGNORE);                                                                             \
        for (size_t i = 0; i < n; i++) {                                                                                      \
            const double *c = v + width + i;                                                                                  \
            out[i] = 4.0 * *c - c[-width] - c[width] - (i % width ? c[-1] : 0) - ((i + 1) % width ? c[1] : 0);                \
        }                                                                                                                     \
    } while (0)
    TIMES_A(known, r);
    memcpy(p + width, r, n * sizeof(double));
    double rr = dot(r, r, n), start = rr;
    int steps = 0;
    for (; steps < 2000 && rr > 1e-20 * start; steps++) {
        TIMES_A(p, q);
        double alpha = rr / dot(p + width, q, n), old = rr;
        for (size_t i = 0; i < n; i++)
            x[i] += alpha * p[width + i], r[i] -= alpha * q[i];
        rr = dot(r, r, n);
        for (size_t i = 0; i < n; i++)
            p[width + i] = r[i] + rr / old * p[width + i];
    }
    double worst = 0, all;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs(x[i] - known[width + i]));
    MPI_Allreduce(&worst, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    free(known), free(p), free(x), free(r), free(q);
    return all < 1e-6 && steps > 10;
}

/* From my rows of a square matrix to my rows of its transpose. */
static void transpose(const double *a, double *b, int side, double *out, double *in)
{
    int rows = side / ranks;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < rows; j++)
                out[((size_t)r * rows + j) * rows + i] = a[(size_t)i * side + r * rows + j];
    MPI_Alltoall(out, rows * rows, MPI_DOUBLE, in, rows * rows, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++)
        for (int j = 0; j < rows; j++)
            memcpy(b + (size_t)j * side + r * rows, in + ((size_t)r * rows + j) * rows, rows * sizeof(double));
}

static int ft(void)
{
    int side = 512 / ranks * ranks, rows = side / ranks, right = 1;
    size_t n = (size_t)rows * side;
    double *a = need(n * sizeof(double)), *b = need(n * sizeof(double)), *out = need(n * sizeof(double)), *in = need(n * sizeof(double));
    for (size_t i = 0; i < n; i++)
        a[i] = (double)((size_t)rank * n + i);
    for (int round = 0; round < 5; round++) {
        transpose(a, b, side, out, in);
        for (int j = 0; j < rows; j++)
            for (int i = 0; i < side; i++)
                right &= b[(size_t)j * side + i] == (double)((size_t)i * side + rank * rows + j);
        memset(a, 0, n * sizeof(double));
        transpose(b, a, side, out, in);
        for (size_t i = 0; i < n; i++)
            right &= a[i] == (double)((size_t)rank * n + i);
    }
    free(a), free(b), free(out), free(in);
    return right;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int (*run)(void); } kernels[] = {{"ep", ep}, {"is", is}, {"cg", cg}, {"ft", ft}};
    int all = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int k = 0; k < 4; k++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        int right = kernels[k].run(), everywhere;
        MPI_Allreduce(&right, &everywhere, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%s: %s, %.3f s on %d ranks\n", kernels[k].name, everywhere ? "right" : "WRONG", MPI_Wtime() - start, ranks);
        all &= everywhere;
    }
    MPI_Finalize();
    return all ? 0 : 1;
}
