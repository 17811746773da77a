"""Evidence cut at every byte: never a pass, never a watch. Closed on doubt, byte by byte."""

import gzip
import json

import gate_samples as s
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalyard.gate import EvidenceError, Outcome, evidence, judge
from metalyard.plan.cables import CablePlan

# A small machine, so that every byte of its evidence can be tried: 8 GPUs, 2 adapters, 4 modules, 2 drives.
PROFILE = s.PROFILE.model_copy(
    update={
        "hca": s.PROFILE.hca.model_copy(update={"count": 2, "devices": ["mlx5_0", "mlx5_1"]}),
        "memory": s.PROFILE.memory.model_copy(update={"dimm_count": 4}),
        "drives": s.PROFILE.drives.model_copy(update={"nvme_count": 2}),
    }
)
BASE = s.PLAN.node("gpu-r01-1")
NODE = BASE.model_copy(update={"hca_guids": {name: BASE.hca_guids[name] for name in ("mlx5_0", "mlx5_1")}})
CABLES = CablePlan.of(s.PLAN.model_copy(update={"cables": [s.PLAN.cables[i] for i in (0, 1, 64)], "nodes": [NODE]}))
OUTPUTS = s.os_outputs() | {
    "ib": s.ib(NODE.hca_guids),
    "memory": s.memory(4),
    "drives": s.drives(2),
}
FACTS = s.facts(serial=NODE.serial, gpus=[], parts=[], drives=[{"id": "nvme0", "serial": "S64", "health": "OK"}])


def whole(fabric=None):
    text = fabric or s.fabric_text("small")
    return {
        "os": s.packed("os", s.os_records(OUTPUTS), NODE.name),
        "bmc": evidence.pack(evidence.bmc_document(NODE.name, FACTS, s.NOW)),
        "fabric": s.packed("fabric", {"ibnetdiscover": evidence.record(("ibnetdiscover",), 0, text.encode())}, "sm-1"),
    }


def decide(documents, checks=s.CHECKS):
    return judge(NODE, PROFILE, s.BASELINE, documents, CABLES, checks)


def of_kind(*kinds):
    return [one for one in s.CHECKS if one.kind in kinds]


def test_whole_evidence_passes():
    result = decide(whole())
    assert s.against(result) == []
    assert result.outcome is Outcome.PASS


@pytest.mark.parametrize("kind", ["os", "bmc", "fabric"])
def test_a_compressed_document_cut_anywhere_is_unknown(kind):
    data = whole()[kind]
    checks = of_kind(kind)
    assert decide({kind: data}, checks).outcome is Outcome.PASS
    for length in range(len(data)):
        assert decide({kind: data[:length]}, checks).outcome is Outcome.UNKNOWN, length


@pytest.mark.parametrize("kind", ["bmc", "fabric"])
def test_a_plain_document_cut_anywhere_is_unknown(kind):
    data = gzip.decompress(whole()[kind])
    checks = of_kind(kind)
    assert decide({kind: data}, checks).outcome is Outcome.PASS
    for length in range(len(data)):
        assert decide({kind: data[:length]}, checks).outcome is Outcome.UNKNOWN, length


def test_a_plain_document_of_the_node_cut_anywhere_is_refused():
    data = gzip.decompress(whole()["os"])
    for length in range(0, len(data), 7):
        with pytest.raises(EvidenceError):
            evidence.read(data[:length])


ALL = {**{("os", name): text for name, text in OUTPUTS.items()}, ("fabric", "ibnetdiscover"): s.fabric_text("small")}
ALL["bmc", "facts"] = json.dumps(FACTS, sort_keys=True, indent=1)


def needing(kind, probe):
    """The checks that this probe alone is enough for."""
    return [one for one in of_kind(kind) if probe in one.needs]


def records(kind, probe, record):
    """A node's records with one replaced; only those that the probe's checks need, to be quick."""
    others = {name for one in needing(kind, probe) for name in one.needs} | ({"gpus"} if kind == "os" else set())
    usual = s.os_records({name: OUTPUTS[name] for name in others if name in OUTPUTS}) if kind == "os" else {}
    return usual | {probe: record}


