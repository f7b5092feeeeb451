"""What the commands of ``gdbext.catalogue`` run: ``(session, arguments) -> Report``, a file for each family."""
