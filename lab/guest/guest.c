/* SPDX-License-Identifier: Apache-2.0
 *
 * The guest of the lab: the first and only program of a tiny machine. On
 * every disk that it has, and on every disk that comes, it writes blocks
 * that can be proven (O_DIRECT, O_SYNC), reads earlier ones back, and says
 * on its console how it goes:
 *
 *   found vdb serial=S blocks=.. sum=.. seq=.. torn=0 stray=0
 *   guest vdb serial=S up=12.3 seq=.. reads=.. sweeps=.. bad=0 errors=0 ...
 *   copy vdb serial=S blocks=.. sum=.. seq=.. torn=0 stray=0
 *   BAD vdb stale place=.. wanted=.. found=..
 *   gone vdb serial=S blocks=.. sum=..
 *
 * A block holds its place, its disk's identity and a sequence number, and a
 * checksum over all of it. The guest remembers the number that the disk has
 * acknowledged last for each place; anything else read there is bad:
 * missing (never written), torn (checksum), stray (another place or disk),
 * stale (an older number) or early (a newer one).
 *
 * A guest that starts anew remembers nothing. So each block also holds the
 * sum of all places' numbers as it was to be with this block: the newest
 * block that a disk has tells whether all the others are there. That the
 * newest is, tells "seq", which must not be less than what was reported.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/fs.h>

#define BLOCK 4096
#define WORDS (BLOCK / 8)
#define PLACES 512
#define RESERVED (64u << 20)     /* a boot disk: its image ends before this */
#define MAGIC 0x6c6f63616c636c6fu
#define PAUSE_US 50000           /* between rounds: leave the nodes some CPU */
#define SWEEP 4                  /* places a round that a full pass reads */
#define REPORT_S 2.0
#define SHOWN 20                 /* bad blocks shown a disk; all are counted */

enum { W_MAGIC, W_DISK, W_PLACE, W_SEQ, W_TOTAL, W_FILL, W_SUM = WORDS - 1 };

static struct {
    char name[32], serial[64];
    int fd;
    uint64_t id, start, stride, last;    /* of places, in bytes */
    uint64_t wanted[PLACES];     /* acknowledged last; 0: nothing known */
    uint64_t seq, reads, sweeps, bad, errors;
    unsigned sweep_at;
    double worst;
} disk;

static uint64_t *buffer;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static uint64_t chance(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t hash(const void *data, size_t words, uint64_t h)
{
    const uint64_t *w = data;
    while (words--)
        h = (h ^ *w++) * 0x100000001b3u, h ^= h >> 29;
    return h;
}

/* One write a line: lines of several disks do not mix. */
static void say(const char *line)
{
    size_t length = strlen(line);
    while (length) {
        ssize_t n = write(1, line, length);
        if (n <= 0)
            return;
        line += n, length -= n;
    }
}

#define SAY(...) do { \
        char line_[256]; \
        snprintf(line_, sizeof line_, __VA_ARGS__); \
        say(line_); \
    } while (0)

static off_t offset_of(unsigned place)
{
    return place == PLACES - 1 ? disk.last
        : disk.start + place * disk.stride;
}

static uint64_t known(uint64_t *sum)
{
    uint64_t count = 0;
    *sum = 0;
    for (unsigned i = 0; i < PLACES; i++)
        if (disk.wanted[i])
            count++, *sum += disk.wanted[i];
    return count;
}

static void fill(unsigned place, uint64_t seq)
{
    uint64_t state = seq * PLACES + place + 1, sum;
    known(&sum);
    buffer[W_MAGIC] = MAGIC;
    buffer[W_DISK] = disk.id;
    buffer[W_PLACE] = place;
    buffer[W_SEQ] = seq;
    buffer[W_TOTAL] = sum - disk.wanted[place] + seq;
    for (int i = W_FILL; i < W_SUM; i++)
        buffer[i] = chance(&state);
    buffer[W_SUM] = hash(buffer, W_SUM, MAGIC);
}

/* What is wrong with the block just read; NULL: it is as it was written. */
static const char *fault(unsigned place)
{
    if (buffer[W_MAGIC] != MAGIC)
        return "missing";
    if (buffer[W_SUM] != hash(buffer, W_SUM, MAGIC))
        return "torn";
    if (buffer[W_PLACE] != place || buffer[W_DISK] != disk.id)
        return "stray";
    if (buffer[W_SEQ] < disk.wanted[place])
        return "stale";
    return buffer[W_SEQ] > disk.wanted[place] ? "early" : NULL;
}

