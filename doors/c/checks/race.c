/* Two threads add to a word: under the mutex, or with -DPLANTED one of them without, which ThreadSanitizer must see. */
#include "check.h"

#include <pthread.h>

#ifdef PLANTED
#define SECOND NULL
#else
#define SECOND (&mutex)
#endif

static tp_mutex *mutex;
static long number;

static void *add(void *locks) {
    for (int k = 0; k < 100000; k++) {
        if (locks) tp_mutex_lock(mutex);
        number++;
        if (locks) tp_mutex_unlock(mutex);
    }
    return NULL;
}

int main(void) {
    pthread_t first, second;
    size_t room = tp_mutex_size(2, 0);
    watchdog(60);
    GIVES(tp_mutex_init(shared_memory(room), room, 2, &mutex), 0);
    pthread_create(&first, NULL, add, &mutex);
    pthread_create(&second, NULL, add, SECOND);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    puts("race: well");
    return 0;
}
