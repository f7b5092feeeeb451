"""A server that speaks S3's protocol on the loopback, for tests; what it holds is in its memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import Any, Iterator

BUCKET = "cores"


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Start a server with an empty bucket; give the environment in which ``s3://`` is its."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _await(port, server)
            environment = {
                "FSSPEC_S3_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "anybody",
                "AWS_SECRET_ACCESS_KEY": "anything", "AWS_DEFAULT_REGION": "us-east-1",
            }  # fmt: skip
            subprocess.run([sys.executable, "-c", f"{_OPEN}; files.mkdir('{BUCKET}')"],
                           env={**os.environ, **environment}, check=True)  # fmt: skip
            yield environment
        finally:
            server.kill()


_OPEN = "import fsspec; files = fsspec.filesystem('s3')"


def _await(port: int, server: "subprocess.Popen[Any]") -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert server.poll() is None
            time.sleep(0.05)
