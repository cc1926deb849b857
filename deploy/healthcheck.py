"""The image's HEALTHCHECK: exit status 0 while the role of this container answers. Standard library only.

It asks whether the program lives, not whether it has a catalog: a balancer asks /ready itself.
"""

import os
import socket
import sys
import urllib.request
from pathlib import Path

WAIT_S = 2


def role(command_line: bytes) -> str:
    """What the container's first program was started as; `init: true` puts another in front of it."""
    words = command_line.decode(errors="replace").split("\0")
    return next((word for word in words if word in ("control-plane", "data-plane", "prober")), "")


def lives(name: str) -> bool:
    """Whether it answers on this machine."""
    try:
        if name == "control-plane":
            socket.create_connection(("127.0.0.1", int(os.environ.get("N4N_ADMIN_PORT", "9400"))), WAIT_S).close()
        elif name in ("data-plane", "prober"):
            port = os.environ.get("N4N_PORT", "8080") if name == "data-plane" else os.environ.get("N4N_PROBER_PORT", "9402")
            if port != "0":
                urllib.request.urlopen(f"http://127.0.0.1:{port}/live", timeout=WAIT_S).close()
    except OSError:
        return False
    return True  # a command that is no server is well as long as it runs


if __name__ == "__main__":
    sys.exit(0 if lives(role(Path("/proc/1/cmdline").read_bytes())) else 1)
