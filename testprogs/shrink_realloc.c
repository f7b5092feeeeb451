/* A buffer is filled, then realloc'ed down to the little that was read, while later allocations already
 * lie above it (systemd-journald 248): a small live block follows by a hole of nearly the whole buffer.
 * The healthy twin copies the result into a block of its own size and frees the buffer.
 *
 * --buffers N (20), --buffer BYTES (4 MiB), --kept BYTES (4 KiB)
 */
#include "truth.h"

#define MAX_BUFFERS 256

static size_t buffers, buffer_bytes, kept_bytes;
static void *results[MAX_BUFFERS], *current;

static void *fresh_buffer(void)
{
    void *buffer = malloc(buffer_bytes);
    memset(buffer, 0x42, buffer_bytes);
    return buffer;
}

static void *shrink(void *buffer)
{
    if (!healthy)
        return realloc(buffer, kept_bytes);
    void *result = malloc(kept_bytes);
    memcpy(result, buffer, kept_bytes);
    free(buffer);
    return result;
}

static void details(void)
{
    json_number("buffers", buffers);
    json_number("buffer_bytes", buffer_bytes);
    json_number("kept_bytes", kept_bytes);
    json_addresses("results", results, buffers);
    json_address("current", current);
}

int main(int argc, char **argv)
{
    truth_begin(argc, argv, "shrink_realloc", 1);
    buffers = number_option("buffers", 20);
    buffer_bytes = number_option("buffer", 4 * MIB);
    kept_bytes = number_option("kept", 4 * KIB);
    if (buffers > MAX_BUFFERS)
        give_up("shrink_realloc: too many buffers");
    if (!mallopt(M_MMAP_THRESHOLD, 32 * MIB)) /* 32-bit glibc allows 512 KiB at most */
        mallopt(M_MMAP_MAX, 0);
    current = fresh_buffer();
    for (size_t i = 0; i < buffers; i++) {
        void *next = healthy ? NULL : fresh_buffer();
        results[i] = shrink(current);
        current = healthy ? fresh_buffer() : next;
    }
    truth_end(details);
}
