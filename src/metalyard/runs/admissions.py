"""What follows from a verdict: admission, quarantine, or neither. The gate is the only door, and closed on doubt.

A verdict takes effect only when it is the newest of its run in the ledger: what was not written down admits nobody.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from metalyard.files import write_atomically
from metalyard.gate.finding import Finding, Outcome, Owner, Verdict
from metalyard.ledger import Book, HistoryError, Ledger, Standing, View
from metalyard.ledger.book import digest
from metalyard.ledger.schema import Admission, VerdictRecord
from metalyard.ledger.view import moment, stamp
from metalyard.plan.lifecycle import ASIDE, Actor, Stage, State, reached
from metalyard.plan.model import SitePlan
from metalyard.runs.facts import parts_of
from metalyard.runs.leases import GO_ON, ours
from metalyard.runs.results import RunFolder
from metalyard.secrets import FileSecretStore

KEY = "admission"
"""Entry of the secret store that holds the site's signing key."""
BREAKER_MINIMUM = 3
"""Fewer nodes than this set aside never stop a run: one of one is no pattern."""


@dataclass(frozen=True)
class Settlement:
    """What a verdict led to. ``shadowed`` and ``stopped`` (by the breaker) leave the node where it is."""

    node: str
    kind: Literal["admitted", "kept", "quarantined", "withheld", "shadowed", "stopped"]
    changed: bool
    reason: str = ""
    next_step: str = ""


def breaker(plan: SitePlan, total: int, aside: int) -> str | None:
    """Why a run of ``total`` nodes must not set ``aside`` of them aside, or None where it may."""
    percent = plan.gate.breaker_percent
    if aside < BREAKER_MINIMUM or aside * 100 <= percent * total:
        return None
    return (
        f"The gate would set {aside} of {total} nodes aside, more than the plan's gate.breaker_percent of {percent} %: "
        "a wrong profile or baseline looks the same."
    )


BREAKER_STEP = (
    "Look at one node's findings. If they are right, bring the nodes through one by one with --limit, "
    "or raise gate.breaker_percent in the plan; then run again."
)


def record_verdict(plan: SitePlan, run: str, verdict: Verdict, check: bool = False) -> None:
    """Keep one node's verdict; see :func:`record_verdicts`."""
    record_verdicts(plan, run, [verdict], check=check)


def record_verdicts(
    plan: SitePlan,
    run: str,
    given: Iterable[Verdict],
    documents: Mapping[str, Mapping[str, bytes]] | None = None,
    check: bool = False,
) -> None:
    """Keep verdicts with their findings, and take each configured node to ``proving``; all in one transaction.

    ``documents`` holds, by node and kind, the evidence (gzip-compressed, sealed) behind a verdict: it is kept under its
    digest. In check mode the ledger learns nothing; the verdicts are left in the run's folder.
    """
    given = list(given)
    if check:
        for verdict in given:
            write_atomically(_aside_of_check(plan, run, verdict.node), json.dumps(asdict(verdict)).encode())
        return
    kept = []
    for verdict in given:
        for kind, document in ((documents or {}).get(verdict.node) or {}).items():
            if fingerprint := verdict.evidence.get(kind):
                kept.append((verdict.node, kind, fingerprint, _keep_file(plan, fingerprint, document)))
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        ours(book, run, [verdict.node for verdict in given])
        for node, kind, fingerprint, path in kept:
            book.keep_evidence(run, node, kind, fingerprint, path)
        states = book.states([verdict.node for verdict in given])
        for verdict in given:
            here = states[verdict.node]
            if here.state in (State.CONFIGURED, State.SPARE):
                why = f"stage {Stage.PROVE} began"
                book.move(verdict.node, State.PROVING, Actor.STAGE, run=run, reason=why, here=here)
            book.judge(run, verdict)


def _keep_file(plan: SitePlan, fingerprint: str, document: bytes) -> str:
    """Keep a document under its digest; its path below the state folder."""
    path = f"evidence/{fingerprint}.json.gz"
    if not (plan.state_dir / path).exists():
        write_atomically(plan.state_dir / path, document)
    return path


def keep_evidence(
    plan: SitePlan, run: str, node: str, kind: str, fingerprint: str, document: bytes, check: bool = False
) -> None:
    """Keep one document of evidence under its digest, and where it lies in the ledger."""
    if check:
        return
    path = _keep_file(plan, fingerprint, document)
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        book.keep_evidence(run, node, kind, fingerprint, path)


def verdicts(plan: SitePlan, run: str, hosts: Iterable[str]) -> dict[str, Verdict | None]:
    """The newest verdict of this run for each host, with its findings; None where there is none."""
    names = list(hosts)
    with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
        if view.run(run) is None:  # a check
            return {name: _of_check(plan, run, name) for name in names}
        rows = {name: view.last_verdict(name, run) for name in names}
        return {name: view.verdict(row) if row is not None else None for name, row in rows.items()}


