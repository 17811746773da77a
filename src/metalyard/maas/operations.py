"""The two sweeps that speak to MAAS: bring nodes to deployed, and tell MAAS which of them are in service."""

from __future__ import annotations

from typing import Any

from metalyard.maas.deployment import MARK, Deployment
from metalyard.maas.enlist import POWER_TYPE, Enlister
from metalyard.maas.errors import MaasError, NotAllowed, OutcomeUnknown, WrongState
from metalyard.maas.machine import Machine
from metalyard.maas.site import Changes, Site, ensure_tags, subnet_of, with_site
from metalyard.maas.statuses import BROKEN, DEPLOYED
from metalyard.maas.userdata import build, public_key
from metalyard.plan.model import Node
from metalyard.sweep import Context, HostResult, NodeError

IN_SERVICE = "metalyard-in-service"
QUARANTINED = "metalyard-quarantined"
_COMMENTS = {
    IN_SERVICE: "Admitted by Metalyard's gate",
    QUARANTINED: "Refused by Metalyard's gate; the reason stands with the machine",
}
MARGIN_SECONDS = 900.0
"""What a node may take beside commissioning and deployment."""


async def provision(context: Context) -> None:
    """Enlist, commission, tag and deploy every node, from whatever status its machine is in.

    Options: ``poll_seconds`` (2) between looks at the waiting machines; ``retry_failed`` (True, or node names) begins
    anew from a failed commissioning, deployment or release; ``fixed`` (node names) takes machines back from Broken.
    Data of each result: ``system_id``, ``status_name``, ``address``, ``distro_series``.
    """
    await with_site(context, _provision)


async def _provision(site: Site) -> None:
    plan = site.context.plan
    key = public_key(plan)
    for kind, path, wanted in (("pool", "resourcepools/", plan.maas.pool), ("zone", "zones/", plan.maas.zone)):
        known = await site.client.names(path)
        if wanted not in known:
            raise MaasError(
                f"MAAS has no {kind} '{wanted}' (maas.{kind}); it has {', '.join(sorted(known))}",
                f"Make the {kind} in MAAS, or correct maas.{kind} in the plan.",
            )
    verify = await _verification(site)
    subnets = await site.client.subnets()
    await ensure_tags(site, dict.fromkeys(plan.maas.tags, f"Set by Metalyard for site {plan.site}"))
    known_ids = sorted({machine.system_id for found in site.machines.values() for machine in found})
    enlister = Enlister(site, await site.client.power_parameters(known_ids), verify)

    async def work(node: Node) -> HostResult:
        changes = Changes(node.name)
        machine = await enlister.enlist(node, changes)
        if machine is None:
            changes.note("status", "", "Deployed")
            return _result(node, None, changes, f"{node.name}: would be enlisted, commissioned and deployed")
        for tag in plan.maas.tags:
            await _tag(site, machine, tag, True, changes)
        subnet = subnet_of(subnets, node.address)
        way = Deployment(site, node, build(plan, node, key), subnet, changes)
        machine, said = await way.run(machine)
        return _result(node, machine, changes, said)

    deadline = plan.maas.commission_timeout + plan.maas.deploy_timeout + MARGIN_SECONDS
    await site.sweep(work, deadline)


async def _verification(site: Site) -> str | None:
    """What to say to MAAS's power driver about certificates; the plan's wish must not be dropped in silence."""
    wanted = site.context.plan.maas.bmc_tls_verify
    if "power_verify_ssl" in await site.client.power_fields(POWER_TYPE):
        return "y" if wanted else "n"
    if wanted:
        raise MaasError(
            "this MAAS's Redfish driver can't verify the BMCs' certificates, and the plan asks for it "
            "(maas.bmc_tls_verify)",
            "Set maas.bmc_tls_verify to false to accept that, or use a MAAS whose Redfish driver verifies them.",
        )
    return None


async def admit(context: Context) -> None:
    """Tell MAAS the gate's word on every node: tags, and broken with the reason.

    Options: ``verdicts``: ``{node: {"outcome": …, "reasons": [text, …]}}``; pass and watch are admitted, fail is set
    aside. Anything else, and a node without a verdict, is in doubt: it loses the tag of service and is not marked
    broken, since it is proven again by the next run. In shadow mode nothing is changed.
    Data of each result: ``system_id``, ``status_name``, ``admitted``.
    """
    await with_site(context, _admit)


