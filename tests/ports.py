"""Ports that a test must name before anybody listens there, or keep while nobody does.

The system gives out ports of a range of its own, also to whoever asks for port 0 a moment later;
these lie below that range, so that only another test could take one, and it begins elsewhere.
"""

import os
import socket
from itertools import count
from pathlib import Path

LOWEST = 10_000
GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST_GIVEN_OUT = int(GIVEN_OUT.read_text().split()[0]) if GIVEN_OUT.exists() else 32_768
_numbers = count(os.getpid() * 41)  # processes of one run have adjacent numbers


def own_port():
    """A port of the loopback interface where nobody listens, for this test alone."""
    for number in _numbers:
        port = LOWEST + number % (FIRST_GIVEN_OUT - LOWEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("unreachable: the numbers do not end")
