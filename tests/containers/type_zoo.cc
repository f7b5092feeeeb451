// Blocks of many types, and what each of them is, written as JSON to the file given: {"blocks": {"0x…": "type"}, …}.
//
// Every block that operator new or make() hands out is noted under the label that is set at that moment; "" is what
// nobody can know. It stops by SIGTRAP: a stripped program has no name for a breakpoint.

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

struct note {
  uintptr_t hidden;  // complement: no search for pointers finds it here
  const char *label;
};
static note notes[1 << 15];
static size_t noted;
static const char *label = "";

static void *keep(void *block) {
  if (noted < sizeof notes / sizeof *notes) notes[noted++] = {~reinterpret_cast<uintptr_t>(block), label};
  return block;
}

static void forget(void *block) {
  for (size_t at = 0; at < noted; ++at)
    if (notes[at].hidden == ~reinterpret_cast<uintptr_t>(block)) notes[at--] = notes[--noted];
}

static void *make(size_t size) { return keep(malloc(size)); }

void *operator new(size_t size) { return make(size); }
void *operator new[](size_t size) { return make(size); }
void operator delete(void *block) noexcept {
  forget(block);
  free(block);
}
void operator delete(void *block, size_t) noexcept { operator delete(block); }
void operator delete[](void *block) noexcept { operator delete(block); }
void operator delete[](void *block, size_t) noexcept { operator delete(block); }

struct Shape {
  virtual ~Shape() {}
  virtual double area() const = 0;
};
struct Circle : Shape {
  double radius = 1;
  double area() const override { return radius; }
};
struct Square : Shape {
  double side = 2, angle = 0, colour = 3;
  double area() const override { return side; }
};
struct Named {
  long number = 5;
  virtual ~Named() {}
  virtual long name() const { return number; }
};
struct Tagged : Shape, Named {  // a pointer to its second base leads into the middle
  double area() const override { return 0; }
};
namespace shop {
template <class T>
struct Widget {
  virtual ~Widget() {}
  virtual T get() const { return value; }
  T value = {};
  void *opaque = nullptr;
};
namespace {
struct Hidden {
  virtual ~Hidden() {}
  long secret = 1;
};
}  // namespace
}  // namespace shop

struct Session {
  int id;
  std::string name;
  Session *next;
};
struct Header {  // what others begin with, as in C
  long kind;
  Header *next;
};
struct Big {
  Header header;
  char payload[200];
};
struct Bigger {
  Header header;
  long more;  // in the room that malloc leaves behind a Header
};
struct Flexible {
  long length;
  Session *owner;
  char bytes[];
};
struct Link {
  Link *next, *prev;
};
struct Linked {  // linked by its first member, which has a type of its own
  Link link;
  long value;
};
struct Other {
  double numbers[6];
};
struct Choice {
  long which;
  union {
    Session *session;
    Header *header;
    void *any;
  };
};
struct Pod {
  long a, b, c, d;
};
struct OnlyLocal {
  OnlyLocal *self;
  long values[8];
};
struct Holder {
  static Session *kept;
  std::unique_ptr<shop::Widget<int>> widget;
  std::shared_ptr<Session> shared;
  Pod *pods;
  Session **table;
  Session *pair[2];
  Choice *choice;
};
Session *Holder::kept;

Shape *shapes[4];
Named *second_base;
Circle *circles;
shop::Hidden *hidden;
Holder *holder;
Session *sessions, *array_of_sessions;
Header *headers;
Flexible *flexible;
Linked *linked;
int *numbers;
Session *stale;
Other *other;
char *text;
void *nothing, *wide, *empty, *noise, *stale_text;

std::vector<int> plain_vector;
std::vector<Session> session_vector;
std::vector<Session *> pointer_vector;
std::vector<Circle> circle_vector;
std::vector<std::string> string_vector;
std::list<int> int_list;
std::forward_list<long> forward;
std::map<int, Session> session_map;
std::set<std::string> string_set;
std::unordered_map<std::string, int> name_table;
std::unordered_map<int, Session *> id_table;
std::deque<int> queue;
std::string long_string;
std::map<int, std::vector<Pod>> nested;
std::list<int> *list_in_block;

