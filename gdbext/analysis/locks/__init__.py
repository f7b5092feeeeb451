"""Who waits for which lock, and what is wrong with that."""
