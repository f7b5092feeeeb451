/* Blocks that only instructions keep: their addresses are immediates, at odd places of executable memory that the
 * program wrote: a mapping that can be written, one that no longer can, and one of a memfd. What is left of these
 * mappings is code of libraries, and random bytes. Some blocks are kept by an address in the midst of them, as the
 * operand of movabs: these are possibly leaked (x86-64 alone). Others are lost; the healthy twin has neither.
 *
 * --blocks N (3000), --code BYTES of each mapping (2097152), --file FILE: whose bytes are the code, instead
 */
#define _GNU_SOURCE
#include "truth.h"

#include <sys/mman.h>

#include "stated.h"

#define MAPPINGS 3
#define SPACE 24 /* bytes from one instruction to the next, at least */
#define LOST 200
#define INNER 40

static size_t blocks, code_size;
static unsigned char *code[MAPPINGS];
static size_t written[MAPPINGS]; /* bytes of immediates in each */

static unsigned next_random(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (unsigned)(state >> 32);
}

static void fill(unsigned char *to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (unsigned char)next_random();
}

static size_t copy_file(const char *path, unsigned char *to, size_t size, off_t from)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : pread(file, to, size, from);
    if (file >= 0)
        close(file);
    return got > 0 ? (size_t)got : 0;
}

static void fill_with_code(unsigned char *to, size_t size, off_t from)
{
    const char *file = text_option("file", "");
    size_t done = copy_file(*file ? file : "/proc/self/exe", to, size, *file ? from : 0);
    if (!*file)
        done += copy_file("/lib/x86_64-linux-gnu/libc.so.6", to + done, size - done, 0x28000);
    fill(to + done, size - done);
}

/* mov $address,%reg at an odd place: REX.W B8+r imm64, or nop and B8+r imm32. */
static void write_instruction(size_t mapping, uintptr_t hidden, size_t into)
{
    uintptr_t address = ~hidden + into;
    unsigned char *to = code[mapping] + written[mapping];
    size_t odd = 1 + 2 * (next_random() % 3);
    memset(to, 0x90, SPACE);
    to[odd] = sizeof address == 8 ? 0x48 : 0x90;
    to[odd + 1] = (unsigned char)(0xb8 + next_random() % 8);
    memcpy(to + odd + 2, &address, sizeof address);
    written[mapping] += SPACE;
}

static void *map(size_t mapping, int memfd)
{
    int shared = mapping == 2 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *place = mmap(NULL, code_size, PROT_READ | PROT_WRITE | PROT_EXEC, shared, memfd, 0);
    if (place == MAP_FAILED)
        give_up("jit_immediates: no executable memory");
    return place;
}

static __attribute__((noinline)) void map_code(void)
{
    int memfd = memfd_create("jit", MFD_CLOEXEC);
    if (memfd < 0 || ftruncate(memfd, (off_t)code_size))
        give_up("jit_immediates: no memfd");
    for (size_t i = 0; i < MAPPINGS; i++) {
        code[i] = map(i, i == 2 ? memfd : -1);
        fill_with_code(code[i], code_size, (off_t)(i * code_size));
    }
    close(memfd);
}

static __attribute__((noinline)) void make_blocks(void)
{
    for (size_t i = 0; i < blocks; i++)
        write_instruction(i % MAPPINGS, ~(uintptr_t)calloc(1, 24 + i % 7 * 16), 0);
    for (int i = 0; i < LOST && !healthy; i++)
        state_block("lost", calloc(1, 200), 200, "leaked", "leak root");
    for (int i = 0; i < INNER && !healthy && sizeof(void *) == 8; i++) {
        void *block = calloc(1, 300);
        state_block("inner", block, 300, "possibly leaked", "");
        write_instruction(1, ~(uintptr_t)block, 8 + 8 * (size_t)(i % 30));
    }
}

static void details(void)
{
    json_stated();
    json_number("code", MAPPINGS * code_size);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "jit_immediates", 1);
    blocks = number_option("blocks", 3000);
    code_size = number_option("code", 2 * MIB);
    map_code();
    make_blocks();
    if (mprotect(code[1], code_size, PROT_READ | PROT_EXEC) || mprotect(code[2], code_size, PROT_READ | PROT_EXEC))
        give_up("jit_immediates: mprotect");
    take_malloc_info();
    write_truth(details);
    scrub_stack();
    ready();
}
