"""The API's network: a machine's NICs and their links, subnets, VLANs and fabrics."""

from __future__ import annotations

import ipaddress
from typing import Any

from metalyard.virtual.maas import render
from metalyard.virtual.maas.core import Core
from metalyard.virtual.maas.lifecycle import must_administer, must_edit
from metalyard.virtual.maas.machines import find
from metalyard.virtual.maas.model import Interface, Link, MachineRecord, Subnet
from metalyard.virtual.maas.reply import ApiError, Raw, Request, conflict, not_found, refused
from metalyard.virtual.maas.status import LINKABLE

Json = dict[str, Any]
MODES = ("auto", "dhcp", "static", "link_up")


def _nic(core: Core, request: Request) -> tuple[MachineRecord, Interface]:
    machine = find(core, request)
    wanted = request.args["id"]
    for nic in machine.interfaces:
        if wanted in (str(nic.id), nic.name):
            return machine, nic
    raise not_found("Interface")


async def list_interfaces(core: Core, request: Request) -> list[Json]:
    """A machine's NICs."""
    machine = find(core, request)
    return [render.interface(core.state, machine, nic) for nic in machine.interfaces]


async def read_interface(core: Core, request: Request) -> Json:
    """One NIC."""
    machine, nic = _nic(core, request)
    return render.interface(core.state, machine, nic)


async def update_interface(core: Core, request: Request) -> Json:
    """Rename it, or move it to another VLAN, which loses its links."""
    machine, nic = _nic(core, request)
    must_edit(machine, request)
    vlans = {subnet.vlan for subnet in core.state.subnets}
    if request.get("vlan"):
        if not request.get("vlan").isdigit() or int(request.get("vlan")) not in vlans:
            raise refused(vlan=["Select a valid choice. That choice is not one of the available choices."])
        if nic.vlan != int(request.get("vlan")):
            nic.vlan = int(request.get("vlan"))
            nic.links = []
    if request.get("mtu").isdigit():
        nic.mtu = int(request.get("mtu"))
    nic.name = request.get("name") or nic.name
    return render.interface(core.state, machine, nic)


async def link_subnet(core: Core, request: Request) -> Json:
    """Put a NIC on a subnet. AUTO twice makes a second link, as in the real one."""
    machine, nic = _nic(core, request)
    _linkable(machine, request, "link subnet")
    mode = request.get("mode").lower()
    if mode not in MODES:
        choices = ", ".join(f"'{name}'" for name in MODES)
        raise refused(mode=[f"'{mode}' is not a valid mode.  It should be one of: {choices}."])
    link = Link(0, mode)
    if mode != "link_up" or request.get("subnet"):
        subnet = core.subnet(int(request.get("subnet"))) if request.get("subnet").isdigit() else None
        if subnet is None or (nic.vlan is not None and subnet.vlan != nic.vlan):
            raise refused(subnet=[f"None found with id={request.get('subnet')}.", "This field is required."])
        link.subnet = subnet.id
        _gateway(subnet, request)
        if mode == "static":
            link.ip_address = _static(core, subnet, request.get("ip_address"))
        nic.vlan = subnet.vlan
    link.id = core.state.next_id("link")
    nic.links = [other for other in nic.links if other.mode != "link_up"]
    nic.links.append(link)
    return render.interface(core.state, machine, nic)


def _gateway(subnet: Subnet, request: Request) -> None:
    if request.flag("default_gateway") and not subnet.gateway_ip:
        where = f"{subnet.name}:{subnet.cidr}(vid=0)"
        text = f"Cannot set as default gateway because subnet {where} doesn't provide a gateway IP address."
        raise refused(default_gateway=[text])


def _static(core: Core, subnet: Subnet, wanted: str) -> str | None:
    if not wanted:
        return core.free_address(subnet)
    try:
        inside = ipaddress.ip_address(wanted) in ipaddress.ip_network(subnet.cidr)
    except ValueError:
        raise refused(ip_address=["Enter a valid IPv4 or IPv6 address."]) from None
    if not inside:
        raise refused(ip_address=[f"IP address is not in the given subnet '{subnet.name} ({subnet.cidr})'."])
    if core.holder(wanted) is not None:
        raise ApiError(404, "IP address is already in use.")
    return wanted


async def unlink_subnet(core: Core, request: Request) -> Json:
    """Take a link away."""
    machine, nic = _nic(core, request)
    _linkable(machine, request, "unlink subnet")
    given = request.get("id")
    if given not in [str(link.id) for link in nic.links]:
        choices = ", ".join(f"'{link.id}'" for link in nic.links)
        raise refused(id=[f"'{given}' is not a valid id.  It should be one of: {choices}."])
    nic.links = [link for link in nic.links if str(link.id) != given]
    if not nic.links and nic.vlan is not None:
        nic.links = [Link(core.state.next_id("link"), "link_up")]
    return render.interface(core.state, machine, nic)


