"""What the BMC says of the machine: serial number, product, firmware and BIOS settings, against plan and baseline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding, Owner
from metalyard.gate.parsers.common import ParseError, json_document


def _facts(subject: Subject) -> Mapping[str, Any]:
    facts = json_document(subject.text("facts"), "the BMC's facts")
    if not isinstance(facts, dict):
        raise ParseError("the BMC's facts are not an object")
    return facts


@check(
    "bmc.identity",
    kind="bmc",
    needs=("facts",),
    remedy="See which machine stands in the planned place: mend the plan, the cabling of the BMC, or the place.",
    source="the site plan (serial) and the node's profile (vendor and model)",
)
def identity(subject: Subject) -> Iterator[Finding]:
    """The machine behind the BMC is the planned one, and of the profile's make."""
    facts = _facts(subject)
    wanted = [
        ("serial", re.escape(subject.node.serial), subject.node.serial),
        ("vendor", re.escape(subject.profile.vendor), subject.profile.vendor),
        ("model", subject.profile.model, f"one that matches '{subject.profile.model}'"),
    ]
    good = []
    for name, pattern, words in wanted:
        seen = facts.get(name)
        if not isinstance(seen, str) or not seen:
            yield subject.unknown(f"the BMC tells no {name}, expected {words}", part="chassis", expected=words)
        elif not (re.fullmatch(pattern, seen, re.I) or (name == "model" and re.search(pattern, seen))):
            yield subject.failed(
                f"the BMC tells the {name} '{seen}', expected {words}",
                part="chassis",
                part_serial=str(facts.get("serial") or ""),
                measured=seen,
                expected=words,
            )
        else:
            good.append(seen)
    if len(good) == len(wanted):
        yield subject.passed(f"the machine is {' '.join(good[1:])} with serial {good[0]}", measured=good[0])


@check(
    "bmc.firmware",
    kind="bmc",
    needs=("facts",),
    applies=lambda subject: bool(subject.baseline.firmware),
    remedy="Run the stage firmware again; a version that waits needs the reset that the baseline names.",
    source="the baseline (versions tested together)",
)
def firmware(subject: Subject) -> Iterator[Finding]:
    """Every component that the baseline pins is there, in its version, on every part that has it."""
    inventory = _facts(subject).get("firmware")
    if not isinstance(inventory, dict) or not inventory:
        raise ParseError("the BMC's facts hold no firmware inventory")
    good = 0
    for target in subject.baseline.firmware:
        members = {name: version for name, version in inventory.items() if re.search(target.match, name)}
        if not members:
            yield subject.unknown(
                f"the BMC lists no firmware of {target.component} (Id matching '{target.match}'), "
                f"expected version {target.version}",
                part=target.component,
                expected=target.version,
            )
        for name, version in sorted(members.items()):
            if not version:
                yield subject.unknown(
                    f"the BMC tells no version of {name}, expected {target.version}",
                    part=name,
                    expected=target.version,
                )
            elif str(version).upper() != target.version.upper():
                yield subject.failed(
                    f"{target.component} firmware {name} is of version {version}, expected {target.version} "
                    f"by baseline {subject.baseline.name}",
                    part=name,
                    measured=str(version),
                    expected=target.version,
                    remedy=f"Run the stage firmware again; the version takes effect at: {target.activation}.",
                )
            else:
                good += 1
    if good:
        yield subject.passed(f"{good} firmware components are those of the baseline", measured=f"{good} components")


def _tells_bios(subject: Subject) -> bool:
    """Whether there are settings to hold against the profile, and facts that tell them."""
    if not subject.profile.bios:
        return False
    facts = subject.also("facts", "bmc")
    return facts is None or '"bios"' in facts


@check(
    "bmc.bios",
    kind="bmc",
    needs=("facts",),
    applies=_tells_bios,
    remedy="Run the stage bmc again; a value that waits takes effect at the next reset.",
    source="the node's profile",
)
def bios(subject: Subject) -> Iterator[Finding]:
    """BIOS settings that the profile wants, where the facts tell them (key ``bios``)."""
    settings = _facts(subject).get("bios")
    if not isinstance(settings, dict):
        raise ParseError("the BMC's facts hold no BIOS settings")
    good = 0
    for name, wanted in subject.profile.bios.items():
        if name not in settings:
            yield subject.unknown(
                f"the BMC tells no BIOS setting {name}, expected {wanted}", part=name, expected=wanted
            )
        elif settings[name] != wanted:
            yield subject.failed(
                f"BIOS setting {name} is {settings[name]}, expected {wanted}",
                part=name,
                measured=settings[name],
                expected=wanted,
            )
        else:
            good += 1
    if good == len(subject.profile.bios):
        yield subject.passed(f"{good} BIOS settings are the profile's", measured=f"{good} settings")


@check(
    "bmc.whole",
    kind="bmc",
    needs=("facts",),
    remedy="Run the stage prove again; if it stays, reset the BMC, and look for newer firmware of it.",
    source="a part that could not be read is neither good nor bad (recorded BMCs of five vendors leave no gap)",
)
def whole(subject: Subject) -> Iterator[Finding]:
    """Every resource of the BMC that the facts need could be read: a gap may hide a part, or a firmware version.

    A link to a resource that does not exist (HTTP 404) is the BMC's own slip, and hides nothing.
    """
    gaps = _facts(subject).get("gaps")
    if not isinstance(gaps, list):
        raise ParseError("the BMC's facts do not say what could not be read")
    dead = [str(gap) for gap in gaps if str(gap).endswith("HTTP 404")]
    hidden = [str(gap) for gap in gaps if str(gap) not in dead]
    if hidden:
        yield subject.unknown(
            f"{len(hidden)} resources of the BMC could not be read: {'; '.join(hidden[:3])}",
            part="bmc",
            measured=f"{len(hidden)} gaps",
            expected="no gap",
            remedy=subject.check.remedy,
        )
    if dead:
        yield subject.watch(
            f"the BMC has {len(dead)} links to resources that do not exist: {'; '.join(dead[:3])}",
            part="bmc",
            measured=f"{len(dead)} dead links",
            expected="no dead link",
        )
    if not gaps:
        yield subject.passed("everything could be read from the BMC", part="bmc", measured="no gap", expected="no gap")


@check(
    "bmc.parts",
    kind="bmc",
    needs=("facts",),
    owner=Owner.VENDOR,
    remedy="See the part's log in the BMC, and have it replaced when the BMC still calls it critical.",
    source="Redfish: Status.Health (OK, Warning, Critical)",
)
def parts(subject: Subject) -> Iterator[Finding]:
    """The BMC's own word on each part's health."""
    facts = _facts(subject)
    told = 0
    troubled = False
    for kind in ("cpus", "gpus", "dimms", "drives", "nics", "psus"):
        for part in facts.get(kind) or []:
            if not isinstance(part, dict):
                raise ParseError(f"the BMC's facts hold a {kind[:-1]} that is not an object")
            health = part.get("health")
            told += 1
            if health not in ("Warning", "Critical"):
                continue
            troubled = True
            say = subject.failed if health == "Critical" else subject.watch
            name = str(part.get("id") or kind[:-1])
            yield say(
                f"the BMC calls {name} {health}",
                part=name,
                part_serial=str(part.get("serial") or ""),
                measured=health,
                expected="OK",
            )
    if not told:
        yield subject.unknown("the BMC tells of no part at all")
    elif not troubled:
        yield subject.passed(f"the BMC calls none of {told} parts troubled", measured=f"{told} parts")
