"""The site plan's schema: what should be. Every other description of the site is derived from it.

Shapes only, and the rules that need one object to be judged. Rules that need the whole plan
(duplicates, dangling references) are in :mod:`metalyard.plan.rules`, so that each error can name its line.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

HOSTNAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
"""RFC 1123 label: MAAS refuses anything else as a hostname."""


def _mac(value: object) -> str:
    text = str(value).strip().lower().replace("-", ":")
    if not re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", text):
        raise ValueError(
            "expected a MAC address such as '0c:42:a1:00:00:01' (quote it: YAML reads some MACs as numbers)"
        )
    return text


def _address(value: str) -> str:
    host, _, port = value.rpartition(":") if value.count(":") == 1 else (value, "", "")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host) or re.fullmatch(r"[0-9.]+", host):
            raise ValueError("expected an IP address or host name, with ':port' only where it is not 443") from None
    if port and not 0 < int(port) < 65536:
        raise ValueError("the port must be between 1 and 65535")
    return value


def _interface(value: str) -> str:
    ipaddress.ip_interface(value)
    return value


def _guid(value: object) -> str:
    text = str(value).strip().lower().removeprefix("0x").replace(":", "")
    if not re.fullmatch(r"[0-9a-f]{16}", text):
        raise ValueError("expected a GUID of 16 hexadecimal digits such as '0xb83fd20300a10001' (quote it)")
    return "0x" + text


Mac = Annotated[str, BeforeValidator(_mac)]
Guid = Annotated[str, BeforeValidator(_guid)]
BmcAddress = Annotated[str, AfterValidator(_address)]
IpInterface = Annotated[str, AfterValidator(_interface)]
Name = Annotated[str, StringConstraints(pattern=HOSTNAME)]


class Strict(BaseModel):
    """Refuses unknown keys: a typo in a plan is an error, not a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SecretRef(Strict):
    """Where a secret is found; the plan never holds one. Exactly one of the fields is given."""

    env: str | None = Field(None, description="name of an environment variable")
    file: Path | None = Field(None, description="a file, relative to the plan, readable by its owner only")


class Tls(Strict):
    """How a server's certificate is verified: the system's authorities, a CA file, or a pin per node."""

    ca: Path | None = Field(None, description="PEM file of the authority, relative to the plan")


class BmcPolicy(Strict):
    """What holds for every BMC of the site."""

    user: str = Field("root", description="the account that Metalyard uses and whose password it rotates")
    factory_user: str = Field("root", description="the account as delivered")
    factory_password: SecretRef = Field(description="the password as delivered")
    tls: Tls = Tls()
    ntp_servers: list[str] = []
    boot_mode: Literal["uefi", "legacy"] = "uefi"
    concurrency: int = Field(64, ge=1, le=4096, description="BMCs spoken to at once")
    timeout: float = Field(30.0, gt=0, description="seconds for one request")
    deadline: float = Field(900.0, gt=0, description="seconds for one node's whole stage")


class MaasPolicy(Strict):
    """The MAAS region that is the source of truth for provisioning."""

    url: str = Field(pattern=r"^https?://[^/]+/MAAS/?$", description="up to and with /MAAS")
    key: SecretRef = Field(description="an API key, consumer:token:secret")
    tls: Tls = Tls()
    bmc_tls_verify: bool = Field(
        True,
        description="whether MAAS's own power driver verifies BMC certificates; 3.7's can't, and false accepts that",
    )
    distro_series: str = "jammy"
    hwe_kernel: str = ""
    pool: str = "default"
    zone: str = "default"
    architecture: str = "amd64/generic"
    tags: list[str] = []
    parallel_power_calls: int = Field(2, ge=1, description="calls that block on a BMC, in flight at once")
    commission_timeout: float = Field(2700, gt=0, description="seconds")
    deploy_timeout: float = Field(4500, gt=0, description="seconds")


class Ssh(Strict):
    """How the controller reaches a deployed node."""

    user: str = "metalyard"
    key: Path = Field(Path("~/.ssh/id_ed25519"), description="the private key; its .pub goes into the user data")
    port: int = 22


class Fabric(Strict):
    """How the InfiniBand fabric is read."""

    hosts: list[Name] = Field([], description="hosts with infiniband-diags and a port on the fabric, tried in order")
    sm_user: str = "metalyard"