async def disconnect(core: Core, request: Request) -> Json:
    """Take every link and the VLAN away."""
    machine, nic = _nic(core, request)
    _linkable(machine, request, "disconnect")
    nic.links, nic.vlan, nic.discovered = [], None, None
    return render.interface(core.state, machine, nic)


def _linkable(machine: MachineRecord, request: Request, what: str) -> None:
    must_edit(machine, request)
    if machine.status not in LINKABLE:
        raise conflict(f"Cannot {what} interface because the machine is not New, Ready, Allocated, or Broken.")


async def list_subnets(core: Core, request: Request) -> list[Json]:
    """All subnets."""
    return [render.render_subnet(entry) for entry in core.state.subnets]


def _subnet(core: Core, request: Request) -> Subnet:
    wanted = request.args["id"]
    for entry in core.state.subnets:
        if wanted in (str(entry.id), entry.cidr, entry.name):
            return entry
    raise not_found("Subnet")


async def read_subnet(core: Core, request: Request) -> Json:
    """One subnet."""
    return render.render_subnet(_subnet(core, request))


async def create_subnet(core: Core, request: Request) -> Json:
    """A further subnet, in a VLAN and fabric of its own unless it names one."""
    must_administer(request)
    try:
        cidr = str(ipaddress.ip_network(request.get("cidr")))
    except ValueError:
        raise refused(
            cidr=["This field is required." if not request.get("cidr") else "Required format: <network>/<prefixlen>."]
        ) from None
    if any(entry.cidr == cidr for entry in core.state.subnets):
        raise refused(cidr=["Subnet with this Cidr already exists."])
    highest = max((entry.vlan for entry in core.state.subnets), default=5000)
    vlan = int(request.get("vlan")) if request.get("vlan").isdigit() else highest + 1
    gateway = request.get("gateway_ip") or None
    entry = Subnet(core.state.next_id("subnet"), request.get("name") or cidr, cidr, vlan, gateway)
    core.state.subnets.append(entry)
    return render.render_subnet(entry)


async def delete_subnet(core: Core, request: Request) -> Raw:
    """Only while nothing is on it."""
    must_administer(request)
    entry = _subnet(core, request)
    used = (link for m in core.state.machines.values() for nic in m.interfaces for link in nic.links)
    if any(link.subnet == entry.id for link in used):
        raise ApiError(
            400,
            "Cannot delete a subnet that has IP addresses in use by nodes. (Use the 'force' parameter to override.)",
        )
    core.state.subnets.remove(entry)
    return Raw("", 204)


async def unreserved_ranges(core: Core, request: Request) -> list[Json]:
    """The addresses of a subnet that nothing has, as ranges."""
    entry = _subnet(core, request)
    network = ipaddress.ip_network(entry.cidr)
    if network.num_addresses > 65536:
        raise ApiError(400, "The emulated region lists ranges of subnets up to /16 only.")
    links = (link for m in core.state.machines.values() for nic in m.interfaces for link in nic.links)
    taken = {link.ip_address for link in links} | {entry.gateway_ip}
    ranges: list[list[int]] = []
    for host in network.hosts():
        number = int(host)
        if str(host) in taken:
            continue
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [
        {
            "start": str(ipaddress.ip_address(first)),
            "end": str(ipaddress.ip_address(last)),
            "num_addresses": last - first + 1,
        }
        for first, last in ranges
    ]


async def list_fabrics(core: Core, request: Request) -> list[Json]:
    """All fabrics."""
    return [render.fabric(number - 5001) for number in sorted({entry.vlan for entry in core.state.subnets})]


async def read_fabric(core: Core, request: Request) -> Json:
    """One fabric."""
    return render.fabric(_fabric(core, request))


def _fabric(core: Core, request: Request) -> int:
    known = {entry.vlan - 5001 for entry in core.state.subnets}
    given = request.args.get("fabric_id", request.args.get("id", ""))
    if not given.isdigit() or int(given) not in known:
        raise not_found("Fabric")
    return int(given)


async def list_vlans(core: Core, request: Request) -> list[Json]:
    """A fabric's VLANs."""
    return [render.vlan(_fabric(core, request) + 5001)]


async def list_spaces(core: Core, request: Request) -> list[Json]:
    """The one space every VLAN is in: none."""
    return [
        {
            "description": "Backward compatibility object to ensure objects not associated with a space can be found.",
            "id": -1,
            "name": "undefined",
            "resource_uri": f"{render.ROOT}/spaces/undefined/",
            "vlans": [render.vlan(number) for number in sorted({entry.vlan for entry in core.state.subnets})],
            "subnets": [render.render_subnet(entry) for entry in core.state.subnets],
        }
    ]
