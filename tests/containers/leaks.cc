// C++ objects and containers, leaked, possibly leaked and held; what operator new gave away for each, and what is to be
// said of it, goes to the truth's file. As testprogs/leakcases.h: addresses are kept as complements, and what makers
// leave in the stack and in registers is overwritten.
//
// leaks [--truth FILE] [--abort] [--healthy]; healthy: all is held.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <sys/prctl.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>

struct Told {
    const char *name, *state, *role;
    uintptr_t key;
    size_t asked, usable;
};
static Told told[1024];
static size_t told_count;
static void *volatile kept[1024];
static bool healthy, noting;

// What the blocks are to be that are made next: the first, and all that follow it.
static const char *name, *first_state, *first_role, *state, *role;

static void expect(const char *what, const char *first, const char *its_role, const char *next, const char *next_role)
{
    name = what, first_state = healthy ? "reached" : first, first_role = healthy ? "" : its_role;
    state = healthy ? "reached" : next, role = healthy ? "" : next_role;
    noting = true;
}

void *operator new(size_t size)
{
    void *block = malloc(size);
    memset(block, 0, malloc_usable_size(block));
    if (noting && told_count < 1024) {
        if (healthy)
            kept[told_count] = block;
        told[told_count++] = {name, first_state, first_role, ~uintptr_t(block), size, malloc_usable_size(block)};
        first_state = state, first_role = role;
    }
    return block;
}
void *operator new[](size_t size) { return operator new(size); }
void operator delete(void *block) noexcept { free(block); }
void operator delete(void *block, size_t) noexcept { free(block); }
void operator delete[](void *block) noexcept { free(block); }
void operator delete[](void *block, size_t) noexcept { free(block); }

#define LEAKED "leaked"
#define MAYBE "possibly leaked"
#define REACHED "reached"
#define ROOT "leak root"
#define INDIRECT "indirect"

struct Base {
    virtual ~Base() {}
    long one = 1;
};
struct Other {
    virtual ~Other() {}
    long two = 2;
};
struct Both : Base, Other {
    void *more = nullptr;
};
struct Counted {
    ~Counted() { value = 0; }
    long value = 3;
};
struct Node {
    std::shared_ptr<Node> next;
    std::unique_ptr<int> number;
};

static Other *volatile second_base;
static Base *volatile first_base;
static Counted *volatile counted;
static std::vector<std::string> *volatile vector_held;
static std::map<int, std::string> map_held;
static std::unordered_map<std::string, int> table_held;
static std::list<int> list_held;
static std::deque<int> deque_held;
static std::unique_ptr<Both> unique_held;
static std::shared_ptr<Node> shared_held;
static std::function<int()> function_held;
static const char *const long_text = "a text that is too long to lie in the string itself";

static void classes()
{
    expect("object", LEAKED, ROOT, LEAKED, INDIRECT);
    auto *object = new Both;
    object->more = new Counted;
    expect("first base", REACHED, "", REACHED, "");
    first_base = new Both;
    expect("second base", MAYBE, "", MAYBE, "");
    second_base = new Both;
    static_cast<Both *>(second_base)->more = new Counted;
    expect("array with a cookie", MAYBE, "", MAYBE, "");
    counted = new Counted[5];
    expect("unique", REACHED, "", REACHED, "");
    unique_held.reset(new Both);
    unique_held->more = new Counted;
    expect("function", REACHED, "", REACHED, "");
    long numbers[8] = {};
    function_held = [numbers] { return int(numbers[0]); };
}

static void sequences()
{
    expect("vector", LEAKED, ROOT, LEAKED, INDIRECT);
    auto *vector = new std::vector<std::string>;
    vector->reserve(3);
    for (int i = 0; i < 3; i++)
        vector->emplace_back(long_text);
    expect("string", LEAKED, ROOT, LEAKED, INDIRECT);
    new std::string(long_text);
    expect("short string", LEAKED, ROOT, LEAKED, INDIRECT);
    new std::string("short"); // which points at itself
    expect("list", LEAKED, "first cycle", LEAKED, "first cycle");
    new std::list<int>{1, 2, 3};
    expect("deque", LEAKED, ROOT, LEAKED, INDIRECT);
    new std::deque<int>(300);
    expect("vector held", REACHED, "", REACHED, "");
    auto *kept_vector = new std::vector<std::string>;
    kept_vector->reserve(2);
    kept_vector->emplace_back(long_text);
    vector_held = kept_vector;
    expect("list held", REACHED, "", REACHED, "");
    list_held.assign({1, 2, 3});
    expect("deque held", REACHED, "", REACHED, "");
    deque_held.resize(300);
}

