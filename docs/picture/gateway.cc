// The program of the picture: a gateway that forgets each login request which the next one replaces, until its
// session table is full and it dies of an exception that nobody catches.
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct Request {
    long id;
    std::string peer;
    std::vector<char> body;
    virtual ~Request() = default;
    Request(long id, size_t bytes) : id(id), peer("198.51.100.7, port " + std::to_string(id)), body(bytes, 'x') {}
};
struct LoginRequest : Request {
    using Request::Request;
};
struct Session {
    Request *last = nullptr;
};

static const size_t MOST_SESSIONS = 1000;
static std::map<long, Session> sessions;

static void serve(Request *request, long user) {
    if (!sessions.count(user) && sessions.size() >= MOST_SESSIONS)
        throw std::runtime_error("session table full");
    sessions[user].last = request;  // the one before is forgotten
}

int main() {
    for (long id = 0;; id++)
        serve(new LoginRequest(id, 600), id < 60000 ? id % MOST_SESSIONS : id);
}
