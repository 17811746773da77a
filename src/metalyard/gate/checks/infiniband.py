"""InfiniBand adapters as the node itself sees them; the cables are in cabling.py."""

from __future__ import annotations

from collections.abc import Iterator

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding, Owner
from metalyard.gate.parsers.common import ParseError
from metalyard.gate.parsers.ibstat import HcaPort, hca_ports


def _has_adapters(subject: Subject) -> bool:
    return subject.profile.hca.count > 0


def _expected(subject: Subject) -> list[str]:
    """Device names that the profile wants, or those that the plan has GUIDs for."""
    return list(subject.profile.hca.devices) or sorted(subject.node.hca_guids)


@check(
    "infiniband.adapters",
    needs=("ib",),
    applies=_has_adapters,
    owner=Owner.VENDOR,
    remedy="See 'lspci -d 15b3:' and the kernel log; cold-boot the node, then reseat the adapter.",
    source="the node's profile, and the port GUIDs in the site plan",
)
def adapters(subject: Subject) -> Iterator[Finding]:
    """Every adapter of the profile is there, under its name and with the planned GUID."""
    ports = {port.device: port for port in hca_ports(subject.text("ib")) if port.number == 1}
    names = _expected(subject)
    for name in names:
        if name not in ports:
            yield subject.failed(f"adapter {name} is missing", part=name, measured="missing", expected="present")
            continue
        planned, seen = subject.node.hca_guids.get(name), ports[name].guid
        if planned and planned != seen:
            yield subject.failed(
                f"adapter {name} has port GUID {seen}, planned is {planned}",
                part=name,
                measured=seen,
                expected=planned,
                owner=Owner.OPERATOR,
                remedy="If the adapter was replaced, enter its GUID in the plan; otherwise see which slot is which.",
            )
    fabric = [port for port in ports.values() if port.fields["Link layer"] == "InfiniBand"]
    if len(names) < subject.profile.hca.count and len(fabric) < subject.profile.hca.count:
        yield subject.failed(
            f"{len(fabric)} InfiniBand adapters, expected {subject.profile.hca.count}",
            measured=f"{len(fabric)} adapters",
            expected=f"{subject.profile.hca.count} adapters",
        )
    elif all(name in ports for name in names):
        yield subject.passed(f"{len(names) or len(fabric)} adapters are there", measured=f"{len(names)} adapters")


@check(
    "infiniband.ports",
    needs=("ib",),
    applies=_has_adapters,
    owner=Owner.DATA_CENTRE,
    remedy="Reseat the cable at both ends; then exchange cable and transceiver, one at a time.",
    source="the node's profile (400 Gb/s on an NDR port)",
)
def ports(subject: Subject) -> Iterator[Finding]:
    """State, physical state and rate of each port of the profile's adapters."""
    wanted = subject.profile.hca
    names = set(_expected(subject))
    good = 0
    for port in hca_ports(subject.text("ib")):
        if names and port.device not in names:
            continue
        try:
            wrong = _wrong(subject, port)
        except ParseError as error:
            yield subject.unknown(str(error), part=port.device, measured=port.fields["Rate"])
            continue
        if not wrong:
            good += 1
            continue
        remedy = subject.check.remedy
        if port.fields["State"] == "Initializing":
            remedy = "The link is up and no subnet manager has taken it in: see that one runs on this fabric."
        yield subject.failed(
            f"{port.device} is {', '.join(seen for seen, _ in wrong)}; "
            f"expected is {', '.join(right for _, right in wrong)}",
            part=port.device,
            measured=", ".join(seen for seen, _ in wrong),
            expected=", ".join(right for _, right in wrong),
            remedy=remedy,
        )
    if good:
        yield subject.passed(
            f"{good} InfiniBand ports are {wanted.state} at {wanted.rate_gbps:g} Gb/s", measured=f"{good} ports"
        )


def _wrong(subject: Subject, port: HcaPort) -> list[tuple[str, str]]:
    """What is not as the profile says: (seen, expected)."""
    wanted = subject.profile.hca
    pairs = [
        (port.fields["Link layer"], "InfiniBand"),
        (port.fields["State"], wanted.state),
        (port.fields["Physical state"], wanted.physical_state),
    ]
    wrong = [(seen, right) for seen, right in pairs if seen != right]
    rate = port.rate
    # The rate of a link that is down says nothing.
    if not wrong and wanted.rate_gbps and rate < wanted.rate_gbps:
        wrong.append((f"{rate:g} Gb/s", f"{wanted.rate_gbps:g} Gb/s"))
    return wrong
