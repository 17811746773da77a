"""What ``ibstat`` prints (infiniband-diags): the InfiniBand adapters and their ports as the driver sees them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from metalyard.gate.parsers.common import ParseError, lines, number, shown

_ADAPTER = re.compile(r"(CA|Switch|Router|iWARP RNIC) '(?P<device>[^']+)'")
_PORT = re.compile(r"\tPort (?P<port>\d+):")
_FIELD = re.compile(r"(?P<tabs>\t{1,2})(?P<name>[A-Z][A-Za-z ]*): ?(?P<value>.*)")
_ADAPTER_FIELDS = {"Number of ports", "Firmware version", "Node GUID", "System image GUID"}
_PORT_FIELDS = {
    "State",
    "Physical state",
    "Rate",
    "Base lid",
    "LMC",
    "SM lid",
    "Capability mask",
    "Port GUID",
    "Link layer",
}


@dataclass(frozen=True)
class HcaPort:
    """One port of an adapter."""

    device: str
    number: int
    fields: Mapping[str, str]
    firmware: str

    @property
    def guid(self) -> str:
        """Its GUID, ``0x`` and 16 digits."""
        value = self.fields["Port GUID"]
        if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
            raise ParseError(f"{self.device}: Port GUID is '{shown(value)}', expected 0x and 16 digits")
        return "0x" + value[2:].lower().rjust(16, "0")

    @property
    def rate(self) -> float:
        """Gb/s; some versions put the speed's name behind it."""
        return number(self.fields["Rate"].split(" ")[0], f"{self.device}: Rate")


def hca_ports(text: str) -> tuple[HcaPort, ...]:
    """All ports. Every adapter must have all of its fields and as many ports as it says."""
    adapters: list[tuple[str, dict[str, str], list[tuple[int, dict[str, str]]]]] = []
    for line in lines(text, "the output of ibstat"):
        if head := _ADAPTER.fullmatch(line):
            adapters.append((head["device"], {}, []))
            continue
        if not adapters:
            raise ParseError(f"ibstat begins with '{shown(line)}', expected CA 'name'")
        _, fields, ports = adapters[-1]
        if port := _PORT.fullmatch(line):
            ports.append((int(port["port"]), {}))
            continue
        field = _FIELD.fullmatch(line)
        if field is None:
            raise ParseError(f"ibstat has the line '{shown(line)}', expected a field")
        if len(field["tabs"]) == 2 and not ports:
            raise ParseError(f"ibstat has the line '{shown(line)}' before any port")
        target = ports[-1][1] if len(field["tabs"]) == 2 else fields
        target[field["name"]] = field["value"].strip()
    found = []
    for device, fields, ports in adapters:
        if missing := sorted(_ADAPTER_FIELDS - set(fields)):
            raise ParseError(f"ibstat: {device} lacks {', '.join(missing)}")
        if str(len(ports)) != fields["Number of ports"]:
            raise ParseError(f"ibstat: {device} says {fields['Number of ports']} ports and describes {len(ports)}")
        for index, port_fields in ports:
            if missing := sorted(_PORT_FIELDS - set(port_fields)):
                raise ParseError(f"ibstat: {device} port {index} lacks {', '.join(missing)}")
            found.append(HcaPort(device, index, port_fields, fields["Firmware version"]))
    if len({(port.device, port.number) for port in found}) != len(found):
        raise ParseError("ibstat describes one port twice")
    return tuple(found)