template <class T>
static T *as(const char *name, T *(*build)()) {
  label = name;
  T *made = build();
  label = "";
  return made;
}

// A string whose text is in a block of its own, or is not.
static std::string long_text(int number) {
  label = "std::string text";
  std::string made = "a text that is longer than a string holds in itself, number " + std::to_string(number);
  std::string fresh(made.begin(), made.end());
  label = "";
  return fresh;
}

static Session *new_session(int id, Session *next) {
  std::string name = id % 2 ? long_text(id) : "short";
  label = "Session";
  Session *made = new Session{id, std::move(name), next};
  label = "";
  return made;
}

static void make_classes() {
  shapes[0] = as<Shape>("Circle", [] { return static_cast<Shape *>(new Circle); });
  shapes[1] = as<Shape>("Square", [] { return static_cast<Shape *>(new Square); });
  shapes[2] = as<Shape>("Tagged", [] { return static_cast<Shape *>(new Tagged); });
  second_base = as<Named>("Tagged", [] { return static_cast<Named *>(new Tagged); });
  circles = as<Circle>("Circle[]", [] { return new Circle[5]; });
  hidden = as<shop::Hidden>("shop::(anonymous namespace)::Hidden", [] { return new shop::Hidden; });
  holder = as<Holder>("Holder", [] { return new Holder(); });
  label = "shop::Widget<int>";
  holder->widget.reset(new shop::Widget<int>);
  label = "std::make_shared<Session> object";
  holder->shared = std::make_shared<Session>();
  label = "";
  holder->shared->next = new_session(1001, nullptr);
}

static void make_structures() {
  for (int id = 0; id < 3000; ++id) sessions = new_session(id, sessions);
  Holder::kept = new_session(5001, nullptr);
  holder->pods = as<Pod>("Pod[]", [] { return new Pod[10](); });
  holder->table = as<Session *>("Session *[]", [] { return new Session *[40](); });
  for (int at = 0; at < 40; at += 2) holder->table[at] = new_session(at, nullptr);
  holder->pair[1] = new_session(7, nullptr);
  holder->choice = as<Choice>("Choice", [] { return new Choice(); });
  holder->choice->session = new_session(8, nullptr);
  label = "Session[]";
  array_of_sessions = new Session[6]();
  label = "";
  array_of_sessions[4].next = new_session(9, nullptr);
  label = "Big";
  for (int at = 0; at < 5; ++at) {
    Big *big = new Big();
    big->header.next = headers;
    headers = &big->header;
  }
  label = "Bigger";
  Bigger *bigger = new Bigger();
  bigger->header.next = headers;
  headers = &bigger->header;
  label = "Flexible";
  flexible = static_cast<Flexible *>(make(sizeof(Flexible) + 100));
  label = "";
  flexible->owner = new_session(10, nullptr);
  label = "Linked";
  linked = new Linked();
  Linked *more = new Linked();
  linked->link = {&more->link, &more->link};
  more->link = {&linked->link, &linked->link};
  label = "int[]";
  numbers = new int[100]();
  label = "";
}

static void make_contents() {
  label = "Other";
  other = new Other();
  label = "";
  stale = reinterpret_cast<Session *>(other);  // a dangling pointer would say so
  label = "C string";
  text = static_cast<char *>(make(40));
  strcpy(text, "a line of text\n");
  stale_text = make(sizeof(Session));
  memset(stale_text, 0, sizeof(Session));
  strcpy(static_cast<char *>(stale_text), "text where an object was before");
  array_of_sessions[5].next = static_cast<Session *>(stale_text);
  label = "UTF-16 text";
  wide = make(64);
  memset(wide, 0, 64);
  memcpy(wide, u"sixteen bits", 24);
  label = "zeros";
  empty = make(500);
  memset(empty, 0, 500);
  label = "";
  noise = make(300);
  for (int at = 0; at < 300; ++at) static_cast<unsigned char *>(noise)[at] = 0x80 | (at * 37 + 11);
  nothing = make(48);
  memset(nothing, 0x91, 48);
}