async def _admit(site: Site) -> None:
    shadow = site.context.plan.gate.mode == "shadow"
    if not shadow:
        await ensure_tags(site, _COMMENTS)

    async def work(node: Node) -> HostResult:
        verdict = site.context.options.get("verdicts", {}).get(node.name) or {}
        outcome = str(verdict.get("outcome", "unknown"))
        admitted = outcome in ("pass", "watch")
        machine = site.one(node, site.machines.get(node.boot_mac, []))
        if machine is None:
            raise NodeError(
                f"{node.name}: MAAS has no machine with the boot MAC {node.boot_mac}",
                "Run the stage 'provision' first.",
            )
        changes = Changes(node.name)
        if shadow:
            word = "admit" if admitted else "refuse"
            said = f"{node.name}: the gate would {word} it ({outcome}); in shadow mode MAAS is not told"
            return _result(node, machine, changes, said, admitted=admitted)
        if admitted:
            machine = await _welcome(site, node, machine, changes)
        refused = outcome == "fail"
        for tag, on in ((IN_SERVICE, admitted), (QUARANTINED, refused)):
            await _tag(site, machine, tag, on, changes)
        if refused:
            reasons = [str(reason) for reason in verdict.get("reasons", [])] or [f"the verdict is {outcome}"]
            machine = await _set_aside(site, node, machine, "; ".join(reasons), changes)
        word = "in service" if admitted else "set aside" if refused else "not in service"
        said = f"{node.name}: {word} in MAAS as {machine.system_id}"
        return _result(node, machine, changes, said, admitted=admitted)

    await site.sweep(work, MARGIN_SECONDS)


async def _welcome(site: Site, node: Node, machine: Machine, changes: Changes) -> Machine:
    """Only what is deployed can be in service; a machine that we marked broken is taken back first."""
    if machine.status == BROKEN and machine.error_description.startswith(MARK):
        changes.note("status", "Broken", "fixed")
        if site.context.check:
            return machine
        try:
            async with site.power:
                await site.client.act(machine.system_id, "mark_fixed", [("comment", MARK + "admitted")], blocking=True)
        except (OutcomeUnknown, WrongState):
            pass  # the next look decides
        machine = await site.client.machine(machine.system_id)
    if machine.status != DEPLOYED or not machine.osystem:
        raise NodeError(
            f"{node.name}: the gate admits it, but MAAS has it '{machine.status_name}', expected a deployed system",
            "Run the stage 'provision' again, and the stages after it.",
            system_id=machine.system_id,
            status_name=machine.status_name,
        )
    return machine


async def _set_aside(site: Site, node: Node, machine: Machine, reason: str, changes: Changes) -> Machine:
    """Broken with the reason. MAAS releases such a machine and switches it off; a broken one is left as it is."""
    if machine.status == BROKEN:
        return machine
    comment = (MARK + reason)[:1000]
    changes.note("status", machine.status_name, f"Broken ({comment})")
    if site.context.check:
        return machine
    try:
        async with site.power:
            await site.client.act(machine.system_id, "mark_broken", [("comment", comment)], blocking=True)
    except NotAllowed:
        raise NodeError(
            f"{node.name}: MAAS does not let '{site.me}' mark {machine.system_id} broken: its owner is "
            f"'{machine.owner or 'nobody'}'" + (", and it is locked" if machine.locked else ""),
            "Mark it broken in MAAS as its owner (and unlock it first); the tags say quarantined already.",
            system_id=machine.system_id,
        ) from None
    except (OutcomeUnknown, WrongState):
        pass  # the next look decides
    machine = await site.client.machine(machine.system_id)
    if machine.status != BROKEN:
        raise NodeError(
            f"{node.name}: MAAS has it '{machine.status_name}' after it was marked broken",
            "Run the same command again.",
            system_id=machine.system_id,
        )
    return machine


async def _tag(site: Site, machine: Machine, tag: str, on: bool, changes: Changes) -> None:
    if (tag in machine.tags) is on:
        return
    changes.note("tag", "" if on else tag, tag if on else "")
    if not site.context.check:
        await site.tagger.set(tag, machine.system_id, on=on)


def _result(node: Node, machine: Machine | None, changes: Changes, said: str, **data: Any) -> HostResult:
    known: dict[str, Any] = {"address": node.address}
    if machine is not None:
        known |= {
            "system_id": machine.system_id,
            "status_name": machine.status_name,
            "distro_series": machine.distro_series,
        }
    return HostResult(
        host=node.name, changed=bool(changes.rows), message=said, diff=changes.diff(), data={**known, **data}
    )
