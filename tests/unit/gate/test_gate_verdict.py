"""From evidence to verdict: a healthy node passes, each fault gives exactly its findings, doubt is unknown."""

import json

import gate_samples as s
import pytest

from metalyard.gate import Finding, Outcome, Owner, evidence
from metalyard.gate.check import Check, check

XID_79 = s.xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
LOST = (
    "Unable to determine the device handle for GPU5: 0000:C3:00.0: GPU is lost.  Reboot the system to recover this GPU"
)


def without_gpu(text, line=LOST):
    """A GPU list in which GPU 5's place is taken by the line that the driver prints for a lost one."""
    return "".join(line + "\n" if row.startswith("5,") else row + "\n" for row in text.splitlines())


def test_a_healthy_node_passes():
    result = s.verdict()
    assert s.against(result) == []
    assert result.outcome is Outcome.PASS
    assert result.admits
    assert {f.check for f in result.findings} == {one.id for one in s.CHECKS}
    assert set(result.evidence) == {"os", "bmc", "fabric"}
    assert all(len(digest) == 64 for digest in [*result.evidence.values(), result.rules])


def test_every_check_declares_source_remedy_and_a_docstring():
    assert all(one.source and one.remedy and one.function.__doc__ for one in s.CHECKS)


def test_the_same_evidence_gives_the_same_verdict():
    assert s.verdict() == s.verdict()


def test_a_gpu_off_the_bus_is_a_count_and_an_xid_and_nothing_else():
    """As driver 570 answers: seven GPUs, a line for the lost one, exit status 15."""
    outputs = s.os_outputs()
    outputs["gpus"] = without_gpu(s.gpus())
    rows = s.nvlink().splitlines(keepends=True)
    outputs["nvlink"] = "".join(rows[: 5 * 19]) + LOST + "\n" + "".join(rows[6 * 19 :])
    whole = s.gpu_query()
    start = whole.index('\t<gpu id="00000000:C3')
    outputs["gpu_query"] = whole[:start] + whole[whole.index('\t<gpu id="00000000:D1') :]
    outputs["kernel_log"] = s.kernel_log(XID_79)
    status = dict.fromkeys(("gpus", "nvlink", "gpu_query"), 15)
    result = s.verdict(s.documents(outputs, status=status, stderr={"gpu_query": LOST + "\n"}))
    assert s.against(result) == [("gpu.count", "fail"), ("xid.events", "fail")]
    assert result.outcome is Outcome.FAIL
    assert not any(f.check == "gpu.count" and f.outcome is Outcome.PASS for f in result.findings)
    event, count = result.reasons
    assert count.measured == "7 GPUs"
    assert count.part == "gpu 5 at 0000:c3:00.0"
    assert count.part_serial == s.serial(5), "the BMC still lists the part that the driver has lost"
    assert event.part == "gpu 5 at 0000:c3:00.0"
    assert "Xid 79 once (GPU has fallen off the bus)" in event.summary
    assert event.remedy.startswith("Reboot the node")
    assert all(s.NODE.name in f.summary and f.remedy for f in result.reasons)


def test_seven_gpus_without_a_word_about_the_eighth_fail_by_count():
    text = "".join(row + "\n" for row in s.gpus().splitlines() if not row.startswith("5,"))
    result = s.with_outputs(gpus=text)
    assert ("gpu.count", "fail") in s.against(result)
    assert next(f for f in result.findings if f.check == "gpu.count").part_serial == s.serial(5)


@pytest.mark.parametrize("text", [s.gpus(0), "No devices were found\n"])
def test_no_gpu_at_all_is_not_a_pass(text):
    result = s.with_outputs(gpus=text)
    found = dict(s.against(result))
    assert found["gpu.count"] == "fail"
    assert found["gpu.driver"] == "unknown"
    assert not any(f.check.startswith("gpu.") and f.outcome is Outcome.PASS for f in result.findings)


def test_a_swapped_pair_is_one_finding_that_names_both_ends():
    result = s.verdict(s.documents(fabric="cable_swap"))
    assert s.against(result) == [("cabling.links", "fail")]
    (finding,) = result.reasons
    assert finding.owner is Owner.DATA_CENTRE
    for word in (
        "C049",
        "C051",
        "mlx5_0",
        "mlx5_2",
        "leaf-1 port 13",
        "leaf-2 port 13",
        "rack r01, unit 41",
        s.NODE.name,
    ):
        assert word in finding.summary
    other = s.PLAN.node("gpu-r02-4")
    others = s.judge(other, s.PROFILE, s.BASELINE, s.documents(fabric="cable_swap"), s.CABLES, s.CHECKS)
    assert [f.outcome for f in others.findings if f.check == "cabling.links"] == [Outcome.PASS]


