"""Xid events by the vendor's immediate action, per GPU, with bursts folded into one."""

import gate_samples as s
import pytest

from metalyard.gate import Outcome, Owner
from metalyard.gate.xid import ACTIONS, RECOVERY_TEXT, WORKFLOWS, Action, recovery_remedy


def judged(*messages, minutes=(), **outputs):
    result = s.with_outputs(kernel_log=s.kernel_log(*messages, minutes=minutes), **outputs)
    return [f for f in result.findings if f.check == "xid.events"]


def one(*messages, **more):
    (finding,) = judged(*messages, **more)
    return finding


RECOVERY = "GPU recovery action changed from 0x0 (None) to 0x{} ({})"
SINGLE = [
    (79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "fail", "Reboot the node"),
    (95, "pid=1, name=train, Uncontained error", "fail", "reset the GPU"),
    (109, "pid=1, name=train, Ch 00000002, errorString CTX SWITCH TIMEOUT", "fail", "reset the GPU"),
    (119, "pid=1, name=nvidia-smi, Timeout waiting for RPC from GSP!", "fail", "reset the GPU"),
    (64, "Row Remapper: failed", "fail", "reset the GPU"),
    (54, "aux power", "fail", "connectors are seated"),
    (168, "ECC", "fail", "Enable ECC"),
    (78, "vGPU start error", "fail", "Update driver"),
    (151, "VM", "fail", "virtual machine"),
    (48, "pid=1, name=x, DBE", "fail", "uncorrectable memory error"),
    (74, "NVLink: fatal error detected", "fail", "NVLink error"),
    (45, "pid=1, name=x, Ch 00000008", "fail", "restart the fabric manager"),
    (149, "NETIR", "fail", "not one of this product's"),
    (94, "pid=1, name=train, Contained error", "watch", "Restart the application"),
    (31, "pid=1, name=train, MMU Fault", "watch", "Restart the application"),
    (13, "pid=1, name=train, Graphics Exception on (GPC 1, TPC 2)", "watch", "Restart the application"),
    (43, "pid=1, name=train, Ch 0", "pass", ""),
    (63, "Row Remapper: remapped", "pass", ""),
    (154, RECOVERY.format(1, "GPU Reset Required"), "fail", "Reset the GPU"),
    (154, RECOVERY.format(2, "Node Reboot Required"), "fail", "Reboot the machine"),
    (154, RECOVERY.format(2, "OS Reboot"), "fail", "Reboot the machine"),
    (154, RECOVERY.format(3, "Drain P2P"), "fail", "peer-to-peer"),
    (154, RECOVERY.format(4, "Drain and Reset"), "fail", "Drain the GPU's work"),
    (154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "pass", ""),
    (154, RECOVERY.format(9, "Something New"), "unknown", "Look the Xid up"),
    (154, "no such text", "unknown", "Look the Xid up"),
    (7, "unused", "unknown", "Look the Xid up"),
    (999, "of the future", "unknown", "Look the Xid up"),
]


@pytest.mark.parametrize(("number", "text", "outcome", "remedy"), SINGLE, ids=range(len(SINGLE)))
def test_one_xid(number, text, outcome, remedy):
    finding = one(s.xid(number, text))
    assert finding.outcome == outcome
    assert remedy in finding.remedy
    assert (finding.part, finding.part_serial) == ("gpu 5", s.serial(5))
    assert finding.measured == f"Xid {number} x1"
    assert f"{s.NODE.name}: gpu 5 reported Xid {number} once" in finding.summary


def test_the_catalogue_is_whole_and_without_contradiction():
    assert len(ACTIONS) == 96
    assert [xid for xid, action in ACTIONS.items() if action is Action.REBOOT] == [79]
    assert {44, 43, 63, 92, 93} <= {xid for xid, action in ACTIONS.items() if action is Action.IGNORE}
    assert {xid for xid, action in ACTIONS.items() if action is Action.WORKFLOW} == {45, 48, 74, 159, *range(144, 151)}
    assert set(WORKFLOWS) <= set(ACTIONS)


