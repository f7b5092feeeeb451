"""Which thread waits for what, read from registers and memory alone.

``syscalls`` says in which system call a thread is; ``futexes`` what a futex word belongs to, by the layouts in
``layouts``; ``spins`` finds threads that spin; ``tids`` maps the ids that locks hold to threads; ``mention``
looks for the holder
of a lock that has no owner field. ``census`` puts them together. Names of functions, where a debugger knows
them, raise the confidence but are never needed.
"""
