"""BIOS attributes: what differs from the profile, what waits for a reset already, and the reset that applies it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metalyard.redfish.client import Bmc
from metalyard.redfish.documents import dig, link
from metalyard.redfish.errors import BmcError, NotReadyError, UnreachableError
from metalyard.redfish.layout import Layout
from metalyard.redfish.power import power_state, restart, switch_off

Value = str | int | bool
APPLIED = 1200.0
"""Seconds for a host to start and take its new BIOS attributes; memory training of 2 TiB is slow."""


@dataclass(frozen=True)
class BiosState:
    """Attributes in force, and those that wait for a reset with another value."""

    path: str
    settings_path: str
    current: Mapping[str, Any]
    pending: Mapping[str, Any]
    on_reset: bool
    """Whether a change must say that it is for the next reset; without it, iDRAC makes no job of it."""


@dataclass(frozen=True)
class BiosDrift:
    """What is left to do, by the BMC's own attribute names."""

    write: dict[str, Value] = field(default_factory=dict)
    """To be written."""
    waiting: dict[str, Value] = field(default_factory=dict)
    """Written before; the next reset applies it."""
    unknown: tuple[str, ...] = ()
    """Names that this BIOS does not have."""

    @property
    def right(self) -> bool:
        """Whether every attribute is in force."""
        return not (self.write or self.waiting or self.unknown)


async def read_bios(bmc: Bmc, layout: Layout) -> BiosState | None:
    """The host's BIOS; None where the BMC shows none."""
    path = link(layout.host[1], "Bios")
    document = await bmc.find(path)
    current = dig(document, "Attributes")
    if path is None or document is None or not isinstance(current, Mapping):
        return None
    settings_path = link(document, "@Redfish.Settings", "SettingsObject") or path
    settings = dig(await bmc.find(settings_path), "Attributes") if settings_path != path else None
    times = dig(document, "@Redfish.Settings", "SupportedApplyTimes")
    return BiosState(
        path=path,
        settings_path=settings_path,
        current=current,
        # Some BMCs list every attribute there, some only what waits, and some have no Attributes when nothing does.
        pending={
            name: value
            for name, value in (settings if isinstance(settings, Mapping) else {}).items()
            if value is not None and name in current and not same(value, current[name])
        },
        on_reset=isinstance(times, list) and "OnReset" in times,
    )


def drift(state: BiosState, desired: Mapping[str, Value]) -> BiosDrift:
    """Compare; pure. A value that waits to be changed away from the desired one is written, too."""
    write: dict[str, Value] = {}
    waiting: dict[str, Value] = {}
    unknown: list[str] = []
    for wanted_name, wanted in desired.items():
        name = actual_name(wanted_name, state.current)
        if name is None:
            unknown.append(wanted_name)
            continue
        value = _like(state.current[name], wanted)
        if name in state.pending:
            if same(state.pending[name], wanted):
                waiting[name] = value
            else:
                write[name] = value
        elif not same(state.current[name], wanted):
            write[name] = value
    return BiosDrift(write, waiting, tuple(unknown))


def actual_name(wanted: str, current: Mapping[str, Any]) -> str | None:
    """The BMC's name of an attribute. Supermicro adds a suffix that differs by release (``AES_NI_3C75``)."""
    if wanted in current:
        return wanted
    pattern = re.compile(re.escape(wanted) + r"_[0-9A-Fa-f]{4}")
    suffixed = [name for name in current if pattern.fullmatch(name)]
    return suffixed[0] if len(suffixed) == 1 else None


def same(left: object, right: object) -> bool:
    """Whether two values mean the same: BMCs give ``1`` for ``"1"`` and ``"True"`` for true."""
    return left == right if type(left) is type(right) else str(left).casefold() == str(right).casefold()


def _like(current: object, wanted: Value) -> Value:
    """The wanted value in the type that the BMC uses, where it is the same in both."""
    if isinstance(current, str) and not isinstance(wanted, str):
        return str(wanted)
    if isinstance(current, bool) and str(wanted).casefold() in ("true", "false"):
        return str(wanted).casefold() == "true"
    if isinstance(current, int) and not isinstance(current, bool) and re.fullmatch(r"-?\d+", str(wanted)):
        return int(str(wanted))
    return wanted


async def write_bios(bmc: Bmc, state: BiosState, change: Mapping[str, Value]) -> None:
    """Leave the values for the next reset."""
    body: dict[str, Any] = {"Attributes": dict(change)}
    if state.on_reset:
        body["@Redfish.SettingsApplyTime"] = {"ApplyTime": "OnReset"}
    await bmc.patch(state.settings_path, body)


async def apply_bios(bmc: Bmc, layout: Layout, desired: Mapping[str, Value], *, deadline: float = APPLIED) -> None:
    """Reset the host and wait until every desired attribute is in force; a host that was off is off again after.

    :class:`BmcError` names each attribute that did not take.
    """
    was_off = await power_state(bmc, layout) == "Off"
    await restart(bmc, layout)
    left = BiosDrift(unknown=("all",))
    seen: Mapping[str, Any] = {}

    async def applied() -> bool | None:
        nonlocal left, seen
        bmc.forgive()
        try:
            state = await read_bios(bmc, layout)
        except (UnreachableError, NotReadyError):
            return None
        if state is None:
            return None
        left, seen = drift(state, desired), state.current
        return True if left.right else None

    if await bmc.pace.wait_for(applied, deadline=deadline) is None:
        wrong = {**left.write, **left.waiting}
        listed = ", ".join(f"{name} is {seen.get(name)!r}, expected {value!r}" for name, value in wrong.items())
        raise BmcError(
            f"{bmc.node}: BIOS attributes did not take within {deadline:.0f} s of the reset: "
            f"{listed or 'they can not be read'}",
            "Look at the host's console for a stop in its start, and at the BMC's jobs for a change that was refused.",
        )
    if was_off:
        await switch_off(bmc, layout)
