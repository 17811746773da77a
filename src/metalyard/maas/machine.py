"""What the operations look at of a machine in MAAS, taken out of its hundred fields and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from metalyard.maas.errors import MaasUnavailable


@dataclass(frozen=True)
class Link:
    """A NIC's place on a subnet."""

    id: int
    mode: str
    address: str | None
    subnet: int | None


@dataclass(frozen=True)
class Nic:
    """A NIC; ``vlan`` is None while it is not connected as far as MAAS knows."""

    id: int
    mac: str
    vlan: int | None
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Machine:
    """A machine as MAAS has it at this moment."""

    system_id: str
    hostname: str
    status: int
    status_name: str
    status_message: str
    error_description: str
    owner: str | None
    pool: str
    zone: str
    power_type: str
    osystem: str
    distro_series: str
    locked: bool
    tags: frozenset[str]
    addresses: tuple[str, ...]
    annotations: dict[str, str] = field(hash=False)
    nics: tuple[Nic, ...] = ()
    serials: tuple[str, ...] = ()

    def nic(self, mac: str) -> Nic | None:
        """The NIC with that MAC."""
        return next((nic for nic in self.nics if nic.mac == mac.lower()), None)

    @classmethod
    def of(cls, data: Any) -> Machine:
        """From the API's JSON; an answer that is not a machine is a :class:`MaasUnavailable` that names the field."""
        try:
            hardware = data.get("hardware_info") or {}
            return cls(
                system_id=str(data["system_id"]),
                hostname=str(data["hostname"]),
                status=int(data["status"]),
                status_name=str(data["status_name"]),
                status_message=str(data.get("status_message") or ""),
                error_description=str(data.get("error_description") or ""),
                owner=data.get("owner"),
                pool=str((data.get("pool") or {}).get("name", "")),
                zone=str((data.get("zone") or {}).get("name", "")),
                power_type=str(data.get("power_type") or ""),
                osystem=str(data.get("osystem") or ""),
                distro_series=str(data.get("distro_series") or ""),
                locked=bool(data.get("locked")),
                tags=frozenset(data.get("tag_names") or ()),
                addresses=tuple(data.get("ip_addresses") or ()),
                annotations=dict(data.get("workload_annotations") or {}),
                nics=tuple(_nic(entry) for entry in data.get("interface_set") or ()),
                serials=tuple(
                    str(hardware[key])
                    for key in ("system_serial", "chassis_serial")
                    if hardware.get(key) not in (None, "", "Unknown")
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MaasUnavailable(
                f"MAAS's answer is not a machine ({type(error).__name__}: {error})",
                "Check maas.url in the plan, and that the region is MAAS 3.",
            ) from None


def _nic(data: dict[str, Any]) -> Nic:
    links = tuple(
        Link(int(link["id"]), str(link["mode"]), link.get("ip_address"), (link.get("subnet") or {}).get("id"))
        for link in data.get("links") or ()
    )
    return Nic(int(data["id"]), str(data.get("mac_address") or "").lower(), (data.get("vlan") or {}).get("id"), links)
