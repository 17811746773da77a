"""The collector on the node: whole records, deadlines that hold, and the same seal as the gate's."""

import ast
import base64
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gate_samples as s
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalyard.gate import EvidenceError, evidence

FILE = s.ROOT / "plugins" / "module_utils" / "evidence_collector.py"
SPEC = importlib.util.spec_from_file_location("evidence_collector", FILE)
collector = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(collector)


def probe(*argv, deadline=10, limit=100000, name="one"):
    return collector.Probe(name, argv, deadline, limit)


def shell(script, **more):
    return collector.run(probe("sh", "-c", script, **more))


def test_a_command_is_recorded_whole():
    record = shell("printf 'out\\303\\244'; printf err >&2; exit 3")
    assert (record["stdout"], record["stderr"], record["exit_status"]) == ("outä", "err", 3)
    assert record["error"] is None
    assert record["stdout_bytes"] == 5
    assert record["command"][0] == "sh"


def test_bytes_that_are_not_text_survive():
    record = shell("printf 'a\\377\\200b'")
    document = evidence.pack(evidence.document("os", "n", s.NOW, "1", {"one": record}))
    found = evidence.read(document).probes["one"]
    assert found.stdout.encode("utf-8", "surrogateescape") == b"a\xff\x80b"
    assert found.usable


def test_a_tool_that_is_missing_is_said_to_be():
    assert collector.run(probe("no-such-tool-anywhere"))["error"] == "missing"


def test_a_tool_that_may_not_run_is_not_missing(tmp_path):
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    error = collector.run(probe(str(tmp_path / "tool")))["error"]
    assert "can't be run: Permission denied" in error


def test_output_beyond_the_limit_is_truncated_and_the_tool_is_gone():
    started = time.monotonic()
    record = shell("yes", limit=1000, deadline=30)
    assert (record["error"], record["exit_status"], record["stdout_bytes"]) == ("truncated", None, 1000)
    assert time.monotonic() - started < 5
    assert (
        not evidence.read(evidence.pack(evidence.document("os", "n", s.NOW, "1", {"one": record}))).probes["one"].usable
    )


def test_output_of_exactly_the_limit_is_whole():
    assert shell("printf 12345", limit=5)["error"] is None


def test_much_standard_error_does_not_block_the_tool():
    record = shell("head -c 1000000 /dev/zero >&2; echo done", deadline=20)
    assert (record["stdout"], record["error"]) == ("done\n", None)
    assert len(record["stderr"]) == collector.STDERR_LIMIT


