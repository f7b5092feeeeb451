"""What the commands of ``gdbext.grammar.catalogue`` run: ``(session, arguments) -> Report``, a file for each family."""