def _aside_of_check(plan: SitePlan, run: str, node: str) -> Path:
    return RunFolder.of(plan.state_dir, run).path / "verdicts" / f"{node}.json"


def _of_check(plan: SitePlan, run: str, node: str) -> Verdict | None:
    try:
        data = json.loads(_aside_of_check(plan, run, node).read_bytes())
        findings = tuple(
            Finding(**{**item, "outcome": Outcome(item["outcome"]), "owner": Owner(item["owner"])})
            for item in data.pop("findings")
        )
        return Verdict(**{**data, "outcome": Outcome(data["outcome"]), "findings": findings})
    except (OSError, ValueError, TypeError, KeyError):
        return None  # none, or one that was cut: doubt


# -- settling ---------------------------------------------------------------------------------------------------------


def why(verdict: Verdict) -> tuple[str, str]:
    """The sentence that speaks most against a node, how many more there are, and the next step."""
    against = [finding for finding in verdict.reasons if finding.outcome is not Outcome.WATCH]
    if not against:
        return f"{verdict.node}: the gate's verdict is {verdict.outcome}", "Run the same command again."
    more = f" (and {len(against) - 1} more)" if len(against) > 1 else ""
    return against[0].summary + more, against[0].remedy or "Run the same command again."


def settle(plan: SitePlan, run: str, given: Mapping[str, Verdict | None], check: bool = False) -> dict[str, Settlement]:
    """Let verdicts take effect, all in one transaction: admit, quarantine, or leave in doubt.

    A host without a verdict is in doubt. In check mode it says what would be.
    """
    if check:
        with Ledger(plan.ledger_url, read_only=True) as ledger, ledger.read() as view:
            return _settle(plan, view, None, run, given)
    with Ledger(plan.ledger_url) as ledger, ledger.write() as book:
        ours(book, run, given)
        return _settle(plan, book, book, run, given)


def _settle(
    plan: SitePlan, view: View, book: Book | None, run: str, given: Mapping[str, Verdict | None]
) -> dict[str, Settlement]:
    states = view.states(given)
    failing = [name for name, verdict in given.items() if verdict is not None and verdict.outcome is Outcome.FAIL]
    touched = {record.node for record in view.stages(run=run)} | set(given)
    everyone = view.states(touched)
    aside = {n for n, here in everyone.items() if here.run == run and here.state is State.QUARANTINED} | set(failing)
    stop = breaker(plan, len(touched), len(aside))
    result: dict[str, Settlement] = {}
    for name, verdict in given.items():
        row = view.last_verdict(name, run)
        if verdict is not None and book is not None and (row is None or row.outcome != verdict.outcome.value):
            verdict = None  # not what is written down: doubt
        result[name] = _one(plan, view, book, run, states[name], verdict, row, stop)
    return result


def _one(
    plan: SitePlan,
    view: View,
    book: Book | None,
    run: str,
    here: Standing,
    verdict: Verdict | None,
    row: VerdictRecord | None,
    stop: str | None,
) -> Settlement:
    name = here.node
    if verdict is None or verdict.outcome in (Outcome.UNKNOWN, Outcome.NOT_APPLICABLE):
        reason, step = why(verdict) if verdict else (f"{name}: run {run} wrote down no such verdict", GO_ON)
        return _withhold(book, run, here, reason, step)
    if verdict.admits:
        if book is not None and here.state not in (State.PROVING, State.IN_SERVICE):
            step = f"Run `metalyard bringup --limit {name}`: the earlier stages come first."
            return Settlement(
                name, "withheld", False, f"{name} is {here.state}, and only proving leads to service", step
            )
        return _let_in(plan, view, book, run, here, verdict, row)
    reason, step = why(verdict)
    if plan.gate.mode == "shadow":
        return Settlement(name, "shadowed", False, f"shadow mode, nothing done: {reason}", step)
    if here.state is State.QUARANTINED:
        return Settlement(name, "quarantined", False, reason, step)
    if stop is not None:
        return Settlement(name, "stopped", False, f"{reason} Not set aside: {stop}", BREAKER_STEP)
    if book is not None:
        evidence = {**verdict.evidence, "verdict": row.id if row is not None else None}
        book.move(
            name, State.QUARANTINED, Actor.GATE, run=run, reason=reason, next_step=step, evidence=evidence, here=here
        )
    return Settlement(name, "quarantined", True, reason, step)


def _withhold(book: Book | None, run: str, here: Standing, reason: str, step: str) -> Settlement:
    serving = here.state is State.IN_SERVICE
    if serving and book is not None:
        book.move(here.node, State.PROVING, Actor.GATE, run=run, reason=reason, next_step=step, here=here)
    return Settlement(here.node, "withheld", serving, reason, step)


