"""What an emulated MAAS region remembers: plain records that survive a restart as one JSON file."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from metalyard.files import write_atomically
from metalyard.virtual.maas.status import Status

_ID_LETTERS = "abcdefghkmnpqrstwxy3478"
"""The letters of MAAS's system ids: those that can't be mistaken for one another."""


@dataclass
class Link:
    """An interface's place on a subnet."""

    id: int
    mode: str
    subnet: int | None = None
    ip_address: str | None = None


@dataclass
class Interface:
    """A machine's NIC."""

    id: int
    name: str
    mac_address: str
    vlan: int | None = None
    links: list[Link] = field(default_factory=list)
    discovered: str | None = None
    link_speed: int = 0
    vendor: str | None = None
    product: str | None = None
    firmware_version: str | None = None
    mtu: int | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Drive:
    """A machine's disk."""

    id: int
    name: str
    size: int
    model: str
    serial: str
    uuid: str
    tags: list[str] = field(default_factory=list)


@dataclass
class ScriptRun:
    """One script's result within a set."""

    id: int
    name: str
    status: int = 0
    exit_status: int | None = None
    script_id: int | None = None
    created: float = 0.0
    started: float | None = None
    ended: float | None = None


@dataclass
class ScriptSet:
    """The results of one commissioning (type 0), installation (1) or testing (2)."""

    id: int
    type: int
    system_id: str
    runs: list[ScriptRun] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The worst that any script says: failed, running, pending, aborted, passed."""
        seen = {run.status for run in self.runs}
        return next((status for status in (3, 4, 1, 0, 5) if status in seen), 2)


@dataclass
class MachineRecord:
    """One machine."""

    system_id: str
    hostname: str
    architecture: str
    power_type: str
    power_parameters: dict[str, str]
    interfaces: list[Interface]
    status: int = Status.NEW
    previous_status: int = Status.NEW
    owner: str | None = None
    pool: int = 0
    zone: int = 1
    description: str = ""
    power_state: str = "unknown"
    netboot: bool = True
    locked: bool = False
    tags: list[str] = field(default_factory=list)
    osystem: str = ""
    distro_series: str = ""
    hwe_kernel: str | None = None
    min_hwe_kernel: str = ""
    error_description: str = ""
    status_message: str | None = None
    status_action: str | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    user_data: str = ""
    deployments: int = 0
    boots: int = 0
    commissioning_set: int | None = None
    testing_set: int | None = None
    installation_set: int | None = None
    hardware: dict[str, Any] = field(default_factory=dict)
    drives: list[Drive] = field(default_factory=list)
    cpu_count: int = 0
    memory: int = 0
    since: float = 0.0
    keep_networking: bool = False
    pending: str = ""
    """What is still to be done with its power: ``cycle``, ``off`` or nothing; taken up again after a restart."""

    @property
    def boot_interface(self) -> Interface | None:
        """The NIC that boots: the first one."""
        return self.interfaces[0] if self.interfaces else None

    def interface(self, mac: str) -> Interface | None:
        """The NIC with that MAC."""
        return next((nic for nic in self.interfaces if nic.mac_address == mac.lower()), None)


@dataclass
class Named:
    """A pool or zone."""

    id: int
    name: str
    description: str = ""


@dataclass
class Tag:
    """A tag."""

    name: str
    definition: str = ""
    comment: str = ""
    kernel_opts: str = ""


@dataclass
class Event:
    """A line of a machine's history."""

    id: int
    system_id: str
    level: str
    type: str
    description: str
    created: float
    username: str = "unknown"


@dataclass
class Script:
    """An uploaded or built-in script."""

    id: int
    name: str
    type: int
    hardware_type: int = 0
    title: str = ""
    description: str = ""
    tags: list[str] = field(default_factory=list)
    timeout: str = "0:00:00"
    default: bool = False
    content: str = ""
    created: float = 0.0


@dataclass
class Subnet:
    """A subnet in the region's one VLAN, or in another one."""

    id: int
    name: str
    cidr: str
    vlan: int = 5001
    gateway_ip: str | None = None


@dataclass
class BootImage:
    """A row of boot-resources: ``ubuntu/jammy`` and its kernel."""

    id: int
    name: str
    kernel: str
    type: str = "Synced"


@dataclass
class User:
    """Who may speak to the region; ``key`` is consumer:token:secret."""

    username: str
    email: str
    is_superuser: bool
    key: str = ""


