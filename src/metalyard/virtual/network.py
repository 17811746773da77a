"""The rack's bridge network, and what podman says of the rack's containers."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
import subprocess

from metalyard.plan.model import SitePlan
from metalyard.virtual import host
from metalyard.virtual.nodes import NETWORK, RACK_LABEL

CREATE_TRIES = 15


class NetworkError(Exception):
    """The rack's network can't be had; the message says what stands in its way."""


def subnet(plan: SitePlan) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """The network that all planned addresses lie in; raises :class:`NetworkError` when they don't share one."""
    networks = {ipaddress.ip_interface(node.address).network for node in plan.nodes}
    if len(networks) != 1:
        listed = ", ".join(sorted(map(str, networks))) or "none"
        raise NetworkError(f"the virtual rack has one network, and the plan's nodes lie in {listed}")
    return networks.pop()


def gateway(plan: SitePlan) -> str:
    """The rack's own address: the first of its network."""
    return str(next(subnet(plan).hosts()))


async def find(plan: SitePlan) -> str | None:
    """The name of the rack's network; None when it is not there."""
    flags = (f"--filter=label={RACK_LABEL}={plan.site}", "--format={{.Name}}")
    names = (await host.run_podman("network", "ls", *flags)).stdout.split()
    return names[0] if names else None


async def ensure(plan: SitePlan) -> str:
    """Create the bridge network unless it is there; returns its name.

    A new one has a new name: podman 4 keeps the addresses of containers that it lost in the middle of a start by the
    network's name, and would refuse them until the machine boots.
    """
    wanted = str(subnet(plan))
    present = await find(plan)
    if present is not None:
        found = await host.run_podman("network", "inspect", present)
        ranges = [entry.get("subnet") for entry in json.loads(found.stdout)[0].get("subnets", [])]
        if wanted not in ranges:
            raise NetworkError(
                f"podman's network {present} has {', '.join(map(str, ranges))}, the plan needs {wanted}: "
                "run 'metalyard virtual down' first"
            )
        return present
    _remove_stray_bridge(plan)
    name = f"{NETWORK}-{secrets.token_hex(3)}"
    options = ["--disable-dns", f"--subnet={wanted}", f"--gateway={gateway(plan)}", f"--label={RACK_LABEL}={plan.site}"]
    for left in reversed(range(CREATE_TRIES)):
        made = await host.run_podman("network", "create", *options, name, check=False)
        if made.status == 0:
            return name
        # The bridge of a rack that has just ended goes a moment after its last container.
        if "already used" not in made.stderr or left == 0:
            raise NetworkError(
                f"podman can't make a network with {wanted}: {made.stderr.strip()}; "
                "see with 'ip address' and 'podman network ls' what has that range, and end it"
            )
        await asyncio.sleep(1)
    raise NetworkError(f"podman can't make a network with {wanted}")


async def containers(plan: SitePlan) -> dict[str, str]:
    """The rack's containers, by name, with podman's word for their state."""
    flags = ("--all", f"--filter=label={RACK_LABEL}={plan.site}", "--format=json")
    listed = json.loads((await host.run_podman("ps", *flags)).stdout or "[]")
    return {entry["Names"][0]: str(entry["State"]) for entry in listed}


async def remove_all(plan: SitePlan) -> list[str]:
    """Remove the rack's containers and its network; returns the containers' names."""
    names = sorted(await containers(plan))
    for name in names:
        await host.run_podman("rm", "--force", "--ignore", "-t", "0", name)
    while (bridge := await find(plan)) is not None:
        await host.run_podman("network", "rm", "--force", bridge)
    _remove_stray_bridge(plan)
    return names


def _remove_stray_bridge(plan: SitePlan) -> None:
    """Remove a bridge of podman's that outlived its network: a machine that was starting meanwhile keeps it alive."""
    shown = subprocess.run(["ip", "-json", "address"], capture_output=True, timeout=30, check=True).stdout
    for interface in json.loads(shown or b"[]"):
        addresses = {entry.get("local") for entry in interface.get("addr_info", [])}
        if gateway(plan) in addresses and str(interface.get("ifname")).startswith("podman"):
            subprocess.run(
                [*host.sudo(), "ip", "link", "delete", interface["ifname"]],
                capture_output=True,
                timeout=30,
                check=False,
            )
