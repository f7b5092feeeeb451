// Containers of libstdc++, each with what its own interface says of it, written as JSON to the file given.
//
// Names end in _empty, _one, _many; damaged_… and garbage_… are no sound containers and have no truth.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <forward_list>
#include <list>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace shop {
struct item {
  int price;
  std::string name;
  long double weight;  // aligned to more than a word
};
}  // namespace shop

struct weak_hash {  // may throw, for all the compiler knows: the node keeps what it gives
  std::size_t operator()(const std::string &key) const { return key.size() % 2 ? 7 : 1000003; }
};

std::list<int> list_empty, list_one, list_many;
std::list<shop::item> items_many;
std::forward_list<long> forward_empty, forward_one, forward_many;
std::forward_list<shop::item> forward_items_many;
std::map<int, std::string> map_empty, map_one, map_many;
std::set<std::string> set_many;
std::multimap<int, shop::item> multimap_many;
std::multiset<short> multiset_many;
std::unordered_map<std::string, int> umap_empty, umap_one, umap_many;
std::unordered_map<int, int> plain_umap_empty, plain_umap_one, plain_umap_many;
std::unordered_set<std::string> uset_many;
std::unordered_multimap<int, long> umultimap_many;
std::unordered_multiset<std::string> umultiset_many;
std::unordered_map<std::string, int, weak_hash> weak_umap_many;
typedef std::map<int, int> price_table;
price_table typedef_map_many;
struct shop_floor {
  std::map<int, int> shelves;
} floor_of_many;

std::list<int> damaged_list;
std::forward_list<int> damaged_forward;
std::map<int, int> damaged_map, cyclic_map;
std::unordered_map<std::string, int> damaged_umap, cyclic_umap;

template <class T>
struct garbage {
  alignas(T) unsigned char bytes[sizeof(T)];
  T *object() { return reinterpret_cast<T *>(bytes); }
};
garbage<std::list<int>> list_bytes;
garbage<std::map<int, int>> map_bytes;
garbage<std::unordered_map<std::string, int>> umap_bytes;
std::list<int> *garbage_list;
std::map<int, int> *garbage_map;
std::unordered_map<std::string, int> *garbage_umap;

static FILE *out;
static const char *between = "";

template <class C>
static void say_elements(const char *name, const C &container, std::size_t size) {
  fprintf(out, "%s\n  \"%s\": {\"size\": %zu, \"elements\": [", between, name, size);
  between = ",";
  const char *comma = "";
  for (const auto &element : container) {
    fprintf(out, "%s\"%p\"", comma, static_cast<const void *>(&element));
    comma = ", ";
  }
  fprintf(out, "]");
}

template <class C>
static void say(const char *name, const C &container) {
  say_elements(name, container, container.size());
  fprintf(out, "}");
}

template <class T>
static void say(const char *name, const std::forward_list<T> &container) {
  std::size_t size = 0;
  for (auto &element : container) size += sizeof(element) != 0;
  say_elements(name, container, size);
  fprintf(out, "}");
}

template <class C>
static void say_bins(const char *name, const C &container) {
  say_elements(name, container, container.size());
  fprintf(out, ", \"bins\": [");
  for (std::size_t bin = 0; bin < container.bucket_count(); ++bin)
    fprintf(out, "%s%zu", bin ? ", " : "", container.bucket_size(bin));
  fprintf(out, "]}");
}

#define SAY(container) say(#container, container)
#define SAY_BINS(container) say_bins(#container, container)

static void fill() {
  char text[32];
  list_one.push_back(1);
  forward_one.push_front(1);
  map_one[7] = "seven";
  umap_one["one"] = 1;
  plain_umap_one[1] = 1;
  for (int number = 0; number < 1000; ++number) {
    int mixed = number * 7919 % 1000;
    snprintf(text, sizeof text, "key %d, longer than fits", mixed);
    list_many.push_back(mixed);
    items_many.push_front({mixed, text, 1.5L});
    forward_many.push_front(mixed);
    forward_items_many.push_front({mixed, text, 1.5L});
    map_many[mixed] = text;
    set_many.insert(text);
    multimap_many.emplace(mixed % 10, shop::item{mixed, text, 1.5L});
    multiset_many.insert(mixed % 3);
    umap_many[text] = number;
    plain_umap_many[mixed * 64] = number;
    uset_many.insert(text);
    umultimap_many.emplace(mixed % 50, number);
    umultiset_many.insert(mixed % 2 ? text : "the same");
    weak_umap_many[text + number % 10] = number;
    typedef_map_many[mixed] = number;
    floor_of_many.shelves[number] = mixed;
  }
}

// What a node's links are, by their place in it.
static void set_word(const void *element, long offset, const void *value) {
  std::memcpy(const_cast<char *>(static_cast<const char *>(element)) + offset, &value, sizeof value);
}

static void damage() {
  for (int number = 0; number < 100; ++number) {
    damaged_list.push_back(number);
    damaged_forward.push_front(number);
    damaged_map[number] = cyclic_map[number] = number;
    damaged_umap[std::to_string(number)] = cyclic_umap[std::to_string(number)] = number;
  }
  const long word = sizeof(void *);
  auto node = [word](const void *element, long words) { return static_cast<const char *>(element) - words * word; };
  // The fiftieth node of the list leads back to the tenth.
  set_word(&*std::next(damaged_list.begin(), 49), -2 * word, node(&*std::next(damaged_list.begin(), 9), 2));
  set_word(&*std::next(damaged_forward.begin(), 49), -word, reinterpret_cast<void *>(0xdead0000L));
  // A leaf's left link; the least key is one.
  set_word(&*damaged_map.begin(), -2 * word, reinterpret_cast<void *>(0xdead0000L));
  set_word(&*cyclic_map.begin(), -2 * word, node(&*cyclic_map.find(50), 4));
  set_word(&*std::next(damaged_umap.begin(), 49), -word, reinterpret_cast<void *>(0xdead0000L));
  set_word(&*std::next(cyclic_umap.begin(), 49), -word, node(&*std::next(cyclic_umap.begin(), 9), 1));
  std::memset(&list_bytes, 0xa5, sizeof list_bytes);
  std::memset(&map_bytes, 0xa5, sizeof map_bytes);
  std::memset(&umap_bytes, 0xa5, sizeof umap_bytes);
  garbage_list = list_bytes.object();
  garbage_map = map_bytes.object();
  garbage_umap = umap_bytes.object();
}

extern "C" void interesting() { asm volatile(""); }

int main(int, char **arguments) {
  fill();
  out = fopen(arguments[1], "w");
  fprintf(out, "{");
  SAY(list_empty);
  SAY(list_one);
  SAY(list_many);
  SAY(items_many);
  SAY(forward_empty);
  SAY(forward_one);
  SAY(forward_many);
  SAY(forward_items_many);
  SAY(map_empty);
  SAY(map_one);
  SAY(map_many);
  SAY(set_many);
  SAY(multimap_many);
  SAY(multiset_many);
  SAY(typedef_map_many);
  say("floor_of_many.shelves", floor_of_many.shelves);
  SAY_BINS(umap_empty);
  SAY_BINS(umap_one);
  SAY_BINS(umap_many);
  SAY_BINS(plain_umap_empty);
  SAY_BINS(plain_umap_one);
  SAY_BINS(plain_umap_many);
  SAY_BINS(uset_many);
  SAY_BINS(umultimap_many);
  SAY_BINS(umultiset_many);
  SAY_BINS(weak_umap_many);
  fprintf(out, "\n}\n");
  fclose(out);
  damage();
  interesting();
  _Exit(0);
}
