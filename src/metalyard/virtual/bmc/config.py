"""What one emulated BMC is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from metalyard.virtual.bmc.faults import BmcFault
from metalyard.virtual.hardware import Hardware
from metalyard.virtual.machine import Machine


class Quirks(BaseModel):
    """Ways in which real BMCs differ. A model brings its own, a BMC's configuration may add to them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    require_if_match: bool = Field(False, description="a PATCH without If-Match is refused with 428")
    refuse_if_match_on_actions: bool = Field(False, description="an action with If-Match is refused with 412")
    boot_settings_only: bool = Field(False, description="the boot override is set at the settings resource only")
    nics_when_on: bool = Field(False, description="network adapters are in the inventory only while the host is on")
    busy_conflict: bool = Field(False, description="409 to a reset while another one is under way, instead of queueing")
    password_change_enforced: bool = Field(
        True, description="nothing but the password change is allowed until it is done; otherwise only flagged"
    )
    page_size: int = Field(75, ge=1, description="members on one page of a collection")
    basic_auth: bool = True


class Timings(BaseModel):
    """How long things take, in seconds. Real machines need minutes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    post: float = Field(0.3, ge=0, description="self test before a reset's settings and firmware are live")
    update: float = Field(1.5, ge=0, description="writing a firmware image")
    bmc_reset: float = Field(1.5, ge=0, description="how long the BMC is away when it restarts")
    machine: float = Field(120.0, gt=0, description="the longest that a machine may take to switch on or off")


@dataclass
class BmcConfig:
    """One BMC. ``address`` is ``IP:port`` (port 0: any free one). Faults and quirks may be given as plain data.

    ``hardware`` is called for every answer, so that a changed model shows at once. Without ``certificate`` and
    ``key`` the fleet's ``tls`` must provide the context. Without ``state_path`` nothing survives the process.
    ``on_firmware`` hears ``(component, version)`` when firmware goes live, so that the node's tools can follow.
    """

    node: str
    address: str
    hardware: Callable[[], Hardware]
    machine: Machine
    factory_user: str = "admin"
    factory_password: str = ""
    model: str = "dgx-h100"
    faults: Sequence[BmcFault | Mapping[str, Any]] = ()
    quirks: Mapping[str, Any] = field(default_factory=dict)
    certificate: Path | None = None
    key: Path | None = None
    state_path: Path | None = None
    timings: Timings = field(default_factory=Timings)
    on_firmware: Callable[[str, str], None] | None = None

    @property
    def host(self) -> str:
        """The address without its port."""
        return self.address.rpartition(":")[0] or self.address

    @property
    def port(self) -> int:
        """The port; 443 where the address has none."""
        port = self.address.rpartition(":")[2] if ":" in self.address else ""
        return int(port) if port else 443
