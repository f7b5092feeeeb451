/* Reads a file once, word by word, as every command on a core must at least: floor FILE. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
    struct stat status;
    int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &status) < 0)
        return perror("floor"), 2;
    uint64_t *words = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0), sum = 0;
    if (words == MAP_FAILED)
        return perror("floor"), 2;
    for (off_t at = 0; at < status.st_size / 8; at++)
        sum += words[at];
    printf("%llx\n", (unsigned long long)sum);
    return 0;
}
