"""The gate in a run: joins evidence of node, BMC and fabric, has it judged, and tells what follows.

What Ansible's actions call, in one process for all hosts of a play; each function returns one result a host.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from metalyard.fabric.compare import affecting, compare
from metalyard.fabric.topology import FabricError, parse_ibnetdiscover
from metalyard.files import write_atomically
from metalyard.gate import evidence
from metalyard.gate.finding import Outcome, Verdict
from metalyard.gate.judge import judge as judge_node
from metalyard.gate.load import load_checks
from metalyard.plan.cables import CablePlan
from metalyard.plan.catalogue import load_baseline, load_profile
from metalyard.plan.model import SitePlan
from metalyard.runs import admissions
from metalyard.runs.results import RunFolder
from metalyard.sweep import HostResult, NodeError

FABRIC = "fabric.json.gz"
"""The run's evidence of the fabric, the same for all nodes."""
AGAIN = "Run the same command again; if it stays, look at what the task before it said."


def compare_fabric(plan: SitePlan, run: str, hosts: Sequence[str], document: str) -> list[HostResult]:
    """Keep the fabric's evidence for the gate, and say per host what is wrong with its cables.

    A cable's fault fails nobody here: the gate decides with everything else it knows. A fabric that could not be read
    fails every host.
    """
    try:
        data = base64.b64decode(document, validate=True)
        found = evidence.read(data)
        probe = found.probes["ibnetdiscover"]
        if not probe.usable:
            said = probe.error or f"exit status {probe.exit_status}: {probe.stderr.strip()[:200]}"
            raise evidence.EvidenceError(f"ibnetdiscover gave nothing to use ({said})")
        faults = compare(CablePlan.of(plan), parse_ibnetdiscover(probe.stdout))
    except (binascii.Error, KeyError, evidence.EvidenceError, FabricError) as error:
        step = "Run ibnetdiscover on the fabric host by hand: is the subnet manager up, and the host's port active?"
        return [HostResult(host, failed=True, message=f"{host}: the fabric: {error}", next_step=step) for host in hosts]
    write_atomically(RunFolder.of(plan.state_dir, run).path / FABRIC, data)
    results = []
    for host in hosts:
        mine = affecting(faults, host)
        said = "; ".join(fault.summary for fault in mine) or f"{host}: every link is as planned"
        step = mine[0].remedy if mine else ""
        results.append(HostResult(host, message=said, next_step=step, data={"faults": [f.summary for f in mine]}))
    return results


def judge(plan: SitePlan, run: str, documents: Mapping[str, str | None], *, check: bool) -> list[HostResult]:
    """Judge every host by its evidence, and write the verdicts down.

    ``documents`` is each host's ``os`` evidence in base64, None where there is none. A verdict against a node fails
    nobody here: stage ``admit`` lets it take effect.
    """
    folder = RunFolder.of(plan.state_dir, run)
    cables = CablePlan.of(plan)
    checks = load_checks(plan.path(plan.gate.checks) if plan.gate.checks else None)
    baseline = load_baseline(plan)
    shared = folder.path / FABRIC
    fabric = shared.read_bytes() if shared.exists() else None
    given_verdicts: list[Verdict] = []
    kept: dict[str, dict[str, bytes]] = {}
    for host, text in documents.items():
        node = plan.node(host)
        given = {"os": _decoded(text), "bmc": _bmc(folder, host), "fabric": fabric}
        verdict = judge_node(node, load_profile(plan, node.profile), baseline, given, cables, checks)
        kept[host] = {kind: data for kind, data in given.items() if data is not None}
        given_verdicts.append(verdict)
    admissions.record_verdicts(plan, run, given_verdicts, kept, check)
    return [_told(verdict) for verdict in given_verdicts]


def _decoded(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""  # cut on its way: not evidence, and the gate says so


def _bmc(folder: RunFolder, host: str) -> bytes | None:
    """What the BMC said in this run, as evidence; None where it said nothing."""
    swept = folder.read("bmc_discover", host)
    facts = swept.data.get("facts")
    if swept.failed or swept.unreachable or not isinstance(facts, dict):
        return None
    return evidence.pack(evidence.bmc_document(host, facts, datetime.now(UTC)))


def _told(verdict: Verdict) -> HostResult:
    against = [f for f in verdict.reasons if f.outcome is not Outcome.WATCH]
    said, step = (
        admissions.why(verdict) if against else (f"{verdict.node}: the gate's verdict is {verdict.outcome}", "")
    )
    counts: dict[str, int] = {}
    for finding in verdict.findings:
        counts[finding.outcome.value] = counts.get(finding.outcome.value, 0) + 1
    return HostResult(
        verdict.node, message=said, next_step=step, data={"verdict": verdict.outcome.value, "findings": counts}
    )


def verdicts(plan: SitePlan, run: str, hosts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What MAAS is to be told of each host: ``{"outcome": pass|watch|fail|unknown, "reasons": [sentence]}``.

    It is what :func:`admit` would do, asked before it is done: a node that the breaker or shadow mode leaves where it
    is must not be marked in MAAS either, so its outcome is ``unknown``. :class:`NodeError` when the breaker stops.
    """
    given = admissions.verdicts(plan, run, list(hosts))
    foreseen = admissions.settle(plan, run, given, check=True)
    stopped = next((s for s in foreseen.values() if s.kind == "stopped"), None)
    if stopped is not None:
        raise NodeError(stopped.reason, stopped.next_step)
    told: dict[str, dict[str, Any]] = {}
    for host, verdict in given.items():
        settled = foreseen[host]
        outcome = {"admitted": "pass", "kept": "pass", "quarantined": "fail"}.get(settled.kind, "unknown")
        against = [f.summary for f in verdict.reasons if f.outcome is Outcome.FAIL] if verdict else []
        told[host] = {"outcome": outcome, "reasons": against or [settled.reason]}
    return told


def admit(plan: SitePlan, run: str, hosts: Sequence[str], *, check: bool) -> list[HostResult]:
    """Let the verdicts of this run take effect in the ledger. A host that is not let in fails, with its next step."""
    settled = admissions.settle(plan, run, admissions.verdicts(plan, run, list(hosts)), check)
    words = {
        "admitted": "in service",
        "kept": "in service, as before",
        "quarantined": "set aside",
        "withheld": "not admitted",
        "shadowed": "left as it is",
        "stopped": "the run stopped",
    }
    results = []
    for host in hosts:
        word = settled[host]
        reason = word.reason.removeprefix(f"{host}: ")
        results.append(
            HostResult(
                host,
                changed=word.changed,
                failed=word.kind in ("quarantined", "withheld", "stopped"),
                message=f"{host}: {words[word.kind]}{': ' + reason if reason else ''}",
                next_step=word.next_step,
                data={"settlement": word.kind},
            )
        )
    return results
