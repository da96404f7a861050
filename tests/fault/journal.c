/* journal.c - recording: see journal.h. Files and folders are numbered as they
 * appear; an inode number leads to the latest one that had it. */
#include "fault.h"
#include "journal_events.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_NODES 4096u
#define MAX_EVENTS 65536u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool            recording;
static char           *base_path;
static ino_t           inodes[MAX_NODES];
static int             n_nodes;
static journal_event   events[MAX_EVENTS];
static size_t          n_events;
static int             epoch;

static journal_event *add(journal_type type)
{
    MUST(n_events < MAX_EVENTS);
    journal_event *e = &events[n_events++];
    *e = (journal_event){.type = type, .node = -1, .dir = -1, .to_dir = -1, .epoch = epoch};
    return e;
}

static int node_of_inode(ino_t inode)
{
    for (int i = n_nodes - 1; i >= 0; i--)
        if (inodes[i] == inode)
            return i;
    return -1;
}

static int new_node(ino_t inode)
{
    MUST(n_nodes < (int)MAX_NODES);
    inodes[n_nodes] = inode;
    return n_nodes++;
}

static int node_of_fd(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? node_of_inode(st.st_ino) : -1;
}

static int node_of_path(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? node_of_inode(st.st_ino) : -1;
}

/* The folder that a name lies in, and the name's last component. */
static int locate(int dir_fd, const char *name, char last[JOURNAL_NAME_SIZE])
{
    const char *slash = strrchr(name, '/');
    const char *tail = slash ? slash + 1 : name;
    MUST(strlen(tail) < JOURNAL_NAME_SIZE);
    strcpy(last, tail);
    if (!slash)
        return node_of_fd(dir_fd);
    char *parent = strndup(name, (size_t)(slash - name));
    int   node = dir_fd == AT_FDCWD ? node_of_path(parent) : -1;
    free(parent);
    return node;
}

void journal_begin(const char *base)
{
    struct stat st;
    journal_free();
    MUST(stat(base, &st) == 0);
    base_path = strdup(base);
    (void)new_node(st.st_ino);
    recording = true;
}

void journal_end(void)
{
    pthread_mutex_lock(&mutex);
    recording = false;
    pthread_mutex_unlock(&mutex);
}

void journal_free(void)
{
    for (size_t i = 0; i < n_events; i++)
        free(events[i].data);
    free(base_path);
    base_path = NULL;
    n_events = 0;
    n_nodes = 0;
    epoch = 0;
}

size_t journal_n_events(void)
{
    return n_events;
}

const journal_event *journal_event_at(size_t i)
{
    MUST(i < n_events);
    return &events[i];
}

int journal_n_nodes(void)
{
    return n_nodes;
}

void journal_epoch(void)
{
    pthread_mutex_lock(&mutex);
    epoch++;
    pthread_mutex_unlock(&mutex);
}

void journal_promise(void)
{
    pthread_mutex_lock(&mutex);
    if (recording)
        add(JOURNAL_PROMISE);
    pthread_mutex_unlock(&mutex);
}

void journal_rot(const char *path, uint64_t offset, uint8_t mask)
{
    uint8_t byte;
    int     fd = open(path, O_RDWR | O_CLOEXEC);
    MUST(fd >= 0 && pread(fd, &byte, 1, (off_t)offset) == 1);
    byte ^= mask;
    ssize_t n = pwrite(fd, &byte, 1, (off_t)offset);
    MUST(n == 1);
    pthread_mutex_lock(&mutex);
    if (recording) {
        journal_event *e = add(JOURNAL_ROT);
        e->node = node_of_fd(fd);
        e->offset = offset;
        e->size = 1;
        e->data = malloc(1);
        *e->data = byte;
    }
    pthread_mutex_unlock(&mutex);
    close(fd);
}

/* ---- the calls ---- */

