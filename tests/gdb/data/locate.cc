// C++ names and types for test_locate.py.
#include <cstdio>
#include <string>

namespace box {
struct Base {
    int base;
};
struct Second {
    long second;
};
struct Derived : Base, Second {
    static Derived shared;
    int own;
    virtual ~Derived() {}
};
Derived Derived::shared;
template <typename T> struct Holder {
    T held;
};
static Holder<int> hidden = {42};
namespace {
int unnamed = 43;
}
}  // namespace box

struct Plain {
    int plain;
};
struct Virtual : virtual Plain {
    int own;
};
Plain plain = {44};
Plain &reference = plain;
Virtual with_virtual;
struct Named {
    std::string name;
    Plain *plain;
} named;
template <typename T> struct Found {
    T found;
};
Found<std::string> tagged;  // its symbol is tagged[abi:cxx11]

extern "C" void ready() { __asm__ volatile(""); }

int main()
{
    std::printf("{\"shared\": %zu, \"hidden\": %zu, \"unnamed\": %zu, \"plain\": %zu, \"size\": %zu, ",
                (size_t) &box::Derived::shared, (size_t) &box::hidden, (size_t) &box::unnamed, (size_t) &plain,
                sizeof(box::Derived));
    box::Derived *at = &box::Derived::shared;
    std::printf("\"second\": %zu, \"base\": %zu, \"own\": %zu}\n", (size_t) (box::Second *) at - (size_t) at,
                (size_t) (box::Base *) at - (size_t) at, (size_t) &at->own - (size_t) at);
    std::fflush(stdout);
    ready();
    return box::hidden.held + with_virtual.own;
}
