"""What a bring-up would do to each node, stage by stage, from where it stands. Nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from metalyard.ledger import Ledger, Standing
from metalyard.plan.catalogue import load_baseline, load_profile
from metalyard.plan.lifecycle import ASIDE, STAGE_REACHES, Actor, Stage, State, reached
from metalyard.plan.model import Node, SitePlan
from metalyard.runs.preflight import count
from metalyard.sweep import Context, HostResult


@dataclass(frozen=True)
class Step:
    """One stage of one node. ``kind``: ``do`` it, ``look`` (done already; changed only where it is off), ``pass over``.

    ``found`` is what asking the BMC or MAAS said; None while nobody asked.
    """

    stage: Stage
    kind: Literal["do", "look", "pass over"]
    what: str
    found: HostResult | None = None


@dataclass(frozen=True)
class Expectation:
    """One node: where it stands, what each stage would do, and why nothing where nothing."""

    node: str
    state: State
    steps: tuple[Step, ...]
    reason: str = ""
    next_step: str = ""


def expect(plan: SitePlan, nodes: Sequence[Node], stages: Sequence[Stage]) -> list[Expectation]:
    """What the ledger's states alone tell. :class:`~metalyard.ledger.LedgerError` when it can't be read."""
    with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
        standings = view.states([node.name for node in nodes])
    return [_expectation(plan, node, standings[node.name], stages) for node in nodes]


def _expectation(plan: SitePlan, node: Node, here: Standing, stages: Sequence[Stage]) -> Expectation:
    """Set-aside nodes are passed over, but for one whose identity the discover stage looks at again."""
    again = here.state is State.QUARANTINED and here.actor is Actor.STAGE
    if here.state in ASIDE and not again:
        steps = tuple(Step(stage, "pass over", "") for stage in stages)
        step = here.next_step
        if here.state in (State.QUARANTINED, State.IN_REPAIR):
            step = f"{step or 'Put right what the reason names.'} Then metalyard release {node.name} --reason …"
        return Expectation(node.name, here.state, steps, here.reason, step)
    steps = tuple(
        Step(stage, "look" if _done(here.state, stage) else "do", _what(plan, node, stage)) for stage in stages
    )
    if again and Stage.DISCOVER not in stages:
        steps = tuple(Step(stage, "pass over", "") for stage in stages)
    return Expectation(node.name, here.state, steps, here.reason if again else "", here.next_step)


def _done(state: State, stage: Stage) -> bool:
    """Whether the node has this stage behind it. ``fabric`` and ``images`` move nobody: proving has them behind."""
    return reached(state, STAGE_REACHES.get(stage, State.PROVING))


def _what(plan: SitePlan, node: Node, stage: Stage) -> str:
    """What the stage does to this node, in a few words of the plan."""
    match stage:
        case Stage.DISCOVER:
            return f"read the machine at {node.bmc.address}, expect serial {node.serial}"
        case Stage.BMC:
            bios = count(len(load_profile(plan, node.profile).bios), "BIOS attribute")
            return f"own password for '{plan.bmc.user}', time servers, {plan.bmc.boot_mode.upper()} boot, {bios}"
        case Stage.FIRMWARE:
            return f"{count(len(load_baseline(plan).firmware), 'component')} against {plan.baseline}"
        case Stage.PROVISION:
            return f"enlist {node.boot_mac}, commission, deploy {plan.maas.distro_series}"
        case Stage.CONFIGURE:
            driver = load_baseline(plan).driver
            return f"base system, drivers{f' {driver}' if driver else ''}, RDMA, container runtime"
        case Stage.FABRIC:
            cables = sum(any(end.startswith(f"{node.name}:") for end in cable.ends) for cable in plan.cables)
            return f"hold {count(cables, 'cable')} against the fabric"
        case Stage.IMAGES:
            return f"pull {count(len(plan.images.preload), 'image')}" if plan.images.preload else "none in the plan"
        case Stage.PROVE:
            return "collect evidence, judge it"
        case Stage.ADMIT:
            return f"let the verdict take effect ({plan.gate.mode})"


# -- asking -----------------------------------------------------------------------------------------------------------

Operation = Callable[[Context], Awaitable[None]]


def ask(plan: SitePlan, nodes: Sequence[Node], expected: Sequence[Expectation]) -> list[Expectation]:
    """The same with what BMCs and MAAS say, read by the stages' own operations in check mode."""
    return asyncio.run(_ask(plan, nodes, expected))


async def _ask(plan: SitePlan, nodes: Sequence[Node], expected: Sequence[Expectation]) -> list[Expectation]:
    from metalyard.maas import operations as maas
    from metalyard.redfish import operations as redfish

    sweeps: list[tuple[Stage, Operation]] = [
        (Stage.DISCOVER, redfish.discover),
        (Stage.BMC, redfish.configure),
        (Stage.FIRMWARE, redfish.firmware),
        (Stage.PROVISION, maas.provision),
    ]
    by_name = {node.name: node for node in nodes}
    known = {entry.node: entry for entry in expected}
    going = [e.node for e in expected if any(step.kind != "pass over" for step in e.steps)]
    for stage, operation in sweeps:
        asked = [name for name in going if any(step.stage is stage for step in known[name].steps)]
        if not asked:
            continue
        found = await sweep(plan, [by_name[name] for name in asked], operation, {n: e.state for n, e in known.items()})
        for name in asked:
            result = found.get(name) or HostResult(
                name, failed=True, message=f"{name}: {operation.__name__} said nothing"
            )
            known[name] = _told(known[name], stage, result)
            if result.failed or result.unreachable:
                going.remove(name)
    return [known[entry.node] for entry in expected]


def _told(entry: Expectation, stage: Stage, result: HostResult) -> Expectation:
    """The expectation with what a stage's look said; where it fails, the later stages are not reached."""
    place = next(index for index, step in enumerate(entry.steps) if step.stage is stage)
    steps = [replace(step, found=result) if index == place else step for index, step in enumerate(entry.steps)]
    if result.failed or result.unreachable:
        steps = [replace(step, kind="pass over") if index > place else step for index, step in enumerate(steps)]
    return replace(entry, steps=tuple(steps), next_step=result.next_step or entry.next_step)


async def sweep(
    plan: SitePlan, nodes: Sequence[Node], operation: Operation, states: dict[str, State]
) -> dict[str, HostResult]:
    """Run one operation in check mode; each node's result."""
    from metalyard.secrets import FileSecretStore
    from metalyard.sweep import NodeError

    results: dict[str, HostResult] = {}
    context = Context(
        plan=plan,
        nodes=nodes,
        secrets=FileSecretStore(plan.state_dir / "secrets"),
        report=lambda result: results.update({result.host: result}),
        check=True,
        options={"states": states, "firmware_dir": str(plan.state_dir / "firmware")},
    )
    try:
        await operation(context)
    except NodeError as error:  # one cause for all: a wrong key, a region that does not answer
        for node in nodes:
            results.setdefault(
                node.name, HostResult(node.name, failed=True, message=error.message, next_step=error.next_step)
            )
    return results