def gone(pid):
    """Whether a killed process is gone; the kernel takes a moment."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_the_deadline_kills_the_whole_group(tmp_path):
    note = tmp_path / "pid"
    started = time.monotonic()
    record = shell(f"echo part; sh -c 'echo $$ > {note}; trap \"\" TERM INT; sleep 60'", deadline=0.7)
    assert record["error"] == "timeout"
    assert record["exit_status"] is None
    assert record["stdout"] == "part\n"
    assert time.monotonic() - started < 5
    assert gone(int(note.read_text()))


def test_a_child_left_behind_by_a_tool_does_not_stay(tmp_path):
    note = tmp_path / "pid"
    record = shell(f"sleep 60 >/dev/null 2>&1 & echo $! > {note}; echo out", deadline=20)
    assert (record["stdout"], record["error"]) == ("out\n", None)
    assert gone(int(note.read_text()))


def test_a_child_that_holds_the_output_open_is_a_timeout():
    """The output is not known to be whole before all that write to it have closed it."""
    assert shell("sleep 60 & echo out", deadline=0.7)["error"] == "timeout"


class Stubborn:
    """A process in uninterruptible sleep: no signal ends it."""

    def __init__(self):
        self.read, self.hold = os.pipe(), os.pipe()
        self.pid = 2**22 + 1  # beyond pid_max: no such group
        self.stdout = os.fdopen(self.read[0], "rb")
        self.stderr = os.fdopen(self.hold[0], "rb")
        self.returncode = None

    def wait(self, timeout=None):
        time.sleep(timeout)
        raise subprocess.TimeoutExpired("x", timeout)


def test_a_process_that_no_signal_ends_is_left_behind(monkeypatch):
    monkeypatch.setattr(collector.subprocess, "Popen", lambda *a, **k: Stubborn())
    monkeypatch.setattr(collector, "KILL_PATIENCE", 0.1)
    started = time.monotonic()
    record = collector.run(probe("nvidia-smi", deadline=0.3))
    assert (record["error"], record["exit_status"]) == ("timeout", None)
    assert time.monotonic() - started < 2


def test_probes_run_side_by_side_and_one_that_hangs_holds_up_nobody(monkeypatch):
    """Even a start of a process that never returns (an executable on a dead file server) ends with the deadline."""
    real = subprocess.Popen

    def hang(argv, **more):
        if argv[0] == "hangs":
            time.sleep(6)
        return real(argv, **more)

    monkeypatch.setattr(collector.subprocess, "Popen", hang)
    monkeypatch.setattr(collector, "KILL_PATIENCE", 0.1)
    probes = [probe("sleep", "0.5", name=f"sleep{i}") for i in range(6)] + [probe("hangs", name="hangs")]
    started = time.monotonic()
    document = collector.collect("n", "os", probes, deadline=1.5)
    assert time.monotonic() - started < 4
    found = evidence.read(json.dumps(document).encode()).probes
    assert [found[f"sleep{i}"].usable for i in range(6)] == [True] * 6
    assert found["hangs"].error == "timeout"
    left = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    assert left, "the one that hangs is still there"
    assert all(thread.daemon for thread in left), "and does not keep the process from ending"


def test_a_defect_in_one_probe_is_that_probes_error(monkeypatch):
    real = collector._read
    monkeypatch.setattr(collector, "_read", lambda p, limit, until: real(p, limit, until) if limit == 7 else 1 / 0)
    document = collector.collect("n", "os", [probe("true", name="bad"), probe("true", name="good", limit=7)], 5)
    found = evidence.read(json.dumps(document).encode()).probes
    assert found["bad"].error == "collector: ZeroDivisionError"
    assert found["good"].usable


def test_probes_see_one_language_and_time_zone(monkeypatch):
    monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    record = shell("echo $LC_ALL $LANG $TZ $PATH; env | grep -c -e LC_TIME -e LANGUAGE; true")
    assert record["stdout"] == f"C C UTC {collector.PATH}\n0\n"


def test_both_sides_seal_and_record_alike():
    records = {"one": shell("printf 'x\\377y'; exit 4"), "two": collector.run(probe("no-such-tool"))}
    theirs = collector.seal(
        {
            "format": 1,
            "kind": "os",
            "node": "n",
            "collected_at": "2026-11-20T12:00:00+00:00",
            "collector": "1",
            "probes": records,
        }
    )
    ours = evidence.document("os", "n", s.NOW, "1", records)
    assert theirs == ours
    assert collector.canonical(theirs) == evidence.canonical(ours)
    assert base64.b64decode(collector.pack(theirs))[10:] == evidence.pack(ours)[10:]  # but for gzip's own header
    one = collector.record(("a",), 0, b"\xff\x00 text", b"err", 1.23456, None)
    assert one == evidence.record(("a",), 0, b"\xff\x00 text", stderr=b"err", duration=1.23456)
    assert collector.FORMAT == evidence.FORMAT


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda t: t != "digest"),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=10,
        ),
        max_size=6,
    )
)
def test_both_sides_seal_any_document_alike(document):
    assert collector.seal(document) == evidence.seal(document)


@given(st.binary(max_size=200))
def test_any_output_goes_through_a_document_unharmed(data):
    document = evidence.pack(collector.seal({**_empty(), "probes": {"one": collector.record(("a",), 0, data)}}))
    found = evidence.read(document).probes["one"]
    assert found.usable
    assert found.stdout.encode("utf-8", "surrogateescape") == data


def _empty():
    return {"format": 1, "kind": "os", "node": "n", "collected_at": "2026-11-20T12:00:00+00:00", "collector": "1"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "not of format 1"),
        ({"probes": []}, "lacks or garbles"),
        ({"probes": {"one": {}}}, "lacks or garbles"),
        ({"probes": {"one": {"command": [], "exit_status": "0", "stdout": ""}}}, "lacks or garbles"),
        ({"probes": {"one": {"command": [], "exit_status": True, "stdout": ""}}}, "lacks or garbles"),
    ],
)
def test_a_sealed_document_of_another_shape_is_refused(change, words):
    with pytest.raises(EvidenceError, match=words):
        evidence.read(json.dumps(evidence.seal({**_empty(), "probes": {}} | change)).encode())


def test_a_record_without_length_and_digest_is_not_used():
    bare = {"command": ["a"], "exit_status": 0, "stdout": "all is well\n", "error": None}
    document = evidence.seal({**_empty(), "probes": {"one": bare}})
    assert not evidence.read(json.dumps(document).encode()).probes["one"].usable


def test_a_document_that_unpacks_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(evidence, "LARGEST", 1000)
    with pytest.raises(EvidenceError, match="more than 1000 bytes"):
        evidence.read(evidence.pack({"x": "0" * 5000}))


def test_probes_are_chosen_by_name():
    assert [p.name for p in collector.choose("os", ["clock", "gpus"])] == ["gpus", "clock"]
    extra = probe("true", name="own")
    assert collector.choose("fabric", None, [extra])[-1] == extra
    with pytest.raises(ValueError, match="no probe named gpu in evidence of kind os; there are: gpus"):
        collector.choose("os", ["gpu"])
    with pytest.raises(ValueError, match="has the name of another one"):
        collector.choose("os", None, [probe("true", name="gpus")])
    with pytest.raises(ValueError, match="has no command"):
        collector.choose("os", None, [probe(name="own")])


def test_every_probe_that_a_check_needs_is_collected():
    for one in s.CHECKS:
        if one.kind != "bmc":
            assert set(one.needs) <= {p.name for p in collector.PROBES[one.kind]}
    assert set(s.os_outputs()) == {p.name for p in collector.PROBES["os"]}


def test_probes_have_deadlines_and_limits():
    for probes in collector.PROBES.values():
        assert all(0 < p.deadline <= 300 and 0 < p.limit <= 64 * 2**20 and p.argv for p in probes)


def test_the_collector_is_python_3_8_and_standard_library_alone():
    tree = ast.parse(FILE.read_text(), feature_version=(3, 8))
    names = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names)


MODULE = "from ansible_collections.metalyard.fleet.plugins.modules.evidence import main; main()"


def call_module(**arguments):
    """The module as Ansible calls it: arguments on standard input, JSON on standard output."""
    text = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
    done = subprocess.run(
        [sys.executable, "-c", MODULE], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_module_returns_a_document_and_changes_nothing(check_mode):
    result = call_module(
        node="n1", probes=["packages", "clock"], extra=[{"name": "own", "argv": ["echo", "hello"]}],
        deadline=20, _ansible_check_mode=check_mode,
    )  # fmt: skip
    assert result["changed"] is False
    found = evidence.read(base64.b64decode(result["document"]))
    assert (found.kind, found.node, found.digest) == ("os", "n1", result["digest"])
    assert found.probes["own"].stdout == "hello\n"
    assert result["probes"]["own"] == {
        "exit_status": 0,
        "error": None,
        "seconds": found.probes["own"].duration,
        "bytes": 6,
    }
    assert set(found.probes) == {"packages", "clock", "own"}


def test_the_module_names_a_probe_that_there_is_not():
    result = call_module(node="n1", probes=["gpu"])
    assert result["failed"]
    assert "n1: no probe named gpu" in result["msg"]


def test_the_module_is_not_left_waiting_by_a_probe_that_hangs():
    """Ended as a whole within its deadline, and no thread keeps the process alive."""
    started = time.monotonic()
    result = call_module(node="n1", probes=["clock"], extra=[{"name": "own", "argv": ["sleep", "50"]}], deadline=1)
    assert result["probes"]["own"]["error"] == "timeout"
    assert time.monotonic() - started < 15
    assert signal.getsignal(signal.SIGCHLD) in (signal.SIG_DFL, None)
