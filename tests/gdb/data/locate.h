struct goal {
    int size;
    struct goal *next;
};

struct opaque;
extern struct opaque *opaque;

struct env {
    char kind;
    struct goal goal;
    struct goal *pointed;
};

struct worker {
    int number;
    struct goal *local;
    struct env env;
};

struct holder {
    struct goal inside;
    struct goal many[2];
    union {
        struct goal *either;
        long number;
    };
};

struct far_away {
    struct { struct { struct goal *goal; struct { struct goal *goal; } c; } b; } a;
};

struct bits {
    unsigned low : 3;
    unsigned mid : 13;
    unsigned long long wide : 40;
    char whole;
    int negative : 4;
};

struct packed {
    char before;
    int odd : 20;
    unsigned rest : 6;
} __attribute__((packed));

struct flexible {
    int count;
    struct goal items[];
};

int *other_twice(void);
void fast(struct worker *worker);
int parked(int count);
