"""What gdb knows, as the engine wants it."""
