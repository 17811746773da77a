"""The signed admission: what it binds, and that nothing else is taken for one."""

import json
from dataclasses import replace
from datetime import timedelta

import gate_samples as s
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from metalyard.gate import Outcome
from metalyard.gate.admission import AdmissionError, inventory, issue, sign_ed25519, sign_hmac, verify

SECRET = b"s" * 32
PRIVATE = b"p" * 32
PUBLIC = Ed25519PrivateKey.from_private_bytes(PRIVATE).public_key().public_bytes_raw()
DOCUMENTS = s.documents()
VERDICT = s.verdict(DOCUMENTS)


def issued(**changes):
    serials, firmware = inventory(DOCUMENTS)
    given = {
        "serials": serials, "firmware": firmware, "profile": s.PROFILE.name, "baseline": s.BASELINE.name,
        "issued": s.NOW, "days": 30,
    }  # fmt: skip
    return issue(VERDICT, **(given | changes))


SIGNED = {"secret": sign_hmac(issued(), SECRET).as_json(), "public": sign_ed25519(issued(), PRIVATE).as_json()}
KEYS = {"secret": SECRET, "public": PUBLIC}


def accept(kind, record=None, **more):
    key = more.pop("key", KEYS[kind])
    return verify(SIGNED[kind] if record is None else record, **({"now": s.NOW, kind: key} | more))


@pytest.mark.parametrize("kind", ["secret", "public"])
def test_an_admission_says_what_was_admitted_on_what_ground(kind):
    admission = accept(kind, node=s.NODE.name)
    assert admission == issued()
    assert admission.serials["chassis"] == s.NODE.serial
    assert admission.serials["gpu 5"] == s.serial(5)
    assert admission.firmware["HostBIOS_0"] == "1.6.7"
    assert admission.evidence == VERDICT.evidence
    assert admission.rules == VERDICT.rules
    assert admission.expires == "2026-12-20T12:00:00+00:00"


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.UNKNOWN, Outcome.NOT_APPLICABLE])
def test_a_verdict_that_does_not_admit_gets_no_admission(outcome):
    with pytest.raises(AdmissionError, match="admits nobody"):
        issue(
            replace(VERDICT, outcome=outcome),
            serials={}, firmware={}, profile="p", baseline="b", issued=s.NOW, days=1,
        )  # fmt: skip


def test_a_verdict_without_evidence_gets_no_admission():
    with pytest.raises(AdmissionError, match="names no evidence"):
        issue(replace(VERDICT, evidence={}), serials={}, firmware={}, profile="p", baseline="b", issued=s.NOW, days=1)


@pytest.mark.parametrize("changes", [{"days": 0}, {"issued": s.NOW.replace(tzinfo=None)}])
def test_an_admission_has_a_time_and_an_end(changes):
    with pytest.raises(AdmissionError, match="at least 1 day"):
        issued(**changes)


@pytest.mark.parametrize("kind", ["secret", "public"])
def test_an_admission_ends(kind):
    accept(kind, now=s.NOW + timedelta(days=30, seconds=-1))
    with pytest.raises(AdmissionError, match="expired at 2026-12-20"):
        accept(kind, now=s.NOW + timedelta(days=30))
    with pytest.raises(AdmissionError, match="later than now"):
        accept(kind, now=s.NOW - timedelta(seconds=1))


@pytest.mark.parametrize("kind", ["secret", "public"])
def test_another_key_or_node_is_refused(kind):
    with pytest.raises(AdmissionError, match="signed by another key"):
        accept(kind, key=Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    with pytest.raises(AdmissionError, match="expected gpu-r01-1"):
        accept(kind, node="gpu-r01-1")


def test_the_record_does_not_choose_the_algorithm():
    """An Ed25519 public key is public: it must not pass for the secret of an HMAC."""
    forged = sign_hmac(issued(), PUBLIC).as_json()
    with pytest.raises(AdmissionError, match="the key given is for ed25519"):
        accept("public", forged)
    relabelled = json.dumps(json.loads(forged) | {"algorithm": "ed25519"}).encode()
    with pytest.raises(AdmissionError, match="does not fit"):
        accept("public", relabelled)


def test_keys_that_are_no_keys_are_refused():
    with pytest.raises(AdmissionError, match="expected at least 32"):
        sign_hmac(issued(), b"short")
    with pytest.raises(AdmissionError, match="not an Ed25519 key"):
        sign_ed25519(issued(), b"short")
    with pytest.raises(AdmissionError, match="public key is not"):
        accept("public", key=b"short")
    with pytest.raises(AdmissionError, match="either the secret or the public key"):
        verify(SIGNED["secret"], now=s.NOW)
    with pytest.raises(AdmissionError, match="either the secret or the public key"):
        verify(SIGNED["secret"], now=s.NOW, secret=SECRET, public=PUBLIC)


def test_no_key_stands_in_a_record():
    assert b"ssssssss" not in SIGNED["secret"]
    assert b"pppppppp" not in SIGNED["public"]


@pytest.mark.parametrize("kind", ["secret", "public"])
def test_a_record_cut_anywhere_is_refused(kind):
    for length in range(len(SIGNED[kind])):
        with pytest.raises(AdmissionError):
            accept(kind, SIGNED[kind][:length])


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(["secret", "public"]), data=st.data())
def test_a_record_changed_anywhere_is_refused_or_says_the_same(kind, data):
    record = SIGNED[kind]
    place = data.draw(st.integers(0, len(record) - 1))
    changed = record[:place] + bytes([data.draw(st.integers(0, 255))]) + record[place + 1 :]
    try:
        assert accept(kind, changed) == issued()
    except AdmissionError:
        return


def test_evidence_without_serials_binds_nothing():
    for kind, document in (("bmc", None), ("bmc", b""), ("os", DOCUMENTS["os"][:-9])):
        with pytest.raises(AdmissionError, match="collect it again"):
            inventory(DOCUMENTS | {kind: document})