@pytest.mark.parametrize(("kind", "probe"), sorted(ALL))
def test_output_cut_anywhere_in_a_sealed_document_is_unknown(kind, probe):
    """Cut after it was read: its length and digest no longer fit, whatever is left of it."""
    text, checks = ALL[kind, probe], needing(kind, probe)
    record = evidence.record((probe,), 0, text.encode())
    assert decide({kind: s.packed(kind, records(kind, probe, record), NODE.name)}, checks).outcome is Outcome.PASS
    for length in range(len(text)):
        cut = record | {"stdout": text[:length]}
        result = decide({kind: s.packed(kind, records(kind, probe, cut), NODE.name)}, checks)
        assert {finding.outcome for finding in result.findings} == {Outcome.UNKNOWN}, length


# The lines of a log or a process list have no end of their own; only length and digest tell that there were more.
OPEN_ENDED = {"kernel_log", "processes"}


@pytest.mark.parametrize(("kind", "probe"), sorted(key for key in ALL if key[1] not in OPEN_ENDED))
def test_a_tool_that_stops_early_is_not_taken_for_healthy(kind, probe):
    """Cut before it was read, with length and digest of what was left: the parser must notice by itself.

    What it can't notice must not have mattered: then the findings are the same as for the whole output.
    """
    text, checks = ALL[kind, probe], needing(kind, probe)

    def judged(output):
        record = evidence.record((probe,), 0, output.encode())
        return decide({kind: s.packed(kind, records(kind, probe, record), NODE.name)}, checks)

    healthy = judged(text)
    for length in range(0, len(text), 1 if len(text) < 8192 else 5):
        result = judged(text[:length])
        if result.outcome in (Outcome.PASS, Outcome.WATCH):
            assert result.findings == healthy.findings, (length, text[max(0, length - 40) : length])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_document_changed_anywhere_is_refused(data):
    """One byte replaced in the plain text: either refused, or it says exactly the same as before."""
    plain = gzip.decompress(whole()["bmc"])
    place = data.draw(st.integers(0, len(plain) - 1))
    byte = data.draw(st.integers(0, 255))
    changed = plain[:place] + bytes([byte]) + plain[place + 1 :]
    try:
        again = evidence.read(changed)
    except EvidenceError:
        return
    assert again == evidence.read(plain)


@settings(max_examples=300, deadline=None)
@given(probe=st.sampled_from(sorted(OUTPUTS)), data=st.data())
def test_any_output_at_all_gives_a_verdict(probe, data):
    """No output makes the judge raise, and noise alone is never a pass."""
    noise = data.draw(
        st.one_of(st.text(max_size=300), st.binary(max_size=300).map(lambda b: b.decode("utf-8", "surrogateescape")))
    )
    record = evidence.record((probe,), 0, noise.encode("utf-8", "surrogateescape"))
    checks = needing("os", probe)
    result = decide({"os": s.packed("os", records("os", probe, record), NODE.name)}, checks)
    json.dumps([finding.as_dict() for finding in result.findings], ensure_ascii=False).encode()
    if noise != OUTPUTS[probe] and not (probe == "services" and noise.strip() == "[]"):
        assert result.outcome not in (Outcome.PASS, Outcome.WATCH)


@settings(max_examples=200, deadline=None)
@given(probe=st.sampled_from(sorted(OUTPUTS)), data=st.data())
def test_a_line_that_is_missing_is_never_better(probe, data):
    """A line out of the middle of an output, honestly recorded: unknown, a fault, or nothing of meaning."""
    lines = OUTPUTS[probe].splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines) - 1))
    text = "".join(lines[:place] + lines[place + 1 :])
    checks = needing("os", probe)

    def judged(output):
        record = evidence.record((probe,), 0, output.encode())
        return decide({"os": s.packed("os", records("os", probe, record), NODE.name)}, checks)

    result = judged(text)
    if result.outcome in (Outcome.PASS, Outcome.WATCH) and probe not in OPEN_ENDED:
        assert result.findings == judged(OUTPUTS[probe]).findings
