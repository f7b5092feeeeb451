"""Ports of this machine for the servers that tests start."""

from __future__ import annotations

import random
import socket

FIRST, LAST = 20000, 30000  # below those that the kernel gives to connections by itself
_claims: list[socket.socket] = []


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free for TCP and UDP, and that no other test run takes while this one lives.

    What a server of its own chooses can be taken between the choice and its use; so runs claim a port first, by an
    abstract socket that bears its number.
    """
    for port in random.SystemRandom().sample(range(FIRST, LAST), LAST - FIRST):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0gdbext-test-port-{port}")
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as trial:
                    trial.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return port
    raise AssertionError(f"no port of {FIRST} to {LAST} is free")