static void make_containers() {
  label = "std::vector<int> buffer";
  plain_vector.assign(50, 7);
  label = "std::vector<Session> buffer";
  session_vector.reserve(20);
  label = "";
  for (int at = 0; at < 10; ++at) session_vector.push_back({at, long_text(at), nullptr});
  session_vector[3].next = new_session(11, nullptr);
  label = "std::vector<Session*> buffer";
  pointer_vector.reserve(8);
  label = "";
  for (int at = 0; at < 5; ++at) pointer_vector.push_back(new_session(at, nullptr));
  label = "std::vector<Circle> buffer";
  circle_vector.reserve(9);
  circle_vector.resize(1);
  label = "std::vector<std::string> buffer";
  string_vector.reserve(4);
  label = "";
  for (int at = 0; at < 4; ++at) string_vector.push_back(long_text(at));
  label = "std::list<int> node";
  for (int at = 0; at < 500; ++at) int_list.push_back(at);
  label = "std::list<int>";
  list_in_block = new std::list<int>();
  label = "std::list<int> node";
  for (int at = 0; at < 20; ++at) list_in_block->push_back(at);
  label = "std::forward_list<long> node";
  for (int at = 0; at < 20; ++at) forward.push_front(at);
  label = "";
  for (int at = 0; at < 60; ++at) {
    std::string name = long_text(at);
    label = "std::map<int, Session> node";
    session_map.emplace(at, Session{at, std::move(name), nullptr});
    label = "";
  }
  session_map.at(30).next = new_session(12, nullptr);
  for (int at = 0; at < 30; ++at) {
    std::string name = long_text(at);
    label = "std::set<std::string> node";
    string_set.insert(std::move(name));
    label = "";
  }
  label = "std::unordered_map<std::string, int> buckets";
  name_table.reserve(200);
  for (int at = 0; at < 100; ++at) {
    std::string name = long_text(at);
    label = "std::unordered_map<std::string, int> node";
    name_table.emplace(std::move(name), at);
    label = "";
  }
  label = "std::unordered_map<int, Session*> buckets";
  id_table.reserve(50);
  for (int at = 0; at < 25; ++at) {
    Session *session = new_session(at, nullptr);
    label = "std::unordered_map<int, Session*> node";
    id_table.emplace(at, session);
    label = "";
  }
  long_string = long_text(1);
  for (int at = 0; at < 5; ++at) {
    label = "std::map<int, std::vector<Pod>> node";
    std::vector<Pod> &pods = nested[at];
    label = "std::vector<Pod> buffer";
    pods.assign(6, Pod());
    label = "";
  }
}

static void put(int file, const char *words) {
  if (write(file, words, strlen(words)) < 0) _exit(3);
}

static void tell(const char *path) {
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  char line[256];
  put(file, "{\"blocks\": {");
  for (size_t at = 0; at < noted; ++at) {
    snprintf(line, sizeof line, "%s\n\"0x%lx\": \"%s\"", at ? "," : "", static_cast<unsigned long>(~notes[at].hidden),
             notes[at].label);
    put(file, line);
  }
  put(file, "}}\n");
  close(file);
}

__attribute__((noinline)) static void stop(OnlyLocal *local, const char *path) {
  label = "";
  tell(path);
  raise(SIGTRAP);
  local->values[0] += 1;
}

int main(int, char **arguments) {
  make_classes();
  make_structures();
  make_contents();
  make_containers();
  label = "OnlyLocal";
  OnlyLocal *local = new OnlyLocal();
  local->self = local;
  static Session *in_function;
  in_function = new_session(13, nullptr);
  stop(local, arguments[1]);
  return in_function->id + static_cast<int>(local->values[0]);
}