def test_no_xid_is_in_two_rows_of_the_catalogue():
    from metalyard.gate import xid

    numbers = [number for text in xid._TABLE.values() for number in xid._numbers(text)]
    assert len(numbers) == len(set(numbers)) == len(ACTIONS)


def test_a_burst_counts_once_and_a_pause_makes_two():
    text = s.xid(94, "Contained error")
    assert one(text, text, text, minutes=(10, 11, 13)).measured == "Xid 94 x1"
    assert one(text, text, text, minutes=(10, 14, 18)).measured == "Xid 94 x3"


def test_thirty_one_again_on_one_gpu_is_taken_for_hardware():
    text = s.xid(31, "MMU Fault")
    assert one(text, text, minutes=(10, 11)).outcome is Outcome.WATCH
    again = one(text, text, minutes=(10, 20))
    assert (again.outcome, again.owner) == (Outcome.FAIL, Owner.VENDOR)
    apart = judged(text, s.xid(31, "MMU Fault", bus="D1"), minutes=(10, 20))
    assert [f.outcome for f in apart] == [Outcome.WATCH] * 2


def test_thirteen_again_counts_at_one_place_only():
    def at(gpc, tpc):
        return s.xid(13, f"Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, SM 0): Out Of Range Address")

    assert one(at(1, 2), at(1, 3), minutes=(10, 20)).outcome is Outcome.WATCH
    assert one(at(1, 2), at(1, 2), minutes=(10, 20)).outcome is Outcome.FAIL


def test_one_that_may_be_ignored_is_told_when_it_persists():
    text = s.xid(43, "Ch 0")
    assert one(text, text, minutes=(10, 20)).outcome is Outcome.PASS
    assert one(text, text, text, minutes=(10, 20, 30)).outcome is Outcome.WATCH


def test_a_cleanup_that_follows_another_xid_is_not_counted_beside_it():
    findings = judged(s.xid(95, "Uncontained"), s.xid(45, "pid=1, name=x, Ch 8"))
    assert {f.measured: f.outcome.value for f in findings} == {"Xid 95 x1": "fail", "Xid 45 x1": "pass"}


def test_gpus_are_told_apart_by_pci_address():
    findings = judged(s.xid(79, "a"), s.xid(79, "b", bus="1b"), s.xid(79, "c", bus="99"))
    assert sorted(f.part for f in findings) == ["gpu 0", "gpu 5", "gpu at 0000:99:00.0"]


def test_an_xid_is_told_though_the_gpus_do_not_answer():
    given = s.documents(s.os_outputs() | {"kernel_log": s.kernel_log(s.xid(79, "off the bus"))}, status={"gpus": 255})
    finding = next(f for f in s.verdict(given).findings if f.check == "xid.events")
    assert (finding.outcome, finding.part) == (Outcome.FAIL, "gpu at 0000:c3:00.0")


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:c3:00): GPU has fallen off the bus.",
        "NVRM: Xid (0000:c3:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:zz): 79, x",
        "NVRM: Xid 79",
    ],
)
def test_a_line_that_names_an_xid_and_can_not_be_read_is_unknown(line):
    assert one(line).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    "log", ["", "\n", "no time at all\n", "2026-13-20T11:00:00,000000+00:00 x\n", "   continuation first\n"]
)
def test_an_empty_or_strange_log_is_unknown(log):
    result = s.with_outputs(kernel_log=log)
    assert s.against(result) == [("xid.events", "unknown")]


def test_recovery_actions_are_known_in_both_writings():
    assert recovery_remedy("None") == ""
    assert recovery_remedy("GPU Reset Required") == recovery_remedy("Reset") == "Reset the GPU."
    assert recovery_remedy("Tea") is None
    assert all(recovery_remedy(text) is not None for text in RECOVERY_TEXT)