def test_a_wrong_serial_fails_by_identity():
    result = s.verdict(s.documents(bmc=s.facts(serial="1660623009999")))
    assert s.against(result) == [("bmc.identity", "fail")]
    assert "1660623009999" in result.reasons[0].summary
    assert s.NODE.serial in result.reasons[0].summary


FAULTS = [
    ("gpus", s.gpus(name="NVIDIA A100-SXM4-80GB"), [("gpu.identity", "fail")]),
    ("gpus", s.gpus(serial=s.serial(2)), [("gpu.identity", "fail"), ("gpu.identity", "fail")]),
    ("gpus", s.gpus(serial="1650000000000"), [("gpu.identity", "watch")]),
    ("gpus", s.gpus(vbios="96.00.74.00.01"), [("gpu.vbios", "fail")]),
    ("gpus", s.gpus(memory="40960 MiB"), [("gpu.memory", "fail")]),
    ("gpus", s.gpus(width=8), [("gpu.pcie", "fail")]),
    ("gpus", s.gpus(gen=4), [("gpu.pcie", "fail")]),
    ("gpus", s.gpus(temperature=61), [("gpu.temperature", "fail")]),
    ("gpus", s.gpus(limit="500.00 W"), [("gpu.power_limit", "fail")]),
    ("gpus", s.gpus(sm="1755 MHz"), [("gpu.clocks", "fail")]),
    ("gpus", s.gpus(driver="550.90.07"), [("gpu.driver", "fail")]),
    ("gpus", s.gpus(temperature="[N/A]"), [("gpu.temperature", "unknown")]),
    ("gpus", s.gpus(temperature="[Unknown Error]"), [("gpu.temperature", "unknown")]),
    ("gpus", s.gpus(memory="[GPU requires reset]"), [("gpu.memory", "unknown")]),
    ("gpus", s.gpus(draw="ERR!"), [("gpu.power_limit", "unknown")]),
    ("gpus", s.gpus(width="x16"), [("gpu.pcie", "unknown")]),
    ("gpus", s.gpus(serial="[N/A]"), [("gpu.identity", "unknown")]),
    ("gpu_query", s.gpu_query(action="Reset"), [("memory_errors.recovery_action", "fail")]),
    ("gpu_query", s.gpu_query(action="Drain and Reset"), [("memory_errors.recovery_action", "fail")]),
    ("gpu_query", s.gpu_query(action="Dance"), [("memory_errors.recovery_action", "unknown")]),
    ("gpu_query", s.gpu_query(failure="Yes"), [("memory_errors.row_remap", "fail")]),
    ("gpu_query", s.gpu_query(pending="Yes"), [("memory_errors.row_remap", "fail")]),
    ("gpu_query", s.gpu_query(remap_unc=2), [("memory_errors.row_remap", "watch")]),
    ("gpu_query", s.gpu_query(pending="N/A"), [("memory_errors.row_remap", "unknown")]),
    ("gpu_query", s.gpu_query(none=1), [("memory_errors.remap_reserve", "watch")]),
    ("gpu_query", s.gpu_query(dram=1), [("memory_errors.uncorrectable", "fail")]),
    ("gpu_query", s.gpu_query(corrected=7), [("memory_errors.uncorrectable", "watch")]),
    ("gpu_query", s.gpu_query(ecc="Disabled"), [("memory_errors.uncorrectable", "fail")]),
    ("gpu_query", s.gpu_query(threshold="Yes"), [("memory_errors.sram_threshold", "fail")]),
    ("gpu_query", s.gpu_query(state="In Progress", status="N/A"), [("fabric_manager.gpus", "fail")]),
    ("nvlink", s.nvlink(inactive=(4, 9)), [("nvlink.links", "fail")]),
    ("nvlink", s.nvlink(slow=(4,)), [("nvlink.links", "fail")]),
    ("nvlink", s.nvlink(count=7), [("nvlink.links", "unknown")]),
    ("ib", s.ib(missing=("mlx5_5",)), [("infiniband.adapters", "fail")]),
    ("ib", s.ib(State="Down", Physical_state="Polling", Rate="10"), [("infiniband.ports", "fail")]),
    ("ib", s.ib(State="Initializing"), [("infiniband.ports", "fail")]),
    ("ib", s.ib(Rate="200"), [("infiniband.ports", "fail")]),
    ("ib", s.ib(Rate="??"), [("infiniband.ports", "unknown")]),
    ("ib", s.ib(Link_layer="Ethernet"), [("infiniband.ports", "fail")]),
    ("ib", s.ib(dict(s.NODE.hca_guids, mlx5_1="0xb83fd203000fff01")), [("infiniband.adapters", "fail")]),
    ("fabric_manager", s.fabric_manager(active="failed", sub="failed"), [("fabric_manager.service", "fail")]),
    ("fabric_manager", s.fabric_manager(restarts=3), [("fabric_manager.service", "watch")]),
    ("clock", s.clock(offset="0.061"), [("clock.offset", "fail")]),
    ("clock", s.clock(offset="-0.061"), [("clock.offset", "fail")]),
    ("clock", s.clock(stratum=0, leap="Not synchronised"), [("clock.offset", "fail")]),
    ("clock", s.clock(offset="nan"), [("clock.offset", "unknown")]),
    ("cpu", s.cpu(sockets=1), [("host.cpu", "fail")]),
    ("cpu", s.cpu(model="AMD EPYC 9654 96-Core Processor"), [("host.cpu", "fail")]),
    ("memory", s.memory(empty=1), [("host.memory", "fail")]),
    ("memory", s.memory(size="32 GB"), [("host.memory", "fail")]),
    ("memory", s.memory(size="Unknown"), [("host.memory", "unknown")]),
    ("drives", s.drives(7), [("host.drives", "fail")]),
    ("services", '[{"unit":"containerd.service","active":"failed"}]\n', [("services.failed", "fail")]),
    ("services", '[{"unit":"motd-news.service","active":"failed"}]\n', [("services.failed", "watch")]),
    ("packages", s.packages(nvidia_container_toolkit="1.17.4-1"), [("software.packages", "fail")]),
    ("packages", s.packages(nvidia_container_toolkit="absent"), [("software.packages", "fail")]),
    ("packages", s.packages(nvidia_container_toolkit="rc "), [("software.packages", "fail")]),
    (
        "packages",
        s.packages(nvidia_container_toolkit="iF "),
        [("software.packages", "fail"), ("software.packages", "watch")],
    ),
    ("packages", s.packages() + "iF \tnvme-cli\t2.4\n", [("software.packages", "watch")]),
    (
        "packages",
        s.packages() + "iX \tnvme-cli\t2.4\n",
        [("fabric_manager.version", "unknown"), ("software.packages", "unknown")],
    ),
    (
        "packages",
        s.packages(nvidia_fabricmanager_570="550.90.07-1"),
        [("fabric_manager.version", "fail"), ("software.packages", "fail")],
    ),
    ("mounts", s.mounts(options="ro,relatime"), [("host.mounts", "fail")]),
    ("mounts", s.mounts(used="97%"), [("host.mounts", "watch")]),
    ("mounts", s.mounts(used="-"), [("host.mounts", "unknown")]),
    ("mounts", s.mounts(used="much"), [("host.mounts", "unknown")]),
    (
        "processes",
        s.processes(
            "D    4242 rpc_wait_bit_killable            df\n", "D    4242 rpc_wait_bit_killable            df\n"
        ),
        [("host.stuck_processes", "watch")],
    ),
    ("processes", s.processes("D    4242 io_schedule                      dd\n"), []),
]


