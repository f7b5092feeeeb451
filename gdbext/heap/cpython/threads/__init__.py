"""Threads of an interpreter: their frames with file and line, and the lock that one of them holds at a time."""
