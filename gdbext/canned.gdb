# Canned commands of gdbext: source this file after gdbext/load.py. Each is a plain `define`, to be read and copied:
# `show user gx-longest` prints one, `help gx-longest` says what it does. Arguments with spaces are quoted.
# They are written in C: under `set language pascal`, say, `with language c -- gx-longest TABLE`.

# An error here: gdbext/load.py has not been sourced.
python gdb.execute("help gx", to_string=True)

set $gx_confirm = $_gdb_setting("confirm")
set confirm off

define gx-watch-chain
  if $argc == 4
    gx breakpoints chain $arg0 --head $arg1 --next $arg2 --longer $arg3
  else
    help gx-watch-chain
  end
end
document gx-watch-chain
Print a line whenever a chain is longer than N at a place, and go on.
Usage: gx-watch-chain LOCATION HEAD NEXT N
HEAD is evaluated at LOCATION: a pointer to the first node, or the head of a list. NEXT is the link's name.
Example: gx-watch-chain lruhash_insert bin->overflow_list overflow_next 20
end

define gx-watch-hash
  if $argc == 4
    gx breakpoints hash $arg0 --stored $arg1 --computed-at $arg2 --computed $arg3
  else
    help gx-watch-hash
  end
end
document gx-watch-hash
Print a line whenever an entry comes with a hash that its thread did not compute last, and go on.
Usage: gx-watch-hash LOCATION STORED COMPUTED_AT COMPUTED
STORED is evaluated at LOCATION, where entries are inserted; COMPUTED at COMPUTED_AT, where a hash is ready.
Example: gx-watch-hash slabhash_insert hash msgreply.c:640 h
end

define gx-count-every
  if $argc == 4
    gx breakpoints every $arg0 --hits $arg1 --head $arg2 --next $arg3
  else
    help gx-count-every
  end
end
document gx-count-every
Count a list at each K-th hit of a place, print a line, and go on.
Usage: gx-count-every LOCATION K HEAD NEXT
Example: gx-count-every lruhash_insert 10000 bin->overflow_list overflow_next
end

define gx-print-entry
  if $argc == 1
    gx safe print *($arg0)
  else
    help gx-print-entry
  end
end
document gx-print-entry
Print an entry of a hash table: its stored hash and key, then its members.
Usage: gx-print-entry ENTRY
ENTRY is a pointer, as gx-longest prints them. Any entry of a table whose shape is known has such a line.
Example: gx-print-entry $gx_bin_first
end

define gx-print-cache
  if $argc == 1
    gx safe gx walklist $arg0
    gx safe gx slabskew $arg0
  else
    help gx-print-cache
  end
end
document gx-print-cache
Print a table, or a group of tables: entries and longest bin of each, then how evenly they are filled and why not.
Usage: gx-print-cache TABLE
Example: gx-print-cache worker->env.rrset_cache
end

define gx-longest
  if $argc == 1 || $argc == 2
    set $gx_quiet = 1
    set $gx_longest = $gx_maxbin("$arg0")
    python gdb.set_convenience_variable("gx_quiet", None)
    if $gx_longest
      printf "%d entries in bin %d of the table at 0x%lx\n", $gx_longest, $gx_bin, $gx_bin_table
      if $argc == 2
        eval "gx safe gx listprint $gx_bin_first +%d --limit $arg1", $gx_bin_link
      else
        eval "gx safe gx listprint $gx_bin_first +%d --limit 10", $gx_bin_link
      end
    else
      if $_isvoid($gx_why)
        echo the table has no entries\n
      else
        printf "gx-longest: %s\n", $gx_why
      end
    end
  else
    help gx-longest
  end
end
document gx-longest
Print the entries of the longest bin of a table, or of all tables of a group: the first 10, or N.
Usage: gx-longest TABLE [N]
Afterwards $gx_bin is its number, $gx_bin_table the table's address, and $gx_bin_first its first entry.
Example: gx-longest worker->env.rrset_cache 20
end

if $gx_confirm
  set confirm on
end