@pytest.mark.parametrize(("probe", "output", "expected"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_gives_exactly_its_findings(probe, output, expected):
    result = s.with_outputs(**{probe: output})
    assert s.against(result) == expected
    worst = next((o for o in ("fail", "unknown", "watch") if o in dict.fromkeys(o for _, o in expected)), "pass")
    assert result.outcome == worst
    for finding in result.reasons:
        assert s.NODE.name in finding.summary
        assert finding.remedy


BMC_FAULTS = [
    (s.facts(firmware=s.facts()["firmware"] | {"HostBIOS_0": "1.5.1"}), [("bmc.firmware", "fail")]),
    (s.facts(firmware=s.facts()["firmware"] | {"HostBIOS_0": None}), [("bmc.firmware", "unknown")]),
    (s.facts(firmware={"HostBMC_0": "24.09.17"}), [("bmc.firmware", "unknown")] * 2),
    (s.facts(firmware={}), [("bmc.firmware", "unknown")]),
    (s.facts(serial=None), [("bmc.identity", "unknown")]),
    (s.facts(model="PowerEdge XE9680"), [("bmc.identity", "fail")]),
    (s.facts(bios=s.facts()["bios"] | {"SubNumaClustering": "Enabled"}), [("bmc.bios", "fail")]),
    (s.facts(bios={}), [("bmc.bios", "unknown")] * len(s.PROFILE.bios)),
    (s.facts(dimms=[{"id": "DIMM_A1", "serial": "80CE", "health": "Critical"}]), [("bmc.parts", "fail")]),
    (s.facts(psus=[{"id": "PSU0", "serial": None, "health": "Warning"}]), [("bmc.parts", "watch")]),
    (s.facts(gpus=[]), [("bmc.parts", "unknown")]),
    (s.facts(gaps=["/redfish/v1/UpdateService/FirmwareInventory/A: HTTP 500"]), [("bmc.whole", "unknown")]),
    (s.facts(gaps=["/redfish/v1/Chassis/A/Sensors: HTTP 404"]), [("bmc.whole", "watch")]),
    (s.facts(gaps=None), [("bmc.whole", "unknown")]),
]


@pytest.mark.parametrize(("facts", "expected"), BMC_FAULTS, ids=range(len(BMC_FAULTS)))
def test_what_the_bmc_says_is_judged(facts, expected):
    assert s.against(s.verdict(s.documents(bmc=facts))) == expected


@pytest.mark.parametrize("kind", ["os", "bmc", "fabric"])
@pytest.mark.parametrize("given", [None, b"", b"{}", b"\x1f\x8bnot gzip", b"[" * 100000])
def test_evidence_that_is_missing_or_broken_is_unknown(kind, given):
    result = s.verdict(s.documents() | {kind: given})
    assert s.against(result) == [(f"evidence.{kind}", "unknown")]
    assert kind not in result.evidence
    assert not result.admits


def test_no_evidence_at_all_is_unknown():
    assert s.verdict({}).outcome is Outcome.UNKNOWN


def test_evidence_of_another_node_or_kind_is_unknown():
    other = s.packed("os", s.os_records(), "gpu-r01-1")
    assert s.against(s.verdict(s.documents() | {"os": other})) == [("evidence.os", "unknown")]
    wrong = s.packed("bmc", s.os_records())
    assert s.against(s.verdict(s.documents() | {"os": wrong})) == [("evidence.os", "unknown")]


@pytest.mark.parametrize("probe", sorted(s.os_outputs()))
@pytest.mark.parametrize("error", ["missing", "timeout", "truncated", "absent", "status"])
def test_a_probe_that_gave_nothing_to_use_is_unknown(probe, error):
    records = s.os_records()
    if error == "absent":
        del records[probe]
    elif error == "status":
        records[probe]["exit_status"] = 1
    else:
        records[probe] |= {"error": error, "exit_status": None}
    result = s.verdict(s.documents() | {"os": s.packed("os", records)})
    needing = sorted(one.id for one in s.CHECKS if one.kind == "os" and probe in one.needs)
    assert [check for check, _ in s.against(result)] == needing
    assert {outcome for _, outcome in s.against(result)} == {"unknown"}


WORDS = [
    ({"error": "missing"}, "'chronyc' is not installed"),
    ({"error": "timeout"}, "did not end within its deadline"),
    ({"error": "truncated"}, "printed more than its limit"),
    ({"stdout": "0A"}, "of output are here"),
    ({"stdout_sha256": "0" * 64}, "does not match its digest"),
    ({"exit_status": 1, "stderr": "506 Cannot talk to daemon\n"}, "ended with status 1: 506 Cannot talk to daemon"),
]


@pytest.mark.parametrize(("change", "words"), WORDS)
def test_an_unknown_finding_says_why(change, words):
    records = s.os_records()
    records["clock"] |= {"command": ["chronyc", "-c", "tracking"]} | change
    (finding,) = s.verdict(s.documents() | {"os": s.packed("os", records)}).reasons
    assert (finding.check, finding.outcome) == ("clock.offset", Outcome.UNKNOWN)
    assert words in finding.summary


def _check(function, needs=("cpu",)):
    return check("test.one", needs=needs, source="here", remedy="none")(function)


def raises(subject):
    raise RuntimeError("boom")


def exits(subject):
    yield subject.passed("first")
    raise KeyError("x")


def silent(subject):
    return []


def foreign(subject):
    return [Finding("other.check", subject.node.name, Outcome.PASS, "all is well")]


def elsewhere(subject):
    return [Finding("test.one", "another-node", Outcome.PASS, "all is well")]


@pytest.mark.parametrize("function", [raises, exits, silent, foreign, elsewhere, lambda subject: ["pass"]])
def test_a_check_that_crashes_or_says_nothing_is_unknown(function):
    result = s.verdict(checks=[*s.CHECKS, _check(function)])
    assert s.against(result) == [("test.one", "unknown")]
    assert result.outcome is Outcome.UNKNOWN


def test_a_crashing_check_is_named_with_its_error():
    (finding,) = s.verdict(checks=[*s.CHECKS, _check(raises)]).reasons
    assert "test.one" in finding.summary
    assert "RuntimeError: boom" in finding.summary


def test_a_crashing_applies_runs_the_check():
    def never(subject):
        raise ZeroDivisionError

    one = check("test.one", needs=("cpu",), source="here", remedy="none", applies=never)(silent)
    assert s.against(s.verdict(checks=[one])) == [("test.one", "unknown")]


def test_nothing_that_passed_is_nothing_proven():
    assert s.verdict(checks=[]).outcome is Outcome.UNKNOWN
    skipped = check("test.one", needs=("cpu",), source="here", remedy="none", applies=lambda _: False)(silent)
    result = s.verdict(checks=[skipped])
    assert result.outcome is Outcome.UNKNOWN
    assert [f.outcome for f in result.findings] == [Outcome.NOT_APPLICABLE]


def test_what_a_node_does_not_have_is_not_applicable():
    """A node without GPUs and cables needs neither their tools nor the fabric."""
    profile = s.PROFILE.model_copy(
        update={
            "gpu": s.PROFILE.gpu.model_copy(update={"count": 0}),
            "hca": s.PROFILE.hca.model_copy(update={"count": 0}),
        }
    )
    node = s.NODE.model_copy(update={"name": "plain-1"})
    records = {name: r for name, r in s.os_records().items() if name not in ("gpus", "gpu_query", "nvlink", "ib")}
    given = {
        "os": s.packed("os", records, node.name),
        "bmc": evidence.pack(evidence.bmc_document(node.name, s.facts(), s.NOW)),
    }
    result = s.judge(node, profile, s.BASELINE, given, s.CABLES, s.CHECKS)
    assert s.against(result) == []
    assert result.outcome is Outcome.PASS
    assert {f.check for f in result.findings if f.outcome is Outcome.NOT_APPLICABLE} >= {"gpu.count", "cabling.links"}


def test_findings_hold_nothing_that_a_page_or_database_chokes_on():
    result = s.with_outputs(services=json.dumps([{"unit": "a\x1b[31m\udc80.service", "active": "failed"}]) + "\n")
    json.dumps([f.as_dict() for f in result.findings], ensure_ascii=False).encode()
    assert all(f.summary.isprintable() for f in result.findings)


def test_two_rows_of_one_gpu_are_not_two_gpus():
    text = s.gpus(7)
    result = s.with_outputs(gpus=text + text.splitlines()[-1] + "\n")
    assert ("gpu.count", "unknown") in s.against(result)


def test_a_driver_that_is_not_loaded_is_said_in_words():
    given = s.documents(s.os_outputs() | {"gpus": "NVIDIA-SMI has failed\n"}, status={"gpus": 9})
    result = s.verdict(given)
    finding = next(f for f in result.reasons if f.check == "gpu.count")
    assert "the driver is not loaded" in finding.summary


def test_a_check_declares_itself_whole():
    with pytest.raises(ValueError, match=r"subsystem\.what"):
        check("gpu", needs=("gpus",), source="x", remedy="y")
    with pytest.raises(ValueError, match="needs at least one probe"):
        check("gpu.x", needs=(), source="x", remedy="y")
    assert isinstance(s.CHECKS[0], Check)
