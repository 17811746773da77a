"""The virtual rack's tools under the collector's commands: a healthy machine passes, each fault is named."""

import importlib.util
import os
import subprocess
import sys

import gate_samples as s
import pytest

from metalyard.gate import Outcome, evidence
from metalyard.virtual import faultbook, models
from metalyard.virtual.hardware import save

SPEC = importlib.util.spec_from_file_location("collector", s.ROOT / "plugins/module_utils/evidence_collector.py")
collector = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(collector)

TOOLS = {
    "gpus": "nvidia_smi", "gpu_query": "nvidia_smi", "nvlink": "nvidia_smi",
    "kernel_log": "kernel_log", "memory": "inventory", "drives": "inventory",
}  # fmt: skip
"""Probe to the module that emulates its tool."""
RUN = "import sys; sys.argv = sys.argv[1:]; from metalyard.virtual.tools import {} as tool; sys.exit(tool.main())"
FAULTS = sorted(
    name
    for name, fault in faultbook.catalogue().items()
    if fault.target == "hardware" and fault.expect and not fault.cables
)


def machine(tmp_path, *faults):
    """The documents of a machine of the plan with those faults."""
    model = models.generate(s.NODE, s.PROFILE, s.BASELINE)
    for name in faults:
        model = faultbook.apply_hardware(faultbook.Placed(node=s.NODE.name, fault=name), model)
    rack, share, state = (tmp_path / name for name in ("rack", "share", "run"))
    save(model, rack / "hardware.json")
    (state / "modules").mkdir(parents=True)
    share.mkdir()
    (share / "nvidia-library-version").write_text(f"{s.BASELINE.driver}\n")
    (state / "modules" / "nvidia").write_text(f"{s.BASELINE.driver}\n")
    (state / "nv-fabricmanager.pid").write_text(f"{os.getpid()}\n")
    places = {
        "METALYARD_VIRTUAL_RACK": rack, "METALYARD_VIRTUAL_SHARE": share, "METALYARD_VIRTUAL_RUN": state,
    }  # fmt: skip
    records = s.os_records()
    for probe in collector.PROBES["os"]:
        if probe.name not in TOOLS:
            continue
        done = subprocess.run(
            [sys.executable, "-c", RUN.format(TOOLS[probe.name]), *probe.argv],
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC", **{name: str(path) for name, path in places.items()}},
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        records[probe.name] = evidence.record(probe.argv, done.returncode, done.stdout, stderr=done.stderr)
    facts = s.facts(
        serial=model.serial,
        gpus=[{"id": f"GPU_SXM_{gpu.index + 1}", "serial": gpu.serial, "health": "OK"} for gpu in model.gpus],
    )
    return s.documents(bmc=facts) | {"os": s.packed("os", records)}, model


def test_a_healthy_machine_passes(tmp_path):
    given, _ = machine(tmp_path)
    result = s.verdict(given)
    assert s.against(result) == []
    assert result.outcome is Outcome.PASS


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_as_its_record_says(tmp_path, name):
    """The findings that keep the node out are those of the record; an Xid that the fault logs may stand beside them."""
    given, model = machine(tmp_path, name)
    result = s.verdict(given)
    expected = {(one.check, str(one.outcome)) for one in faultbook.fault(name).expect}
    found = {pair for pair in s.against(result) if pair[1] != "watch"}
    logged = {("xid.events", "fail")} if any(" Xid " in line for line in model.kernel_log) else set()
    assert expected <= found <= expected | logged
    assert not result.admits


def test_the_lost_gpu_is_named_with_its_serial(tmp_path):
    given, model = machine(tmp_path, "gpu_off_bus")
    event, count = s.verdict(given).reasons
    assert count.part_serial == model.gpus[5].serial
    assert (count.part, event.part) == ("gpu 5 at 0000:c3:00.0",) * 2
