"""``python -m metalyard.virtual.bmc``: emulated DGX H100 BMCs on loopback, to try a Redfish client on."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from metalyard.virtual.bmc.config import Timings
from metalyard.virtual.bmc.standalone import fleet
from metalyard.virtual.bmc.tls import fingerprint

PASSWORD = "METALYARD_BMC_PASSWORD"  # noqa: S105 - the variable's name


def main(arguments: list[str] | None = None) -> int:
    """Run until interrupted. The factory password comes from the environment, never from the command line."""
    parser = argparse.ArgumentParser(prog="python -m metalyard.virtual.bmc", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("build/virtual-bmc"), help="certificates and state")
    parser.add_argument("--host", default="127.0.0.1", help="IP address to listen on")
    parser.add_argument("--port", type=int, default=8443, help="port of the first BMC; the others follow")
    parser.add_argument("--count", type=int, default=1, help="how many BMCs")
    parser.add_argument("--user", default="admin", help="the factory account")
    options = parser.parse_args(arguments)
    password = os.environ.get(PASSWORD, "")
    if not password:
        print(f"{PASSWORD} is not set: expected the emulated machines' factory password", file=sys.stderr)
        return 2
    nodes = [f"gpu-{number + 1}" for number in range(options.count)]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options, nodes, password))
    return 0


async def _run(options: argparse.Namespace, nodes: list[str], password: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with fleet(
        options.home,
        nodes,
        host=options.host,
        port=options.port,
        user=options.user,
        password=password,
        timings=Timings(),
        keep=True,
    ) as (running, _, _):
        for node in nodes:
            print(f"{node}: {running.url(node)}, certificate {fingerprint(options.home / f'{node}.pem')}")
        print(f"verify with {options.home / 'ca.pem'}", flush=True)
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
