/* What libraries of the build machine call and an older glibc lacks; `glibc.py lower` makes them find it here.
 * Where the host's glibc has the function, either definition may be taken: both fill from the kernel's generator. */
#include <stddef.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>

/* glibc 2.36: fills `buffer` with random bytes, and never fails (libexpat salts its hash table by it). */
__attribute__((visibility("default"))) void arc4random_buf(void *buffer, size_t size)
{
    unsigned char *at = buffer;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0)
            continue; /* a signal came before the kernel's generator was ready */
        at += got;
        size -= (size_t)got;
    }
}
