/* Preloaded into a program, it makes every sync fail while the file named by FAILING_SYNCS exists: what was to be synced
 * is written, and the answer is EIO, as from a disk that is going. Nothing else of the program is changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(void)
{
    const char *file = getenv("FAILING_SYNCS");
    return file != NULL && access(file, F_OK) == 0;
}

static int refused(void)
{
    errno = EIO;
    return -1;
}

int fdatasync(int handle)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return fails() ? refused() : real(handle);
}

int fsync(int handle)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return fails() ? refused() : real(handle);
}

static ssize_t written(int handle, const struct iovec *parts, int count, off_t position, int flags)
{
    ssize_t (*real)(int, const struct iovec *, int, off_t, int) = dlsym(RTLD_NEXT, "pwritev2");
    if (!(flags & RWF_DSYNC) || !fails())
        return real(handle, parts, count, position, flags);
    real(handle, parts, count, position, flags & ~RWF_DSYNC);
    return refused();
}

ssize_t pwritev2(int handle, const struct iovec *parts, int count, off_t position, int flags)
{
    return written(handle, parts, count, position, flags);
}

ssize_t pwritev64v2(int handle, const struct iovec *parts, int count, off_t position, int flags)
{
    return written(handle, parts, count, position, flags);
}
