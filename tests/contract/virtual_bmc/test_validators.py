"""DMTF's own validators on an emulated BMC: no failure without its reason."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import recorded_shapes
from emulated_bmc import Running
from openpyxl import load_workbook

PROTOCOL_FAILURES = {
    (
        "PROTO_HTTP_UNSUPPORTED_METHODS",
        "FAKEMETHODFORTEST",
    ): "aiohttp's parser answers 400 to a method it does not know",
}
SERVICE_FAILURES = {
    (
        "/redfish/v1/Managers/HGX_BMC_0",
        "Id",
    ): "a DGX gives the baseboard's BMC the Id 'bmc': an Id is not the URI's end",
    ("/redfish/v1/UpdateService", "Actions/#UpdateService.SimpleUpdate/target"): "AMI's target has no prefix",
}
SCHEMAS = {"nvidia_gh200": "/schema/", "lenovo": "/metadata/", "dell": "/Schemas/"}
"""Which recordings hold DMTF's CSDL files, and where; the first that has one wins, being the newest."""


def tool(name: str) -> str:
    """A validator's command, next to the Python that runs the tests."""
    path = Path(sys.executable).with_name(name)
    if not path.is_file():
        pytest.skip(f"{name} is not installed: pip install -e '.[test]'")
    return str(path)


def environment(bmc: Running) -> dict[str, str]:
    """requests prefers this variable to the CA that it is given."""
    return {**os.environ, "REQUESTS_CA_BUNDLE": str(bmc.ca)}


def test_protocol_validator(bmc: Running, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    done = subprocess.run(
        [
            tool("rf_protocol_validator"),
            *("--user", bmc.user, "--password", bmc.password, "--rhost", bmc.url),
            *("--ca-bundle", str(bmc.ca), "--avoid-http-redirect"),
            *("--report-type", "tsv", "--report-dir", str(reports)),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment(bmc),
        check=False,
    )
    (report,) = reports.glob("*.tsv")
    with report.open() as stream:
        rows = list(csv.reader(stream, delimiter="\t"))
    failures = {(row[0], row[1]): row[5] for row in rows if "FAIL" in row}
    passes = sum("PASS" in row for row in rows)
    assert failures.keys() == PROTOCOL_FAILURES.keys(), f"{failures}\n{done.stderr[-2000:]}"
    assert passes > 300, done.stdout[-500:]


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    """DMTF's CSDL files, as recorded machines serve them."""
    folder = tmp_path / "schemas"
    folder.mkdir()
    for name, part in SCHEMAS.items():
        path = recorded_shapes.archive(name)
        if path is None:
            pytest.skip(recorded_shapes.REASON)
        for file, data in recorded_shapes.files(path):
            found = re.search(rf"{part}([A-Za-z]+_v1\.xml)(/index\.xml)?$", file)
            # Dell's own extensions refer to each other's older versions, and nothing here uses them.
            if found and not found[1].startswith("Dell") and not (folder / found[1]).exists():
                (folder / found[1]).write_bytes(data)
    assert len(list(folder.iterdir())) > 150
    return folder


def test_service_validator(bmc: Running, schemas: Path, tmp_path: Path) -> None:
    bmc.ask("POST", "/redfish/v1/Systems/DGX/Actions/ComputerSystem.Reset", {"ResetType": "On"})
    bmc.ask(
        "POST",
        "/redfish/v1/EventService/Subscriptions",
        {"Destination": "https://192.0.2.1/events", "Protocol": "Redfish"},
    )
    reports = tmp_path / "reports"
    done = subprocess.run(
        [
            tool("rf_service_validator"),
            *("--user", bmc.user, "--password", bmc.password, "--rhost", bmc.url),
            *("--skipschema", "--schema_directory", str(schemas), "--logdir", str(reports)),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        env=environment(bmc),
        check=False,
    )
    (report,) = reports.rglob("*.xlsx")
    failures, passes = {}, 0
    for sheet in load_workbook(report, read_only=True):
        for row in sheet.iter_rows(values_only=True):
            cells = [str(cell) for cell in row if cell is not None]
            passes += "PASS" in cells
            if "FAIL" in cells and len(cells) > 6:
                failures[cells[1], cells[5]] = cells[-1]
    assert failures.keys() == SERVICE_FAILURES.keys(), f"{failures}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert passes > 4000, done.stdout[-500:]