static void failed(const char *what, unsigned place)
{
    int error = errno;
    char path[64];
    snprintf(path, sizeof path, "/sys/block/%s", disk.name);
    for (int i = 0; i < 20; i++) {  /* a disk taken out takes a moment */
        if (access(path, F_OK)) {
            uint64_t sum, blocks = known(&sum);
            SAY("gone %s serial=%s blocks=%llu sum=%llu\n", disk.name,
                disk.serial, (unsigned long long)blocks,
                (unsigned long long)sum);
            _exit(0);
        }
        usleep(100000);
    }
    disk.errors++;
    if (disk.errors <= SHOWN)
        SAY("BAD %s %s error place=%u: %s\n", disk.name, what, place,
            strerror(error));
}

static int read_place(unsigned place)
{
    if (pread(disk.fd, buffer, BLOCK, offset_of(place)) == BLOCK)
        return 1;
    failed("read", place);
    return 0;
}

static void check(unsigned place)
{
    const char *what;
    if (!disk.wanted[place] || !read_place(place))
        return;
    disk.reads++;
    what = fault(place);
    if (!what)
        return;
    disk.bad++;
    if (disk.bad <= SHOWN)
        SAY("BAD %s %s place=%u wanted=%llu found=%llu\n", disk.name, what,
            place, (unsigned long long)disk.wanted[place],
            (unsigned long long)buffer[W_SEQ]);
}

static void write_place(unsigned place)
{
    double began = now(), took;
    fill(place, ++disk.seq);
    if (pwrite(disk.fd, buffer, BLOCK, offset_of(place)) == BLOCK) {
        disk.wanted[place] = disk.seq;
    } else {
        disk.wanted[place] = 0;  /* the old one or the new one: unknown */
        failed("write", place);
    }
    took = now() - began;
    if (took > disk.worst)
        disk.worst = took;
}

/* The blocks that are this disk's by their identity are what it has. */
struct there { uint64_t torn, stray, total, whose; };

static struct there take_up(void)
{
    struct there there = {0};
    disk.seq = 0;
    memset(disk.wanted, 0, sizeof disk.wanted);
    for (unsigned i = 0; i < PLACES; i++) {
        const char *what;
        if (!read_place(i))
            continue;
        what = fault(i);
        if (!what || !strcmp(what, "early")) {
            disk.wanted[i] = buffer[W_SEQ];
            if (disk.seq < buffer[W_SEQ])
                disk.seq = buffer[W_SEQ], there.total = buffer[W_TOTAL];
        } else if (!strcmp(what, "torn")) {
            there.torn++;
        } else if (!strcmp(what, "stray")) {
            there.stray++;
            there.whose = buffer[W_DISK];
        }
    }
    return there;
}

static void tell(const char *kind, const struct there *there)
{
    uint64_t sum, blocks = known(&sum);
    SAY("%s %s serial=%s blocks=%llu sum=%llu seq=%llu torn=%llu "
        "stray=%llu\n", kind, disk.name, disk.serial,
        (unsigned long long)blocks, (unsigned long long)sum,
        (unsigned long long)disk.seq, (unsigned long long)there->torn,
        (unsigned long long)there->stray);
    if (sum != there->total) {
        disk.bad++;
        SAY("BAD %s lost: the newest block knows of a sum of %llu, found "
            "%llu\n", disk.name, (unsigned long long)there->total,
            (unsigned long long)sum);
    }
}

/* Blocks of an earlier run on this disk: take them up. Those of another disk
 * alone: this one is its copy. Say what that has, and begin anew. */
static void adopt(void)
{
    struct there there = take_up();
    disk.bad = there.torn;
    if (!disk.seq && there.stray) {
        uint64_t own = disk.id;
        disk.id = there.whose;
        struct there copied = take_up();
        tell("copy", &copied);
        disk.id = own;
        disk.seq = 0;
        memset(disk.wanted, 0, sizeof disk.wanted);
    }
    tell("found", &there);
}