int journal_open(int dir_fd, const char *name, int flags, mode_t mode)
{
    struct stat st;
    char        last[JOURNAL_NAME_SIZE];
    pthread_mutex_lock(&mutex);
    bool existed = fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    int  fd = openat(dir_fd, name, flags, mode);
    int  error = errno;
    if (recording && fd >= 0 && !existed && fstat(fd, &st) == 0) {
        int dir = locate(dir_fd, name, last);
        if (dir >= 0) {
            journal_event *e = add(JOURNAL_CREATE);
            e->dir = dir;
            e->node = new_node(st.st_ino);
            strcpy(e->name, last);
        }
    }
    pthread_mutex_unlock(&mutex);
    errno = error;
    return fd;
}

ssize_t journal_pwrite(int fd, const void *buf, size_t size, off_t offset)
{
    pthread_mutex_lock(&mutex);
    ssize_t n = pwrite(fd, buf, size, offset);
    int     error = errno;
    int     node = recording && n > 0 ? node_of_fd(fd) : -1;
    if (node >= 0) {
        journal_event *e = add(JOURNAL_WRITE);
        e->node = node;
        e->offset = (uint64_t)offset;
        e->size = (size_t)n;
        e->data = malloc((size_t)n);
        memcpy(e->data, buf, (size_t)n);
    }
    pthread_mutex_unlock(&mutex);
    errno = error;
    return n;
}

/* What is asked for is modelled, so the real disk need not do it. */
int journal_sync(int fd)
{
    struct stat st;
    pthread_mutex_lock(&mutex);
    int result = fstat(fd, &st);
    int node = recording && result == 0 ? node_of_inode(st.st_ino) : -1;
    if (node >= 0)
        add(JOURNAL_SYNC)->node = node;
    pthread_mutex_unlock(&mutex);
    return result;
}

int journal_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    pthread_mutex_lock(&mutex);
    int dir = recording ? node_of_fd(from_dir) : -1;
    int result = renameat2(from_dir, from, to_dir, to, flags);
    int error = errno;
    if (dir >= 0 && result == 0) {
        journal_event *e = add(JOURNAL_RENAME);
        e->dir = dir;
        e->to_dir = node_of_fd(to_dir);
        MUST(strlen(from) < JOURNAL_NAME_SIZE && strlen(to) < JOURNAL_NAME_SIZE);
        strcpy(e->name, from);
        strcpy(e->to_name, to);
    }
    pthread_mutex_unlock(&mutex);
    errno = error;
    return result;
}

int journal_link(int from_dir, const char *from, int to_dir, const char *to)
{
    struct stat st;
    pthread_mutex_lock(&mutex);
    int result = linkat(from_dir, from, to_dir, to, 0);
    int error = errno;
    int dir = recording && result == 0 ? node_of_fd(to_dir) : -1;
    if (dir >= 0 && fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        journal_event *e = add(JOURNAL_LINK);
        e->to_dir = dir;
        e->node = node_of_inode(st.st_ino);
        strcpy(e->to_name, to);
    }
    pthread_mutex_unlock(&mutex);
    errno = error;
    return result;
}

int journal_unlink(int dir_fd, const char *name, int flags)
{
    pthread_mutex_lock(&mutex);
    int dir = recording ? node_of_fd(dir_fd) : -1;
    int result = unlinkat(dir_fd, name, flags);
    int error = errno;
    if (dir >= 0 && result == 0) {
        journal_event *e = add(JOURNAL_REMOVE);
        e->dir = dir;
        strcpy(e->name, name);
    }
    pthread_mutex_unlock(&mutex);
    errno = error;
    return result;
}

int journal_mkdir(int dir_fd, const char *name, mode_t mode)
{
    struct stat st;
    char        last[JOURNAL_NAME_SIZE];
    pthread_mutex_lock(&mutex);
    int result = mkdirat(dir_fd, name, mode);
    int error = errno;
    int dir = recording && result == 0 ? locate(dir_fd, name, last) : -1;
    if (dir >= 0 && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        journal_event *e = add(JOURNAL_MKDIR);
        e->dir = dir;
        e->node = new_node(st.st_ino);
        strcpy(e->name, last);
    }
    pthread_mutex_unlock(&mutex);
    errno = error;
    return result;
}
