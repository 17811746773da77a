"""Boot mode and boot override of a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from metalyard.redfish.client import Bmc
from metalyard.redfish.documents import dig, link
from metalyard.redfish.errors import BmcError
from metalyard.redfish.layout import Layout

Mode = Literal["uefi", "legacy"]
MODES: dict[str, str] = {"uefi": "UEFI", "legacy": "Legacy"}


@dataclass(frozen=True)
class BootState:
    """The override as the BMC shows it. ``mode`` is None where it does not say; ``modes`` are those it allows."""

    path: str
    target: str | None
    enabled: str | None
    mode: str | None
    modes: tuple[str, ...] | None
    targets: tuple[str, ...] | None
    offers_mode: bool

    def text(self) -> str:
        """For a diff."""
        return f"boot mode: {self.mode or ('/'.join(self.modes or ()) or 'not said')}\n"


async def read_boot(bmc: Bmc, layout: Layout) -> BootState:
    """The host's boot override, with what is allowed from the system or its settings object."""
    path, document = layout.host
    document = await bmc.get(path)
    settings_path = link(document, "@Redfish.Settings", "SettingsObject")
    boots = [dig(document, "Boot")]
    writes_to = path
    if settings_path and bmc.quirks.boot_at_settings:
        boots.append(dig(await bmc.find(settings_path), "Boot"))
        writes_to = settings_path
    shown = boots[0] if isinstance(boots[0], dict) else {}
    return BootState(
        path=writes_to,
        target=shown.get("BootSourceOverrideTarget"),
        enabled=shown.get("BootSourceOverrideEnabled"),
        mode=shown.get("BootSourceOverrideMode"),
        modes=_allowed(boots, "BootSourceOverrideMode"),
        targets=_allowed(boots, "BootSourceOverrideTarget"),
        offers_mode=any(isinstance(boot, dict) and "BootSourceOverrideMode" in boot for boot in boots),
    )


def mode_is_right(boot: BootState, wanted: Mode) -> bool:
    """Whether the host boots in the wanted mode already, or can do nothing else."""
    name = MODES[wanted]
    if boot.mode is not None:
        return boot.mode == name
    # No value: firmware that knows one mode only says so by what it allows, or by having no such property.
    return boot.modes == (name,) if boot.modes is not None else wanted == "uefi"


async def set_mode(bmc: Bmc, layout: Layout, boot: BootState, wanted: Mode) -> BootState:
    """Set the mode and read it back. :class:`BmcError` where the host can't boot so, or the BMC kept another."""
    name = MODES[wanted]
    if not boot.offers_mode or (boot.modes is not None and name not in boot.modes):
        raise BmcError(
            f"{bmc.node}: the host can't boot in mode {name} "
            f"(the BMC allows {', '.join(boot.modes or ()) or 'no choice'})",
            "Correct bmc.boot_mode in the plan.",
        )
    await bmc.patch(boot.path, {"Boot": {"BootSourceOverrideMode": name}})

    async def taken() -> BootState | None:
        read = await read_boot(bmc, layout)
        return read if read.mode == name else None

    after = await bmc.pace.wait_for(taken, deadline=20)
    if after is None:
        raise BmcError(
            f"{bmc.node}: the BMC accepted boot mode {name} and still shows {(await read_boot(bmc, layout)).mode}",
            "Set the mode in the host's firmware setup, or as a BIOS attribute in the profile.",
        )
    return after


async def override_once(bmc: Bmc, layout: Layout, targets: Sequence[str], mode: Mode = "uefi") -> str:
    """Boot from the first of the targets that the host offers, the next time only. Returns that target.

    The mode goes along every time: Supermicro falls back to Legacy without it.
    """
    boot = await read_boot(bmc, layout)
    chosen = next((t for t in targets if boot.targets is None or t in boot.targets), None)
    if chosen is None:
        raise BmcError(
            f"{bmc.node}: the host offers none of the boot targets {', '.join(targets)} "
            f"(it offers {', '.join(boot.targets or ())})",
            "Switch on network boot in the host's firmware setup.",
        )
    change: dict[str, Any] = {"BootSourceOverrideTarget": chosen, "BootSourceOverrideEnabled": "Once"}
    if boot.offers_mode:
        change["BootSourceOverrideMode"] = MODES[mode]
    await bmc.patch(boot.path, {"Boot": change})
    return chosen


def _allowed(boots: list[Any], name: str) -> tuple[str, ...] | None:
    for boot in boots:
        values = dig(boot, f"{name}@Redfish.AllowableValues")
        if isinstance(values, list):
            return tuple(str(value) for value in values)
    return None
