"""What the rack remembers: scenario, faults in force, firmware that has gone live; and what follows from it.

Models and cables are worked out anew from plan, scenario and faults whenever one of them changes, so that taking a
fault out leaves nothing of it behind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from metalyard.files import write_atomically
from metalyard.plan.catalogue import load_baseline, load_profile
from metalyard.plan.model import Node, SitePlan
from metalyard.virtual import fabric, faultbook, models
from metalyard.virtual.faultbook import FaultError, Placed, Scenario
from metalyard.virtual.hardware import Hardware, Model, save


class Memory(Model):
    """The file ``rack.json`` in the rack's home."""

    scenario: str
    conditions: list[faultbook.Condition] = []
    faults: list[Placed] = []
    firmware: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Node to component to the version that went live since delivery."""


class Book:
    """The rack's memory, kept in a file, and the models that follow from it."""

    def __init__(self, plan: SitePlan, home: Path, memory: Memory) -> None:
        self.plan = plan
        self.home = home
        self.memory = memory
        self.baseline = load_baseline(plan)

    @classmethod
    def begin(cls, plan: SitePlan, home: Path, scenario: Scenario) -> Book:
        """The memory in ``home``; a scenario other than the last one's puts its own faults in the place of all."""
        path = home / "rack.json"
        memory = None
        if path.exists():
            memory = _read(path)
            if memory.scenario != scenario.name:
                memory.scenario, memory.faults = scenario.name, list(scenario.faults)
        if memory is None:
            memory = Memory(scenario=scenario.name, conditions=scenario.conditions, faults=list(scenario.faults))
        book = cls(plan, home, memory)
        for placed in memory.faults:
            book._known(placed.node)
        book.write_models()
        book.save()
        return book

    @classmethod
    def open(cls, plan: SitePlan, home: Path) -> Book:
        """The memory that ``begin`` has left; ``OSError`` or :class:`FaultError` without a right one."""
        return cls(plan, home, _read(home / "rack.json"))

    def save(self) -> None:
        """Keep it."""
        write_atomically(self.home / "rack.json", self.memory.model_dump_json(indent=1).encode())

    def _known(self, name: str) -> Node:
        try:
            return self.plan.node(name)
        except KeyError:
            listed = ", ".join(node.name for node in self.plan.nodes)
            raise FaultError(f"no node '{name}' in the plan; it has {listed}") from None

    def folder(self, node: str) -> Path:
        """The folder that the node's container holds."""
        return self.home / "nodes" / node

    def add(self, node: str, name: str, given: dict[str, Any]) -> Placed:
        """Put a fault in; the same one again takes the new arguments."""
        self._known(node)
        placed = Placed(node=node, fault=name, arguments=given)
        faultbook.arguments(faultbook.fault(name), given)
        before = list(self.memory.faults)
        self.memory.faults = [other for other in before if (other.node, other.fault) != (node, name)] + [placed]
        try:
            self.write_models()
        except FaultError:
            self.memory.faults = before
            raise
        self.save()
        return placed

    def remove(self, node: str, name: str) -> Placed:
        """Take a fault out; :class:`FaultError` where it is not in."""
        self._known(node)
        for placed in self.memory.faults:
            if (placed.node, placed.fault) == (node, name):
                self.memory.faults.remove(placed)
                self.write_models()
                self.save()
                return placed
        present = ", ".join(other.fault for other in self.memory.faults if other.node == node) or "none"
        raise FaultError(f"{node} does not have the fault '{name}'; it has {present}")

    def firmware_live(self, node: str, component: str, version: str) -> None:
        """A component runs another version from now on."""
        self.memory.firmware.setdefault(node, {})[component] = version
        self.write_model(self.model(self.plan.node(node), self.cables()))
        self.save()

    def cables(self) -> list[fabric.PhysicalCable]:
        """The cables as they are plugged."""
        cables = fabric.as_planned(self.plan)
        for placed in self.memory.faults:
            cables = faultbook.apply_cables(placed, cables)
        return cables

    def bmc_faults(self, node: str) -> list[dict[str, Any]]:
        """The faults of a BMC's answers that are in force."""
        return [data for placed in self.memory.faults if placed.node == node for data in faultbook.bmc_faults(placed)]

    def model(self, node: Node, cables: list[fabric.PhysicalCable]) -> Hardware:
        """The node's machine as it is now."""
        firmware: dict[str, str] = {}
        bios: dict[str, Any] = {}
        for condition in self.memory.conditions:
            if condition.nodes == "all" or node.name in condition.nodes:
                firmware |= condition.firmware
                bios |= condition.bios
        firmware |= self.memory.firmware.get(node.name, {})
        model = models.generate(node, load_profile(self.plan, node.profile), self.baseline, firmware=firmware)
        model.bios |= bios
        fabric.adapters_see(model, cables)
        for placed in self.memory.faults:
            if placed.node == node.name:
                model = faultbook.apply_hardware(placed, model)
        return model

    def write_model(self, model: Hardware) -> None:
        """Bring the files that tools and BMC read to the machine as it is now."""
        folder = self.folder(model.node)
        path, adapters = folder / "hardware.json", folder / "sysfs-infiniband"
        if path.exists() and adapters.exists() and path.read_text() == model.model_dump_json(indent=1):
            return
        # The model last: as long as it is the old one, an interrupted change is made again.
        models.write_sysfs(adapters, models.sysfs_infiniband(model))
        save(model, path)

    def write_models(self) -> None:
        """The same for every node; nothing is written before all of them are known to be right."""
        cables = self.cables()
        fabric.topology(self.plan, cables)
        for model in [self.model(node, cables) for node in self.plan.nodes]:
            self.write_model(model)


def _read(path: Path) -> Memory:
    try:
        return Memory.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, ValidationError) as error:
        raise FaultError(
            f"{path} can't be read: {error}; run 'metalyard virtual down' and remove it to start anew"
        ) from error
