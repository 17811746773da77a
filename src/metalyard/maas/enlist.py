"""Makes MAAS know the planned machine, once: found by its boot MAC, created where missing, brought to the plan."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from metalyard.maas.errors import MaasError, OutcomeUnknown, Refused
from metalyard.maas.machine import Machine
from metalyard.maas.site import Changes, Site
from metalyard.plan.model import Node
from metalyard.sweep import NodeError

POWER_TYPE = "redfish"


class Enlister:
    """For the nodes of one sweep. ``verify``: what ``power_verify_ssl`` is to be, None where MAAS has no such field."""

    def __init__(self, site: Site, power: dict[str, dict[str, str]], verify: str | None) -> None:
        self._site = site
        self._power = power
        self._verify = verify
        # Parallel creations with one MAC make several machines in MAAS: one at a time for each MAC.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def enlist(self, node: Node, changes: Changes) -> Machine | None:
        """The node's machine; None where it is missing and this is check mode."""
        machine = self._site.one(node, self._site.machines.get(node.boot_mac, []))
        wanted = self._power_of(node)
        if machine is not None:
            return await self._settle(node, machine, wanted, changes)
        async with self._locks[node.boot_mac]:
            machine = await self._look(node)
            if machine is not None:
                return await self._settle(node, machine, wanted, changes)
            changes.note("machine", "", f"{node.name}, {node.boot_mac}, BMC {node.bmc.address}")
            if self._site.context.check:
                return None
            self._site.context.progress(node.name, "enlisting")
            return await self._settle(node, await self._create(node, wanted), wanted, changes, fresh=True)

    async def _create(self, node: Node, power: dict[str, str]) -> Machine:
        fields = [
            ("architecture", self._site.context.plan.maas.architecture),
            ("mac_addresses", node.boot_mac),
            ("hostname", node.name),
            ("commission", "false"),
            ("power_type", POWER_TYPE),
            *((f"power_parameters_{key}", value) for key, value in power.items()),
        ]
        problem: MaasError | None = None
        try:
            await self._site.client.create_machine(fields)
        except (OutcomeUnknown, Refused) as error:
            problem = error  # it may be there all the same: another one's call, or ours that broke off
        machine = await self._look(node)
        if machine is not None:
            return machine
        if isinstance(problem, Refused) and any(
            "already exists" in text for text in problem.fields.get("hostname", [])
        ):
            raise NodeError(
                f"{node.name}: MAAS has another machine of this name, without the planned boot MAC {node.boot_mac}",
                "Correct boot_mac in the plan, or rename or delete that machine in MAAS.",
            )
        raise problem or MaasError("MAAS took the new machine and does not have it", "Run the same command again.")

    async def _look(self, node: Node) -> Machine | None:
        return self._site.one(node, await self._site.client.machines(macs=[node.boot_mac]))

    def _power_of(self, node: Node) -> dict[str, str]:
        try:
            entry = self._site.context.secrets.read(f"bmc/{node.name}")
        except ValueError as error:
            raise NodeError(f"{node.name}: {error}", "Put the secret store in order, then run again.") from None
        if not entry or not entry.get("password"):
            raise NodeError(
                f"{node.name}: there is no BMC password in the secret store (bmc/{node.name}), which MAAS needs",
                "Run the stage 'bmc' first: it sets the password and keeps it.",
            )
        power = {
            "power_address": node.bmc.address,
            "power_user": str(entry.get("user", self._site.context.plan.bmc.user)),
            "power_pass": str(entry["password"]),
        }
        return power if self._verify is None else {**power, "power_verify_ssl": self._verify}

    async def _settle(
        self, node: Node, machine: Machine, power: dict[str, str], changes: Changes, *, fresh: bool = False
    ) -> Machine:
        """Bring name, pool, zone and power parameters to the plan, in one call and only what differs."""
        plan = self._site.context.plan.maas
        fields: list[tuple[str, str]] = []
        for key, have, want in (
            ("hostname", machine.hostname, node.name),
            ("pool", machine.pool, plan.pool),
            ("zone", machine.zone, plan.zone),
        ):
            if have != want:
                fields.append((key, want))
                changes.note(key, have, want)
        given = power if fresh else self._power.get(machine.system_id, {})
        if machine.power_type != POWER_TYPE or any(given.get(key) != value for key, value in power.items()):
            fields += [("power_type", POWER_TYPE)]
            fields += [(f"power_parameters_{key}", value) for key, value in power.items()]
            if machine.power_type != POWER_TYPE:
                changes.note("power_type", machine.power_type, POWER_TYPE)
            for key, value in power.items():
                if given.get(key) != value:
                    secret = key == "power_pass"
                    changes.note(
                        key,
                        "(another one)" if secret else given.get(key, ""),
                        "(the one in the secret store)" if secret else value,
                    )
        if not fields or self._site.context.check:
            return machine
        if machine.locked:
            raise NodeError(
                f"{node.name}: {machine.system_id} is locked in MAAS and differs from the plan in "
                + ", ".join(key for key, _, _ in changes.rows),
                "Unlock it in MAAS, then run the same command again.",
            )
        return await self._site.client.update_machine(machine.system_id, fields)
