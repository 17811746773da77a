"""A time server for the rack (NTP version 4, RFC 5905): nodes and BMCs measure their clocks against this machine's.

``python3 timeserver.py ADDRESS [PORT]`` serves until it is told to stop. It runs in a container of the node image, as
root, since its port is a privileged one: the standard library alone, Python 3.8.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import sys
import time
from typing import cast

NTP_EPOCH = 2208988800
"""Seconds from 1900, where NTP counts from, to 1970."""

PACKET = struct.Struct("!BBbbII4sQQQQ")
PORT = 123
STRATUM = 8
"""Far enough down that any real server is preferred."""


def stamp(seconds: float) -> int:
    """A time of :func:`time.time` as NTP's 32.32 fixed point."""
    return int((seconds + NTP_EPOCH) * 2**32) & (2**64 - 1)


def answer(request: bytes, received: float) -> bytes | None:
    """The answer to a client's packet; None where it is none."""
    if len(request) < PACKET.size:
        return None
    first, _, poll, *_, transmitted = PACKET.unpack(request[: PACKET.size])
    version, mode = (first >> 3) & 7, first & 7
    if mode != 3 or not 1 <= version <= 4:
        return None
    header = (version << 3) | 4
    reference = stamp(received - received % 16)
    return PACKET.pack(
        header, STRATUM, poll, -20, 0, 0x10, b"LOCL", reference, transmitted, stamp(received), stamp(time.time())
    )


class TimeServer(asyncio.DatagramProtocol):
    """Answers on a UDP port."""

    def __init__(self) -> None:
        self._transport: asyncio.DatagramTransport | None = None

    async def start(self, host: str, port: int = PORT) -> int:
        """Open the port (0: a free one); returns it. ``OSError`` where it can't be had."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))
        return int(transport.get_extra_info("sockname")[1])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to answer by."""
        # No isinstance: before Python 3.12 the transport of a datagram end is none by its class.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        """Answer one client."""
        reply = answer(data, time.time())
        if reply is not None and self._transport is not None:
            self._transport.sendto(reply, addr)

    def stop(self) -> None:
        """Close the port."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None


async def serve(host: str, port: int) -> None:
    """Answer until SIGTERM or SIGINT."""
    server = TimeServer()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start(host, port)
    await stopped.wait()
    server.stop()


def main() -> int:
    """Command line."""
    if len(sys.argv) not in (2, 3):
        sys.stderr.write("usage: timeserver.py ADDRESS [PORT]\n")
        return 2
    try:
        asyncio.run(serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else PORT))
    except OSError as error:
        sys.stderr.write(f"timeserver: {sys.argv[1]}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