class Images(Strict):
    """Container images every node holds, and where from."""

    mirror: str | None = Field(None, description="URL of the registry mirror, http(s)://host:port")
    mirror_ca: Path | None = None
    preload: list[str] = Field([], description="references, each with a tag or digest")


class Gate(Strict):
    """How the gate decides at this site."""

    mode: Literal["enforce", "shadow"] = "enforce"
    admission_days: int = Field(30, ge=1, description="days until an admission expires")
    checks: Path | None = Field(None, description="folder of the site's own checks")
    breaker_percent: int = Field(50, ge=1, le=100, description="stop and ask when more of a run would be set aside")


class Rack(Strict):
    """A rack and the failure domains it belongs to."""

    name: Name
    row: str = ""
    power: str = Field("", description="power feed or bus")
    units: int = Field(48, ge=1, le=60)


class Bmc(Strict):
    """One node's BMC."""

    address: BmcAddress
    fingerprint: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of its certificate; instead of a CA"
    )


class Node(Strict):
    """One machine: where it is, how it is reached, what it is."""

    name: Name
    rack: Name
    unit: int = Field(ge=1, description="lowest rack unit")
    serial: str = Field(min_length=1, description="chassis serial as the BMC reports it")
    profile: str
    bmc: Bmc
    boot_mac: Mac = Field(description="the NIC that boots from the network")
    address: IpInterface = Field(description="its address on the provisioning network, with prefix")
    hca_guids: dict[str, Guid] = Field({}, description="port GUID by HCA device, such as mlx5_0")
    spare: bool = False
    variables: dict[str, Any] = Field({}, description="Ansible variables of this node alone")


class Switch(Strict):
    """An InfiniBand or Ethernet switch."""

    name: Name
    rack: Name
    unit: int = Field(ge=1)
    kind: Literal["ib", "ethernet"] = "ib"
    ports: int = Field(64, ge=1)
    guid: Guid | None = None


class Cable(Strict):
    """One cable, by its two ends: ``node:device`` (``gpu-1:mlx5_0``) or ``switch:port`` (``leaf-1:4``)."""

    ends: tuple[str, str]
    label: str = ""
    width: Literal["1x", "2x", "4x", "8x", "12x"] = "4x"
    speed: Literal["FDR", "EDR", "HDR", "NDR", "XDR"] = "NDR"


class HostEntry(Strict):
    """A host beside the fleet that plays address: a fabric manager, a build host."""

    name: Name
    address: str
    groups: list[str] = []
    variables: dict[str, Any] = {}


class SitePlan(Strict):
    """The whole plan, after reading. ``root`` is the folder that relative paths start from."""

    plugin: Literal["metalyard.fleet.site"] = "metalyard.fleet.site"
    schema_: Literal[1] = Field(1, alias="schema")
    site: Name
    state: Path | None = Field(None, description="where runs, evidence and the ledger are kept")
    ledger: str | None = Field(
        None, description="SQLAlchemy URL without a password; default SQLite in the state folder"
    )
    include: list[Path] = Field([], description="further plan files, relative to this one")
    baseline: str = Field(description="name of the tested set of versions")
    profiles: Path | None = Field(None, description="folder of the site's own profiles")
    baselines: Path | None = Field(None, description="folder of the site's own baselines")
    bmc: BmcPolicy
    maas: MaasPolicy
    ssh: Ssh = Ssh()
    fabric: Fabric = Fabric()
    images: Images = Images()
    gate: Gate = Gate()
    racks: list[Rack]
    nodes: list[Node]
    switches: list[Switch] = []
    cables: list[Cable] = []
    hosts: list[HostEntry] = []
    variables: dict[str, Any] = Field({}, description="Ansible variables of every node")

    root: Path = Field(Path("."), exclude=True)
    source: Path = Field(Path("site.yml"), exclude=True)

    def path(self, value: Path) -> Path:
        """Resolve a path of the plan: ``~`` expanded, relative ones from the plan's folder."""
        return (self.root / value.expanduser()).resolve()

    def node(self, name: str) -> Node:
        """The node of that name; ``KeyError`` when the plan has none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def state_dir(self) -> Path:
        """Folder of runs, evidence, secrets and the default ledger."""
        if self.state is not None:
            return self.path(self.state)
        return (Path("~/.local/state/metalyard").expanduser() / self.site).resolve()

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy URL of the ledger."""
        return self.ledger or f"sqlite:///{self.state_dir / 'ledger.sqlite'}"
