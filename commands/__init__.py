"""What the commands of ``gdbext.catalogue`` run: ``(context, arguments) -> Report``, a file for each family."""
