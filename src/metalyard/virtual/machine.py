"""What a virtual machine is to its BMC and to the region that provisions it: the contract between the emulators.

The BMC emulator switches machines, a machine that boots from the network asks the provisioner what to do, and the
provisioner hears how that went. Each side knows the others only through these types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

PowerState = Literal["On", "Off", "PoweringOn", "PoweringOff"]
BootTarget = Literal["None", "Pxe", "UefiHttp", "Hdd", "Cd", "Usb", "BiosSetup", "UefiShell", "Diags"]
BootMode = Literal["UEFI", "Legacy"]
ActionKind = Literal["none", "commission", "deploy", "local"]

NETWORK_TARGETS: frozenset[str] = frozenset({"Pxe", "UefiHttp"})
"""Boot sources that ask the provisioner; every other one starts what is on the disk."""


@dataclass(frozen=True)
class BootSource:
    """Where a machine boots from at this power on, as Redfish names it."""

    target: BootTarget | str = "Hdd"
    mode: BootMode | str = "UEFI"

    @property
    def network(self) -> bool:
        """Whether the firmware asks the network what to boot."""
        return self.target in NETWORK_TARGETS


@dataclass(frozen=True)
class BootAction:
    """What the provisioner wants of a machine that booted from the network.

    ``none``: it knows nothing of this machine (it stops at "no boot file"). ``commission``: boot the ephemeral
    system and report the hardware. ``deploy``: install, with the other fields. ``local``: boot the disk.
    """

    kind: ActionKind
    user_data: bytes = b""
    hostname: str = ""
    distro_series: str = ""
    addresses: list[str] = field(default_factory=list)
    """With prefix, such as ``10.231.0.101/24``; empty: the planned one."""
    instance_id: str = ""
    """Another one for each deployment (``<system id>-<count>``), so that cloud-init runs as on a new machine."""
    ssh_keys: list[str] = field(default_factory=list)
    """Public keys of the owner, which MAAS hands over in its meta-data."""


@runtime_checkable
class Provisioner(Protocol):
    """The network's side of a boot: the MAAS region, or a test's double."""

    async def boot(self, mac: str) -> BootAction:
        """What a machine that asks with this MAC is to do; called once for each boot from the network."""
        ...

    async def commissioned(self, mac: str, hardware: dict[str, Any]) -> None:
        """The machine finished commissioning; ``hardware`` is the model's JSON form."""
        ...

    async def deployed(self, mac: str) -> None:
        """The machine runs the deployed system and its cloud-init is through."""
        ...

    async def failed(self, mac: str, reason: str) -> None:
        """The commissioning or deployment of this boot failed; ``reason`` is one sentence."""
        ...


@runtime_checkable
class Machine(Protocol):
    """The metal under one BMC."""

    node: str

    @property
    def power_state(self) -> PowerState:
        """As the BMC reports it; ``PoweringOn`` until the machine runs, never for the length of a deployment."""
        ...

    async def power_on(self, boot: BootSource) -> None:
        """Switch on and boot; returns once on, while what was booted goes on in the background. Idempotent."""
        ...

    async def power_off(self, graceful: bool) -> None:
        """Switch off, by the operating system when ``graceful``; returns once off. Idempotent."""
        ...
