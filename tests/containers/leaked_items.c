/* Structures that are lost beside others of their types that are kept; the addresses of the lost ones, by type, are
 * written to the file that the only argument names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session {
    struct session *next;
    char *name;
    long hits;
    void (*ended)(struct session *);
};

struct request {
    struct session *from;
    char *path;
    struct request *next;
    int number;
};

struct numbers {
    long first, second, third, fourth;
};

static struct session *sessions;
static struct request *requests;
static struct numbers *numbers[32];
static FILE *truth;

static void on_end(struct session *ended) { ended->hits = 0; }

static struct session *make_session(int number)
{
    struct session *made = calloc(1, sizeof *made);
    made->name = strdup("the name of a session");
    made->hits = number;
    made->ended = on_end;
    return made;
}

static struct request *make_request(int number, struct session *from)
{
    struct request *made = calloc(1, sizeof *made);
    made->path = strdup("/the/path/of/a/request");
    made->from = from;
    made->number = number;
    return made;
}

static struct numbers *make_numbers(int number)
{
    struct numbers *made = calloc(1, sizeof *made);
    made->first = number;
    made->fourth = 4;
    return made;
}

static void lose(int number)
{
    struct session *session = make_session(number);
    fprintf(truth, "struct session\t%p\n", (void *)session);
    fprintf(truth, "struct request\t%p\n", (void *)make_request(number, session));
    fprintf(truth, "struct numbers\t%p\n", (void *)make_numbers(number));
}

int main(int count, char **arguments)
{
    truth = fopen(arguments[count - 1], "w");
    if (!truth)
        return 1;
    for (int i = 1; i <= 32; i++) {
        struct session *session = make_session(i);
        session->next = sessions;
        sessions = session;
        struct request *request = make_request(i, session);
        request->next = requests;
        requests = request;
        numbers[i - 1] = make_numbers(i);
    }
    for (int i = 1; i <= 100; i++)
        lose(i);
    fclose(truth);
    abort();
}
