"""Starting a gdb that is guarded, with the files that belong to its target: for the program and for the library."""
