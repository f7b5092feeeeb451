"""The command line as data: the table of commands, its grammar, help, completion, and the question to gdb."""
