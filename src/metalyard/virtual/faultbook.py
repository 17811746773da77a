"""Fault records: what one named fault changes in a machine, a cable or a BMC, and what the gate must say of it.

A record is a YAML file in ``faults/``; :class:`Fault` is its schema. Texts and paths in it may hold ``{argument}``,
``{node}``, and of the part that it is about its fields (``{serial}``) and ``{pci}`` and ``{slot}``, the part's PCI
address with and without its function, as the kernel writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError

from metalyard.plan.model import Strict
from metalyard.virtual import fabric
from metalyard.virtual.hardware import Hardware

FOLDER = Path(__file__).with_name("faults")
SCENARIOS = Path(__file__).with_name("scenarios")

Kind = TypeVar("Kind", bound=Strict)
Value = str | int | float | bool | None


class FaultError(ValueError):
    """There is no such fault, or it does not fit the node; the text says what would."""


class Argument(Strict):
    """An argument of a fault."""

    description: str
    default: Value = None
    values: list[Value] = Field([], description="the only ones allowed; empty: any")


class HardwareChange(Strict):
    """One change of the hardware model: a field set, a line or part added, or a part taken away."""

    set: str | None = Field(None, description="path of a field, such as gpus.{index}.on_bus")
    append: str | None = Field(None, description="path of a list")
    remove: str | None = Field(None, description="path of a part of a list")
    value: Value = None


class CableChange(Strict):
    """One change of the cables; ends as in the plan."""

    swap: tuple[str, str] | None = Field(None, description="two ends whose plugs are exchanged")
    unplug: str | None = Field(None, description="the end of a cable that is taken away")
    degrade: str | None = Field(None, description="the end of a cable that comes up with less")
    width: str | None = None
    speed: str | None = None


class BmcChange(Strict):
    """One fault of the BMC's answers, as :class:`metalyard.virtual.bmc.faults.BmcFault` has them."""

    inject: dict[str, Any]


class Expectation(Strict):
    """What the gate must say: the outcome of one check."""

    check: str
    outcome: Literal["pass", "watch", "fail", "unknown"]


class Fault(Strict):
    """One record."""

    name: str
    description: str
    target: Literal["hardware", "cable", "bmc"]
    part: str | None = Field(None, description="path of the part that it is about, such as gpus.{index}")
    arguments: dict[str, Argument] = {}
    hardware: list[HardwareChange] = []
    cables: list[CableChange] = []
    bmc: list[BmcChange] = []
    expect: list[Expectation] = []
    stage: str = Field("prove", description="the stage that must find it")


class Placed(Strict):
    """One fault in one node, with its arguments: a line of a scenario, and what is in force."""

    node: str
    fault: str
    arguments: dict[str, Value] = {}


class Condition(Strict):
    """How machines are delivered: not a fault, a start."""

    nodes: list[str] | Literal["all"]
    firmware: dict[str, str] = {}
    bios: dict[str, Value] = {}


class Scenario(Strict):
    """What a virtual rack starts with."""

    name: str
    description: str
    conditions: list[Condition] = []
    faults: list[Placed] = []


@lru_cache(maxsize=1)
def catalogue() -> Mapping[str, Fault]:
    """All fault records, by name."""
    return {path.stem: _read(Fault, path) for path in sorted(FOLDER.glob("*.yml"))}


def fault(name: str) -> Fault:
    """The record of that name; :class:`FaultError` with those there are."""
    known = catalogue()
    if name not in known:
        raise FaultError(f"no fault '{name}'; known are {', '.join(known)}")
    return known[name]


def scenario(name: str) -> Scenario:
    """The scenario of that name, or in that file; :class:`FaultError` with those there are."""
    path = Path(name) if name.endswith((".yml", ".yaml")) else SCENARIOS / f"{name}.yml"
    if not path.is_file():
        known = ", ".join(sorted(found.stem for found in SCENARIOS.glob("*.yml")))
        raise FaultError(f"no scenario '{name}'; known are {known}, or the path of a file that ends in .yml")
    return _read(Scenario, path)


def _read(kind: type[Kind], path: Path) -> Kind:
    try:
        return kind.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        raise FaultError(f"{path} is not a right {kind.__name__.lower()}: {error}") from error


