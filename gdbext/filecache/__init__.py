"""What was read of files, kept from one core to the next: under a hash of their contents, never under a name."""