static void tables()
{
    expect("map", LEAKED, "second cycle", LEAKED, "second cycle"); // nodes lead to the header in the map, by its middle
    new std::map<int, int>{{1, 1}, {2, 2}, {3, 3}};
    expect("table", LEAKED, ROOT, LEAKED, INDIRECT);
    auto *table = new std::unordered_map<int, int>;
    table->max_load_factor(100); // one bucket, in the table itself
    for (int i = 0; i < 4; i++)
        (*table)[i] = i;
    expect("map held", REACHED, "", REACHED, "");
    map_held[1] = long_text;
    map_held[2] = long_text;
    expect("table held", REACHED, "", REACHED, "");
    for (int i = 0; i < 20; i++)
        table_held[std::string(long_text) + std::to_string(i)] = i;
}

static void pointers()
{
    expect("shared cycle", LEAKED, "third cycle", LEAKED, "third cycle");
    auto one = std::make_shared<Node>(), two = std::make_shared<Node>();
    one->next = two;
    two->next = one;
    expect("below the shared cycle", LEAKED, INDIRECT, LEAKED, INDIRECT);
    one->number.reset(new int(1));
    expect("shared held", REACHED, "", REACHED, "");
    shared_held = std::make_shared<Node>();
    shared_held->next = std::make_shared<Node>();
    shared_held->next->number.reset(new int(2));
    noting = false;
}

static __attribute__((noinline)) void scrub()
{
    char room[64 * 1024];
    memset(room, 0, sizeof room);
    __asm__ volatile("" ::"r"(room) : "memory");
#ifdef __x86_64__
    __asm__ volatile("xor %%eax,%%eax\n xor %%ecx,%%ecx\n xor %%edx,%%edx\n xor %%esi,%%esi\n xor %%edi,%%edi\n"
                     "xor %%r8d,%%r8d\n xor %%r9d,%%r9d\n xor %%r10d,%%r10d\n xor %%r11d,%%r11d\n" ::
                         : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
#endif
}

static __attribute__((noinline)) void run(void (*maker)()) { maker(); }

static __attribute__((noinline)) void tell(const char *file)
{
    static char buffer[1 << 16];
    std::string part = std::string(file) + ".part";
    FILE *out = fopen(part.c_str(), "w");
    setvbuf(out, buffer, _IOFBF, sizeof buffer);
    fprintf(out, "{\"program\": \"leaks.cc\", \"healthy\": %s, \"pid\": %d, \"word\": %zu, \"details\": {\"blocks\": [",
            healthy ? "true" : "false", getpid(), sizeof(void *));
    for (size_t i = 0; i < told_count; i++)
        fprintf(out,
                "%s\n{\"name\": \"%s %zu\", \"address\": \"%#zx\", \"asked\": %zu, \"usable\": %zu, \"state\": \"%s\", "
                "\"role\": \"%s\", \"clear\": \"0x0\"}",
                i ? "," : "", told[i].name, i, size_t(~told[i].key), told[i].asked, told[i].usable, told[i].state,
                told[i].role);
    fprintf(out, "], \"cached\": []}}\n");
    fclose(out);
    rename(part.c_str(), file);
}

int main(int argc, char **argv)
{
    const char *file = nullptr;
    bool aborts = false;
    for (int i = 1; i < argc; i++) {
        healthy |= !strcmp(argv[i], "--healthy");
        aborts |= !strcmp(argv[i], "--abort");
        if (!strcmp(argv[i], "--truth") && i + 1 < argc)
            file = argv[i + 1];
    }
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    for (void (*maker)() : {classes, sequences, tables, pointers}) {
        run(maker);
        scrub();
    }
    if (file)
        tell(file);
    scrub();
    if (write(1, "READY\n", 6) == 6 && aborts)
        abort();
    for (;;)
        pause();
}