def arguments(record: Fault, given: Mapping[str, Value]) -> dict[str, Value]:
    """The fault's arguments with defaults filled in; :class:`FaultError` for unknown, missing or wrong ones."""
    unknown = sorted(set(given) - set(record.arguments))
    if unknown:
        known = ", ".join(record.arguments) or "none"
        raise FaultError(f"{record.name} has no argument '{unknown[0]}'; it has {known}")
    filled: dict[str, Value] = {}
    for name, argument in record.arguments.items():
        value = given.get(name, argument.default)
        if value is None:
            raise FaultError(f"{record.name} needs {name}=…: {argument.description}")
        if argument.values and value not in argument.values:
            listed = ", ".join(map(str, argument.values))
            raise FaultError(f"{record.name}: {name}={value}; expected one of {listed}")
        filled[name] = value
    return filled


def apply_hardware(placed: Placed, model: Hardware) -> Hardware:
    """The model with the fault in it; the given one stays as it is."""
    record = fault(placed.fault)
    values: dict[str, Any] = {"node": placed.node, **arguments(record, placed.arguments)}
    data = model.model_dump()
    if record.part is not None:
        part = _at(data, _filled(record.part, values).split("."), record.name)
        values = {**_part_values(part), **values}
    for change in record.hardware:
        value = _filled(change.value, values) if isinstance(change.value, str) else change.value
        path = _filled(change.set or change.append or change.remove or "", values).split(".")
        holder = _at(data, path[:-1], record.name)
        if change.append is not None:
            _at(data, path, record.name).append(value)
        elif change.remove is not None:
            del holder[_key(holder, path[-1], record.name)]
        else:
            holder[_key(holder, path[-1], record.name)] = value
    try:
        return Hardware.model_validate(data)
    except ValidationError as error:
        raise FaultError(f"{record.name} does not fit the hardware model of {placed.node}: {error}") from error


def _part_values(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {}
    values = dict(part)
    if "pci_address" in part:
        values["pci"] = str(part["pci_address"])[-12:].lower()
        values["slot"] = values["pci"].rpartition(".")[0]
    return values


def _filled(text: str, values: Mapping[str, Any]) -> str:
    try:
        return text.format_map(values)
    except (KeyError, ValueError, IndexError) as error:
        raise FaultError(f"the fault's text {text!r} can't be filled in: {error}") from error


def _at(data: Any, path: Sequence[str], name: str) -> Any:
    for step in path:
        data = data[_key(data, step, name)]
    return data


def _key(holder: Any, step: str, name: str) -> Any:
    """``step`` as a key of ``holder``: a field, or a place in a list."""
    if isinstance(holder, list):
        if step.lstrip("-").isdigit() and -len(holder) <= int(step) < len(holder):
            return int(step)
        raise FaultError(f"{name}: there is no number {step}; the node has 0 to {len(holder) - 1}")
    if isinstance(holder, dict) and step in holder:
        return step
    raise FaultError(f"{name}: the hardware model has no field '{step}'")


def apply_cables(placed: Placed, cables: list[fabric.PhysicalCable]) -> list[fabric.PhysicalCable]:
    """The cables with the fault in them."""
    record = fault(placed.fault)
    values: dict[str, Any] = {"node": placed.node, **arguments(record, placed.arguments)}
    try:
        for change in record.cables:
            if change.swap is not None:
                one, two = (_filled(end, values) for end in change.swap)
                cables = fabric.swap(cables, one, two)
            if change.unplug is not None:
                cables = fabric.unplug(cables, _filled(change.unplug, values))
            if change.degrade is not None:
                width = _filled(change.width, values) if change.width else None
                speed = _filled(change.speed, values) if change.speed else None
                cables = fabric.degrade(cables, _filled(change.degrade, values), width=width, speed=speed)
    except fabric.TopologyError as error:
        raise FaultError(f"{record.name} at {placed.node}: {error}") from error
    return cables


def bmc_faults(placed: Placed) -> list[dict[str, Any]]:
    """The faults of the BMC's answers that this one consists of, as data."""
    record = fault(placed.fault)
    values: dict[str, Any] = {"node": placed.node, **arguments(record, placed.arguments)}
    return [
        {key: _filled(value, values) if isinstance(value, str) else value for key, value in change.inject.items()}
        for change in record.bmc
    ]
