"""Holding a process of this machine, by the kernel's own means."""
