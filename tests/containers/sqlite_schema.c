/* The table of tables in a schema of the real SQLite. Its internals have no header: the places of the schema and of
   its first hash table are those of SQLite 3.8 to 3.46 on 64 bits (sqliteInt.h: sqlite3.aDb, Db.pSchema, Schema.tblHash). */
#include <sqlite3.h>

#include "truth.h"

#define TABLES 60

int main(void) {
    char statement[64];
    sqlite3 *database;
    if (sqlite3_open(":memory:", &database) != SQLITE_OK)
        return 1;
    for (int number = 0; number < TABLES; number++) {
        snprintf(statement, sizeof statement, "CREATE TABLE table_%d (number INTEGER)", number);
        if (sqlite3_exec(database, statement, NULL, NULL, NULL) != SQLITE_OK)
            return 1;
    }
    char *databases = *(char **)((char *)database + 32), *schema = *(char **)(databases + 24);
    snprintf(statement, sizeof statement, "%#lx", (unsigned long)(uintptr_t)(schema + 8));
    truth_case(sqlite3_libversion(), "sqlite-hash-old", statement, "--shape sqlite-hash-old", 0, TABLES + 1);
    truth_park();
}
