"""One stop of an inferior, and what is kept for it."""