static void open_disk(const char *name)
{
    char path[64];
    uint64_t size = 0;
    ssize_t n;
    int fd;
    snprintf(disk.name, sizeof disk.name, "%.31s", name);
    snprintf(path, sizeof path, "/sys/block/%s/serial", name);
    fd = open(path, O_RDONLY);
    n = fd < 0 ? 0 : read(fd, disk.serial, sizeof disk.serial - 1);
    disk.serial[n < 0 ? 0 : n] = 0;
    disk.serial[strcspn(disk.serial, "\n")] = 0;
    close(fd);
    for (const char *c = disk.serial; *c; c++)
        disk.id = disk.id * 131 + (unsigned char)*c;
    snprintf(path, sizeof path, "/dev/%s", name);
    disk.fd = open(path, O_RDWR | O_DIRECT | O_SYNC);
    if (disk.fd < 0 || ioctl(disk.fd, BLKGETSIZE64, &size)) {
        SAY("BAD %s cannot be opened: %s\n", name, strerror(errno));
        _exit(1);
    }
    if (pread(disk.fd, buffer, BLOCK, 0) == BLOCK
        && ((unsigned char *)buffer)[510] == 0x55
        && ((unsigned char *)buffer)[511] == 0xaa)
        disk.start = RESERVED;
    if (size < disk.start + (uint64_t)PLACES * BLOCK) {
        SAY("skipped %s: too small\n", name);
        for (;;)
            pause();
    }
    disk.last = (size - BLOCK) / BLOCK * BLOCK;
    disk.stride = (disk.last - disk.start) / (PLACES - 1) / BLOCK * BLOCK;
}

static void report(void)
{
    uint64_t sum, blocks = known(&sum);
    SAY("guest %s serial=%s up=%.1f seq=%llu reads=%llu sweeps=%llu "
        "blocks=%llu bad=%llu errors=%llu worst_ms=%.0f\n", disk.name,
        disk.serial, now(), (unsigned long long)disk.seq,
        (unsigned long long)disk.reads, (unsigned long long)disk.sweeps,
        (unsigned long long)blocks, (unsigned long long)disk.bad,
        (unsigned long long)disk.errors, disk.worst * 1000);
    disk.worst = 0;
}

static void exercise(const char *name)
{
    uint64_t state = (uint64_t)(now() * 1e9) | 1;
    double reported;
    open_disk(name);
    adopt();
    for (reported = now();;) {
        write_place(chance(&state) % PLACES);
        check(chance(&state) % PLACES);
        for (int i = 0; i < SWEEP; i++) {
            check(disk.sweep_at++);
            if (disk.sweep_at == PLACES)
                disk.sweep_at = 0, disk.sweeps++;
        }
        if (now() - reported >= REPORT_S) {
            reported = now();
            report();
        }
        usleep(PAUSE_US);
    }
}

static void load_modules(void)
{
    char line[128];
    FILE *order = fopen("/modules/order", "r");
    while (order && fgets(line, sizeof line, order)) {
        int fd;
        line[strcspn(line, "\n")] = 0;
        fd = open(line, O_RDONLY);
        if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
            SAY("BAD module %s: %s\n", line, strerror(errno));
        close(fd);
    }
}

static struct { char name[32]; pid_t pid; } running[32];
#define SLOTS (int)(sizeof running / sizeof *running)

static int slot_of(const char *name)
{
    int empty = -1;
    for (int i = 0; i < SLOTS; i++) {
        if (running[i].pid && !strcmp(running[i].name, name))
            return -1;
        if (!running[i].pid && empty < 0)
            empty = i;
    }
    return empty;
}

static void look_for_disks(void)
{
    struct dirent *entry;
    DIR *all = opendir("/sys/block");
    while (all && (entry = readdir(all))) {
        int slot;
        if (strncmp(entry->d_name, "vd", 2))
            continue;
        slot = slot_of(entry->d_name);
        if (slot < 0)
            continue;
        snprintf(running[slot].name, sizeof running[slot].name, "%.31s",
                 entry->d_name);
        running[slot].pid = fork();
        if (!running[slot].pid)
            exercise(running[slot].name);
        if (running[slot].pid < 0)
            running[slot].pid = 0;
    }
    if (all)
        closedir(all);
}

int main(void)
{
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(console, fd);
    buffer = aligned_alloc(BLOCK, BLOCK);
    load_modules();
    SAY("guest is up\n");
    for (;;) {
        pid_t pid;
        look_for_disks();
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            for (int i = 0; i < SLOTS; i++)
                if (running[i].pid == pid)
                    running[i].pid = 0;
        sleep(1);
    }
}
