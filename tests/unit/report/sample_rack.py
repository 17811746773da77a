"""A rack's records as a finished bring-up leaves them: eight nodes, five in service, three aside.

Wrong serial (``gpu-r01-3``), a GPU off the bus (``gpu-r02-1``), two cables swapped (``gpu-r02-3``).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from metalyard.gate.finding import Finding, Outcome, Owner
from metalyard.plan import SitePlan, load_plan
from metalyard.plan.lifecycle import MAIN_LINE, STAGE_REACHES, STAGES, Stage, State
from metalyard.report.records import (
    AdmissionRecord,
    NodeRecord,
    PartRecord,
    Records,
    RunRecord,
    StageRecord,
    TransitionRecord,
)

PLAN = Path(__file__).parents[3] / "inventory" / "virtual" / "site.yml"
START = datetime(2026, 11, 9, 8, 30, 0, tzinfo=UTC)
NOW = START + timedelta(minutes=14, seconds=10)
RUN = "20261109T083000Z-bringup-7c1e"
SECONDS = dict(zip(STAGES, (9, 31, 74, 212, 188, 12, 21, 46, 4), strict=True))
RULES = hashlib.sha256(b"rules").hexdigest()


def plan() -> SitePlan:
    """The virtual rack's own plan."""
    return load_plan(PLAN)


def _parts(number: int) -> tuple[PartRecord, ...]:
    gpus = [
        PartRecord("gpu", f"GPU_SXM_{i + 1}", f"16523231{number:02}{i:02}", "NVIDIA H100 80GB HBM3", "96.00.A5.00.01")
        for i in range(8)
    ]
    hcas = [PartRecord("hca", f"mlx5_{i}", f"MT2330X{number:02}{i:03}", "ConnectX-7", "28.39.3560") for i in range(8)]
    return (*gpus, *hcas)


def _healthy(node: str, number: int) -> NodeRecord:
    at = START
    stages, history = [], []
    state = State.PLANNED
    for stage in STAGES:
        end = at + timedelta(seconds=SECONDS[stage] + number % 3)
        stages.append(StageRecord(stage, "passed", at, end, run=RUN))
        if stage in STAGE_REACHES:
            history.append(TransitionRecord(state, STAGE_REACHES[stage], end, f"stage {stage} passed", "stage", RUN))
            state = STAGE_REACHES[stage]
        at = end
    findings = tuple(
        Finding(f"gpu.count.{i}", node, Outcome.PASS, f"{node}: as expected", part=f"gpu {i % 8}") for i in range(46)
    )
    return NodeRecord(
        node=node,
        state=State.IN_SERVICE,
        since=at,
        stages=tuple(stages),
        verdict=Outcome.PASS,
        judged=at - timedelta(seconds=5),
        rules=RULES,
        findings=findings,
        evidence={kind: hashlib.sha256(f"{kind}{node}".encode()).hexdigest() for kind in ("bmc", "fabric", "os")},
        parts=_parts(number),
        ids={"MAAS system id": f"k{number}rq7x", "BMC UUID": f"5f8e3c6a-0000-4000-8000-0000000000{number:02}"},
        facts={"BIOS": "1.6.7", "BMC firmware": "24.09.17", "power": "On"},
        history=tuple(history),
        admission=AdmissionRecord(at, at + timedelta(days=30), hashlib.sha256(node.encode()).hexdigest()),
    )


def _wrong_serial(record: NodeRecord) -> NodeRecord:
    end = START + timedelta(seconds=8)
    said = "gpu-r01-3: the BMC at 127.77.1.3:8443 reports serial 1660623009993, the plan says 1660623000003"
    step = "Check which machine stands in rack r01 unit 19; mend the plan's serial or swap the machine, then run again."
    return NodeRecord(
        node=record.node,
        state=State.QUARANTINED,
        since=end,
        reason=said,
        next_step=step,
        owner="data centre",
        stages=(StageRecord(Stage.DISCOVER, "failed", START, end, said, step, RUN),),
        history=(TransitionRecord(State.PLANNED, State.QUARANTINED, end, said, "stage", RUN),),
    )


def _refused(record: NodeRecord, findings: tuple[Finding, ...]) -> NodeRecord:
    prove = next(stage for stage in record.stages if stage.stage is Stage.PROVE)
    stages = tuple(
        replace(
            stage,
            outcome="failed" if stage.stage in (Stage.PROVE, Stage.ADMIT) else stage.outcome,
            message="the gate's verdict is fail" if stage.stage in (Stage.PROVE, Stage.ADMIT) else "",
        )
        for stage in record.stages
    )
    last = TransitionRecord(State.PROVING, State.QUARANTINED, prove.ended or NOW, findings[0].summary, "gate", RUN)
    return replace(
        record,
        state=State.QUARANTINED,
        since=prove.ended,
        reason=findings[0].summary,
        stages=stages,
        verdict=Outcome.FAIL,
        judged=prove.ended,
        findings=findings + record.findings[:38],
        history=(*(t for t in record.history if t.target is not State.IN_SERVICE), last),
        admission=None,
    )


