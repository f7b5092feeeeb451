/* Two waves of allocation; the first is freed below the second, and brk shrinks only from the top (Venice).
 * The healthy twin frees the upper wave, which goes back to the system.
 *
 * --first BYTES (72 MiB), --second BYTES (8 MiB)
 */
#define LEDGER_SLOTS (1u << 17)
#include "truth.h"

#define MAX_BLOCKS 32768

struct wave {
    void *blocks[MAX_BLOCKS];
    size_t count, bytes;
};

static struct wave first, second;

static void allocate(struct wave *wave, size_t bytes, size_t size, int fill)
{
    while (wave->bytes < bytes && wave->count < MAX_BLOCKS) {
        void *block = malloc(size + wave->count % 5 * 256);
        memset(block, fill, malloc_usable_size(block));
        wave->bytes += malloc_usable_size(block);
        wave->blocks[wave->count++] = block;
    }
}

static void release(struct wave *wave)
{
    for (size_t i = 0; i < wave->count; i++)
        free(wave->blocks[i]);
}

static void json_wave(const char *key, struct wave *wave)
{
    json_open(key, '{');
    json_number("blocks", wave->count);
    json_number("bytes", wave->bytes);
    json_address("first", wave->blocks[0]);
    json_address("last", wave->blocks[wave->count - 1]);
    json_close('}');
}

static void details(void)
{
    json_wave("first_wave", &first);
    json_wave("second_wave", &second);
    json_text("freed", healthy ? "second" : "first");
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "two_waves", 1);
    allocate(&first, number_option("first", 72 * MIB), 3000, 0x31);
    allocate(&second, number_option("second", 8 * MIB), 2000, 0x32);
    release(healthy ? &second : &first);
    truth_end(details);
}
