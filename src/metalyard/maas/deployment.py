"""Takes one machine from whatever status MAAS has it in to deployed with the planned address."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import time
from collections import Counter
from collections.abc import Awaitable
from typing import Any

from metalyard.maas.errors import BmcTrouble, MaasError, NotFound, OutcomeUnknown, WrongState
from metalyard.maas.machine import Machine
from metalyard.maas.site import Changes, Site
from metalyard.maas.statuses import BROKEN, DEPLOYING, FAILED_COMMISSIONING, FAILED_DEPLOYMENT, Move, after
from metalyard.maas.userdata import digest
from metalyard.plan.model import Node
from metalyard.sweep import NodeError

MARK = "metalyard: "
"""Begins the reason of a machine that we marked broken."""
SITE_NOTE = "metalyard-site"
DATA_NOTE = "metalyard-user-data"
"""Workload annotations of a deployment: whose it is, and a digest of its user data. Gone once it is released."""
TRIES = 3

_WOULD = {
    Move.COMMISSION: "would be commissioned and deployed",
    Move.ALLOCATE: "would be deployed",
    Move.DEPLOY: "would be deployed",
    Move.WAIT: "MAAS is at it; would be waited for, and deployed",
}


class Deployment:
    """One node's way."""

    def __init__(
        self,
        site: Site,
        node: Node,
        user_data: bytes,
        subnet: dict[str, Any] | None,
        changes: Changes,
    ) -> None:
        self._site, self._node, self._data, self._subnet, self._changes = site, node, user_data, subnet, changes
        self._tries: Counter[str] = Counter()
        self._ip = str(ipaddress.ip_interface(node.address).ip)
        self._name = node.name

    async def run(self, machine: Machine) -> tuple[Machine, str]:
        """The deployed machine and a sentence; in check mode the machine as it is and what would be done."""
        began = machine.status_name
        again = self._anew(machine)
        while True:
            row = after(machine.status)
            if row.ours and machine.owner != self._site.me:
                raise self._error(
                    machine,
                    f"is {row.name} in MAAS by '{machine.owner}', not by '{self._site.me}' whose key this is",
                    "Release it in MAAS, or use the key of that user, then run the same command again.",
                )
            if row.move is Move.DONE and machine.osystem:
                if began != machine.status_name:
                    self._changes.note("status", began, machine.status_name)
                return machine, self._arrived(machine)
            if row.move is Move.BROKEN and not self._fixed:
                raise self._broken(machine)
            if row.move is Move.STOP and not again:
                raise await self._stopped(machine)
            if self._site.context.check:
                self._changes.note("status", began, "Deployed")
                return machine, f"{self._name}: is {row.name} in MAAS; {_WOULD.get(row.move, 'would be deployed anew')}"
            if again:
                await self._act(machine, again, again)
                again = None
            elif row.move is Move.DONE:  # taken back from Broken: the status says deployed, the disk does not count
                await self._act(machine, "release", "release", [("comment", MARK + "no system on it")])
            elif row.move is Move.BROKEN:
                await self._act(machine, "mark_fixed", "mark_fixed")
            elif row.move is Move.WAIT:
                machine = await self._wait(machine)
                continue
            else:
                await self._forward(machine, row.move)
            machine = await self._site.client.machine(machine.system_id)

    def _anew(self, machine: Machine) -> str | None:
        """The operation that begins anew from a failure, where the operator asked for that."""
        asked = self._site.context.options.get("retry_failed", ())
        return after(machine.status).again if asked is True or self._name in (asked or ()) else None

    async def _forward(self, machine: Machine, move: Move) -> None:
        if move is Move.COMMISSION:
            # MAAS would set up the BMC its own way and write its own user into the power parameters: that is done here.
            form = [("testing_scripts", "none"), ("skip_bmc_config", "1")]
            await self._act(machine, "commission", "commission", form)
            return
        if not await self._place(machine):
            return
        if move is Move.ALLOCATE:
            await self._try(machine, "allocate", self._site.client.allocate(machine.system_id))
            return
        notes = {SITE_NOTE: self._site.context.plan.site, DATA_NOTE: digest(self._data)}
        if {key: machine.annotations.get(key) for key in notes} != notes:
            form = list(notes.items())
            call = self._site.client.act(machine.system_id, "set_workload_annotations", form)
            if not await self._try(machine, "annotate", call):
                return
        plan = self._site.context.plan.maas
        form = [
            ("user_data", base64.b64encode(self._data).decode()),
            ("distro_series", plan.distro_series),
            ("comment", f"{MARK}site {self._site.context.plan.site}"),
        ]
        if plan.hwe_kernel:
            form.append(("hwe_kernel", plan.hwe_kernel))
        await self._try(machine, "deploy", self._site.client.act(machine.system_id, "deploy", form))

    async def _act(self, machine: Machine, what: str, op: str, form: list[tuple[str, str]] | None = None) -> None:
        """An operation that blocks on the BMC: few at once, since each holds a slot of the region."""
        async with self._site.power:
            self._site.context.progress(self._name, f"asking MAAS to {what.replace('_', ' ')}")
            await self._try(machine, what, self._site.client.act(machine.system_id, op, form or (), blocking=True))

    async def _try(self, machine: Machine, what: str, call: Awaitable[Machine]) -> bool:
        """Make a call; False where its outcome is not known or the status was another one: the next look decides."""
        self._tries[what] += 1
        try:
            await call
        except BmcTrouble as error:
            where = f"{error.message} (BMC {self._node.bmc.address})"
            raise self._error(machine, where, error.next_step) from None
        except (OutcomeUnknown, WrongState) as error:
            if self._tries[what] >= TRIES:
                raise self._error(machine, f"{error.message}, {TRIES} times", error.next_step) from None
            await asyncio.sleep(self._site.pause)
            return False
        except MaasError as error:
            raise self._error(machine, error.message, error.next_step) from None
        else:
            if self._tries[what] > TRIES:
                raise self._error(
                    machine,
                    f"MAAS took '{what}' {TRIES} times and the machine came back to {machine.status_name}",
                    "Look at the machine's events in MAAS.",
                )
        return True

    async def _wait(self, machine: Machine) -> Machine:
        """Until the status is another one; the poll is one for all nodes."""
        plan = self._site.context.plan.maas
        limit = plan.deploy_timeout if machine.status == DEPLOYING else plan.commission_timeout
        started = time.monotonic()
        said = -60.0
        waiting = machine
        try:
            async with asyncio.timeout(limit):
                while waiting.status == machine.status:
                    passed = time.monotonic() - started
                    if passed - said >= 60:
                        said = passed
                        minutes = f", {passed / 60:.0f} min" if passed >= 60 else ""
                        text = f"waiting while MAAS has it {machine.status_name}{minutes}"
                        self._site.context.progress(self._name, text)
                    found = await self._site.watch.read(machine.system_id)
                    if found is None:
                        raise self._error(machine, "is gone from MAAS while it was waited for", "Run again.")
                    waiting = found
        except TimeoutError:
            raise self._error(
                waiting,
                f"is still {waiting.status_name} in MAAS after {limit:.0f} s: {waiting.status_message or 'no message'}",
                "Look at its console and its events in MAAS; the same command waits on.",
            ) from None
        return waiting

    async def _place(self, machine: Machine) -> bool:
        """Give the boot NIC its planned address, while MAAS still lets one; False: look again first."""
        nic = machine.nic(self._node.boot_mac)
        if nic is None or self._subnet is None:
            seen = f"no NIC {self._node.boot_mac}" if nic is None else f"no subnet for {self._node.address}"
            step = "Look at the machine's network in MAAS." if nic is None else "Add the subnet to MAAS."
            raise self._error(machine, f"MAAS has {seen}", step)
        number = int(self._subnet["id"])
        others = [link for link in nic.links if not (link.mode == "static" and link.address == self._ip)]
        if self._placed(machine) and not others:
            return True
        self._changes.note("address", ", ".join(link.address or link.mode for link in others), self._node.address)
        vlan = int(self._subnet["vlan"]["id"])
        client = self._site.client
        try:
            if nic.vlan != vlan:
                await client.interface(machine.system_id, nic.id, None, [("vlan", str(vlan))])
                others = []  # they went with the VLAN
            if not self._placed(machine) or nic.vlan != vlan:
                form = [("mode", "STATIC"), ("subnet", str(number)), ("ip_address", self._ip)]
                await client.interface(machine.system_id, nic.id, "link_subnet", form)
            for link in others:
                if link.mode != "link_up":
                    await client.interface(machine.system_id, nic.id, "unlink_subnet", [("id", str(link.id))])
        except NotFound as error:
            if self._placed(await client.machine(machine.system_id)):
                return False  # another call of ours, or another operator's, was first
            raise self._error(
                machine,
                f"its planned address {self._ip} can't be set: {error.message}",
                f"Look in MAAS (Subnets) which machine or range has {self._ip}, or correct the plan.",
            ) from None
        except (OutcomeUnknown, WrongState):
            self._tries["address"] += 1
            if self._tries["address"] >= TRIES:
                raise
            await asyncio.sleep(self._site.pause)
            return False
        return True

    def _placed(self, machine: Machine) -> bool:
        nic = machine.nic(self._node.boot_mac)
        return nic is not None and any(link.mode == "static" and link.address == self._ip for link in nic.links)

    def _arrived(self, machine: Machine) -> str:
        plan = self._site.context.plan
        whose = machine.annotations.get(SITE_NOTE)
        if whose != plan.site:
            owner = f"for site '{whose}'" if whose else "not by Metalyard"
            raise self._error(
                machine,
                f"is deployed in MAAS already, {owner}",
                "Release it in MAAS to have it deployed anew; or, to take it over as it is, set the workload "
                f"annotation {SITE_NOTE}={plan.site} on it.",
            )
        if self._ip not in machine.addresses:
            seen = ", ".join(machine.addresses) or "none"
            raise self._error(
                machine,
                f"is deployed with address {seen}, expected {self._ip}",
                "Release it in MAAS and run the same command again, or correct the address in the plan.",
            )
        remarks = []
        if machine.distro_series != plan.maas.distro_series.rpartition("/")[2]:
            remarks.append(f"with {machine.distro_series}, where the plan says {plan.maas.distro_series}")
        if machine.annotations.get(DATA_NOTE) not in (None, digest(self._data)):
            remarks.append("with other user data than the plan gives now")
        tail = f" ({'; '.join(remarks)}: release it in MAAS to have it deployed anew)" if remarks else ""
        return f"{self._name}: deployed as {machine.system_id} with {self._ip}{tail}"

    @property
    def _fixed(self) -> bool:
        """Whether the operator says that a broken machine is repaired; only then it goes on."""
        return self._name in self._site.context.options.get("fixed", ())

    def _broken(self, machine: Machine) -> NodeError:
        reason = machine.error_description or "no reason given"
        if reason.startswith(MARK):
            said = f"was set aside by Metalyard: {reason.removeprefix(MARK)}"
        else:
            said = f"is marked broken in MAAS: {reason}"
        return self._error(machine, said, "Repair it, mark it fixed in MAAS, then run the same command again.")

    async def _stopped(self, machine: Machine) -> NodeError:
        row = after(machine.status)
        kind = {FAILED_COMMISSIONING: "commissioning", FAILED_DEPLOYMENT: "installation", 22: "testing"}.get(
            machine.status
        )
        scripts = await self._site.client.failed_scripts(machine.system_id, kind) if kind else []
        parts = [text for text in (machine.status_message, machine.error_description) if text and text != row.name]
        parts = parts[:1] if len(parts) == 2 and parts[1] in parts[0] else parts
        if scripts:
            parts.append("failed: " + ", ".join(scripts))
        why = "; ".join(parts) or "MAAS gives no reason"
        return self._error(machine, f"is '{row.name}' in MAAS: {why}", row.next_step)

    def _error(self, machine: Machine, text: str, next_step: str) -> NodeError:
        return NodeError(
            f"{self._name}: {text}",
            next_step,
            system_id=machine.system_id,
            status_name=machine.status_name,
            broken=machine.status == BROKEN,
        )