def records() -> Records:
    """The eight nodes' records and their run."""
    nodes = {node.name: _healthy(node.name, i + 1) for i, node in enumerate(plan().nodes)}
    nodes["gpu-r01-3"] = _wrong_serial(nodes["gpu-r01-3"])
    nodes["gpu-r02-1"] = _refused(nodes["gpu-r02-1"], GPU_OFF_BUS)
    nodes["gpu-r02-3"] = _refused(nodes["gpu-r02-3"], SWAPPED)
    watch = Finding(
        "gpu.temperature",
        "gpu-r02-4",
        Outcome.WATCH,
        "gpu-r02-4: gpu 6 is at 58 °C at rest, 19 °C above the median of its rack",
        part="gpu 6",
        part_serial="165232310806",
        measured="58 °C",
        expected="at most 60 °C, fleet median 39 °C",
        remedy="Look at the blanking panels and the fans at the next visit.",
        owner=Owner.DATA_CENTRE,
        source="profile dgx-h100",
    )
    last = nodes["gpu-r02-4"]
    nodes["gpu-r02-4"] = replace(last, verdict=Outcome.WATCH, findings=(watch, *last.findings))
    run = RunRecord(
        id=RUN,
        started=START,
        ended=NOW - timedelta(seconds=3),
        operator="ops@controller-1",
        outcome="5 of 8 in service",
        nodes=tuple(nodes),
        versions={"metalyard": "0.1.0", "baseline": "2026.11-h100"},
    )
    return Records(nodes, run)


GPU_OFF_BUS = (
    Finding(
        "gpu.count",
        "gpu-r02-1",
        Outcome.FAIL,
        "gpu-r02-1: nvidia-smi lists 7 GPUs, expected 8; gpu 5 (0000:ab:00.0) is missing",
        part="gpu 5",
        part_serial="165232310505",
        measured="7 GPUs",
        expected="8 GPUs",
        remedy="Reboot once; if GPU 5 stays away, open a vendor case with the RMA bundle.",
        owner=Owner.VENDOR,
        source="profile dgx-h100",
    ),
    Finding(
        "gpu.xid",
        "gpu-r02-1",
        Outcome.FAIL,
        "gpu-r02-1: kernel log holds Xid 79 for 0000:ab:00.0: GPU has fallen off the bus",
        part="gpu 5",
        part_serial="165232310505",
        measured="Xid 79, once",
        expected="no Xid that asks for a reset or a reboot",
        remedy="Reboot the machine.",
        owner=Owner.OPERATOR,
        source="NVIDIA Xid catalogue 2025-10",
    ),
    Finding(
        "gpu.nvlink",
        "gpu-r02-1",
        Outcome.UNKNOWN,
        "gpu-r02-1: NVLinks of gpu 5 could not be read, expected 18 active",
        part="gpu 5",
        part_serial="165232310505",
        measured="nvidia-smi nvlink ended with status 15",
        expected="18 active links",
        remedy="Follow the GPU's own finding first.",
        owner=Owner.OPERATOR,
        source="profile dgx-h100",
    ),
)


SWAPPED = (
    Finding(
        "fabric.cables",
        "gpu-r02-3",
        Outcome.FAIL,
        "gpu-r02-3: cable C049 and cable C051 are swapped: gpu-r02-3 mlx5_0 (rack r02, unit 19) is connected to leaf-2 "
        "port 13 (rack r01, unit 42), and gpu-r02-3 mlx5_2 (rack r02, unit 19) to leaf-1 port 13 (rack r01, unit 41)",
        part="C049",
        measured="gpu-r02-3:mlx5_0 to leaf-2:13, gpu-r02-3:mlx5_2 to leaf-1:13",
        expected="gpu-r02-3:mlx5_0 to leaf-1:13, gpu-r02-3:mlx5_2 to leaf-2:13",
        remedy="Exchange the plugs of the two cables at one side: at leaf-1 port 13 (rack r01, unit 41) and leaf-2 "
        "port 13 (rack r01, unit 42).",
        owner=Owner.DATA_CENTRE,
        source="site plan",
    ),
)

assert set(STAGE_REACHES.values()) == set(MAIN_LINE[1:])