BUILT_IN_SCRIPTS: tuple[tuple[str, int, int], ...] = (
    ("20-maas-01-install-lldpd", 0, 0),
    ("20-maas-02-dhcp-unconfigured-ifaces", 0, 0),
    ("20-maas-03-machine-resources", 0, 0),
    ("30-maas-01-bmc-config", 0, 0),
    ("40-maas-01-machine-config-hints", 0, 0),
    ("50-maas-01-commissioning", 0, 0),
    ("maas-capture-lldpd", 0, 0),
    ("maas-get-fruid-api-data", 0, 0),
    ("maas-kernel-cmdline", 0, 0),
    ("maas-list-modaliases", 0, 0),
    ("maas-lshw", 0, 0),
    ("maas-serial-ports", 0, 0),
    ("maas-support-info", 0, 0),
    ("smartctl-validate", 2, 3),
)
"""Name, type (0 commissioning, 2 testing) and hardware type of the scripts every region has."""


@dataclass
class RegionState:
    """Everything; the counters too, so that no id is given twice."""

    machines: dict[str, MachineRecord] = field(default_factory=dict)
    pools: list[Named] = field(default_factory=lambda: [Named(0, "default", "Default pool")])
    zones: list[Named] = field(default_factory=lambda: [Named(1, "default")])
    tags: dict[str, Tag] = field(default_factory=lambda: {"virtual": Tag("virtual")})
    subnets: list[Subnet] = field(default_factory=list)
    images: list[BootImage] = field(default_factory=list)
    scripts: list[Script] = field(default_factory=list)
    sets: dict[int, ScriptSet] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    users: list[User] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    def next_id(self, kind: str, first: int = 1) -> int:
        """A number that this kind of thing has not had yet."""
        value = self.counters.get(kind, first - 1) + 1
        self.counters[kind] = value
        return value

    def new_system_id(self) -> str:
        """Six letters no machine has."""
        while True:
            candidate = "".join(secrets.choice(_ID_LETTERS) for _ in range(6))
            if candidate not in self.machines:
                return candidate

    def by_mac(self, mac: str) -> MachineRecord | None:
        """The machine with that NIC; the oldest one when a race made several."""
        return next((machine for machine in self.machines.values() if machine.interface(mac)), None)

    def note(self, machine: MachineRecord, level: str, kind: str, text: str = "", username: str = "unknown") -> None:
        """Write a line into a machine's history, which is cut at 2,000 lines for the whole region."""
        self.events.append(
            Event(self.next_id("event"), machine.system_id, level, kind, text, round(time.time(), 3), username)
        )
        del self.events[:-2000]
        if level != "DEBUG":
            machine.status_message = f"{kind} - {text}" if text else kind
            machine.status_action = ""

    def save(self, path: Path) -> None:
        """Write everything, for the owner only: it holds the BMC passwords, as MAAS's database does."""
        write_atomically(path, json.dumps(asdict(self), separators=(",", ":")).encode())

    @classmethod
    def load(cls, path: Path) -> RegionState:
        """Read what :meth:`save` wrote; ``ValueError`` names the file when it is not that."""
        try:
            raw = json.loads(path.read_text())
            return cls(
                machines={key: _machine(value) for key, value in raw["machines"].items()},
                pools=[Named(**value) for value in raw["pools"]],
                zones=[Named(**value) for value in raw["zones"]],
                tags={key: Tag(**value) for key, value in raw["tags"].items()},
                subnets=[Subnet(**value) for value in raw["subnets"]],
                images=[BootImage(**value) for value in raw["images"]],
                scripts=[Script(**value) for value in raw["scripts"]],
                sets={int(key): _script_set(value) for key, value in raw["sets"].items()},
                events=[Event(**value) for value in raw["events"]],
                config=raw["config"],
                users=[User(**value) for value in raw["users"]],
                counters=raw["counters"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is not the state of an emulated MAAS region ({type(error).__name__}: {error}); "
                "remove it to start with an empty region"
            ) from error


def _machine(raw: dict[str, Any]) -> MachineRecord:
    interfaces = [Interface(**{**nic, "links": [Link(**link) for link in nic["links"]]}) for nic in raw["interfaces"]]
    return MachineRecord(**{**raw, "interfaces": interfaces, "drives": [Drive(**drive) for drive in raw["drives"]]})


def _script_set(raw: dict[str, Any]) -> ScriptSet:
    return ScriptSet(**{**raw, "runs": [ScriptRun(**run) for run in raw["runs"]]})