def _let_in(
    plan: SitePlan, view: View, book: Book | None, run: str, here: Standing, verdict: Verdict, row: VerdictRecord | None
) -> Settlement:
    body = _body(plan, view, here.node, verdict)
    if here.state is State.IN_SERVICE and _holds(plan, view, here.node, body):
        return Settlement(here.node, "kept", False)
    if book is not None and row is not None:
        until = moment(book.now) + timedelta(days=plan.gate.admission_days)
        body.update(run=run, verdict=row.id, at=book.now, expires=stamp(until))
        fingerprint = digest(body)
        signature, signer = sign(plan, fingerprint)
        book.add_admission(Admission(**body, digest=fingerprint, signature=signature, signer=signer))
        if here.state is State.PROVING:
            book.move(
                here.node,
                State.IN_SERVICE,
                Actor.GATE,
                run=run,
                reason=f"the gate's verdict is {verdict.outcome}",
                evidence={**verdict.evidence, "admission": fingerprint},
                here=here,
            )
    return Settlement(here.node, "admitted", True)


def admit(plan: SitePlan, run: str, host: str, verdict: Verdict, check: bool = False) -> bool:
    """Let one node into service; whether that changed anything. HistoryError where the verdict does not admit."""
    if not verdict.admits:
        raise HistoryError(f"{host}: the verdict is {verdict.outcome}, which does not admit.", why(verdict)[1])
    with Ledger(plan.ledger_url, read_only=check) as ledger, ledger.read() if check else ledger.write() as view:
        book = view if isinstance(view, Book) else None
        if book is not None:
            ours(book, run, [host])
        settled = _settle(plan, view, book, run, {host: verdict})[host]
        if settled.kind not in ("admitted", "kept"):  # raised in here: what led to it is undone
            raise HistoryError(f"{host} was not admitted: {settled.reason}.", settled.next_step)
    return settled.changed


def quarantine(plan: SitePlan, run: str, host: str, verdict: Verdict, check: bool = False) -> bool:
    """Set one node aside by its verdict; whether that changed anything. Nothing in shadow mode, nothing on doubt."""
    if verdict.admits:
        raise HistoryError(f"{host}: the verdict is {verdict.outcome}, which sets nothing aside.", "Admit it.")
    return settle(plan, run, {host: verdict}, check)[host].changed


# -- the admission ----------------------------------------------------------------------------------------------------


def _body(plan: SitePlan, view: View, name: str, verdict: Verdict) -> dict[str, Any]:
    """What the node is made of, as far as the ledger knows."""
    node = plan.node(name)
    facts = view.facts(name, Stage.DISCOVER)
    firmware = dict(facts.body.get("firmware") or {}) if facts is not None else {}
    updated = view.facts(name, Stage.FIRMWARE)
    for component in (updated.body.get("components") or []) if updated is not None else []:
        if isinstance(component, dict) and component.get("id"):
            firmware[str(component["id"])] = component.get("version")
    return {
        "node": name,
        "serial": node.serial,
        "profile": node.profile,
        "rules": verdict.rules,
        "parts": {f"{p.kind} {p.slot}".strip(): p.serial for p in (parts_of(facts.body) if facts else []) if p.serial},
        "firmware": firmware,
        "evidence": dict(verdict.evidence),
    }


def _holds(plan: SitePlan, view: View, name: str, body: Mapping[str, Any]) -> bool:
    """Whether the present admission says the same and has more than half of its time left."""
    now = view.now if isinstance(view, Book) else stamp()
    last = view.admission(name)
    if last is None or moment(last.expires) - moment(now) < timedelta(days=plan.gate.admission_days) / 2:
        return False
    return all(getattr(last, key) == body[key] for key in ("serial", "profile", "rules", "parts", "firmware"))


def sign(plan: SitePlan, fingerprint: str) -> tuple[str, str]:
    """The site's signature of a digest, and the public key that proves it; both base64. A missing key is made."""
    store = FileSecretStore(plan.state_dir / "secrets")
    entry = store.read(KEY)
    if entry is None:
        entry = {"ed25519": base64.b64encode(Ed25519PrivateKey.generate().private_bytes_raw()).decode()}
        store.write(KEY, entry)
    private = Ed25519PrivateKey.from_private_bytes(base64.b64decode(entry["ed25519"]))
    signature = private.sign(fingerprint.encode())
    return base64.b64encode(signature).decode(), base64.b64encode(private.public_key().public_bytes_raw()).decode()


def genuine(admission: Admission) -> bool:
    """Whether an admission is as it was signed. Whose key ``signer`` is, the reader must know."""
    keys = ("node", "serial", "profile", "rules", "parts", "firmware", "evidence", "run", "verdict", "at", "expires")
    if digest({key: getattr(admission, key) for key in keys}) != admission.digest:
        return False
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(admission.signer))
        public.verify(base64.b64decode(admission.signature), admission.digest.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def valid(here: Standing, admission: Admission | None, now: str | None = None) -> bool:
    """Whether a node stands in service under an admission that has not expired."""
    if admission is None or here.state in ASIDE or not reached(here.state, State.IN_SERVICE):
        return False
    return moment(admission.expires) > moment(now or stamp())
