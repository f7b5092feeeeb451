"""The baseline: all bins of a group of tables walked with gdb.Value, as the script of Unbound's incident did.

Sourced into gdb; needs the program's debug info. Prints a line for each table, then the number of entries.
"""

import gdb


def walk(table):
    count = nonempty = longest = at = 0
    array = table["array"]
    for number in range(int(table["size"])):
        entry = array[number]["overflow_list"]
        length = 0
        while int(entry) != 0:
            length += 1
            entry = entry["overflow_next"]
        if length:
            nonempty += 1
        if length > longest:
            longest, at = length, number
        count += length
    return count, nonempty, longest, at


def walk_all():
    group = gdb.parse_and_eval("cache")
    total = 0
    for number in range(int(group["size"])):
        table = group["array"][number]
        count, nonempty, longest, at = walk(table)
        print(f"table {number} bins {int(table['size'])} nonempty {nonempty} longest {longest} at {at}")
        total += count
    print(f"entries {total}")


walk_all()
