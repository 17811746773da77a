"""A site plan is read whole or refused with file, line and field of everything that is wrong."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalyard.plan import PlanError, load_plan
from metalyard.plan.inventory import derive

SITE = """\
plugin: metalyard.fleet.site
schema: 1
site: test
baseline: 2026.11-h100
bmc: {factory_password: {env: FACTORY}}
maas: {url: "http://maas.example:5240/MAAS", key: {env: MAAS_KEY}}
racks:
  - {name: r1, row: a, power: feed-1}
nodes:
  - name: n1
    rack: r1
    unit: 1
    serial: S1
    profile: dgx-h100
    bmc: {address: 192.0.2.1}
    boot_mac: 52:54:00:00:00:01
    address: 198.51.100.1/24
    hca_guids: {mlx5_0: 0xb83fd20300010100, mlx5_1: 0xb83fd20300010101}
  - name: n2
    rack: r1
    unit: 10
    serial: S2
    profile: dgx-h100
    bmc: {address: "192.0.2.2:8443"}
    boot_mac: 52:54:00:00:00:02
    address: 198.51.100.2/24
    hca_guids: {mlx5_0: 0xb83fd20300010200}
switches:
  - {name: leaf, rack: r1, unit: 40, ports: 4}
cables:
  - {ends: ["n1:mlx5_0", "leaf:1"], label: C1}
  - {ends: ["n2:mlx5_0", "leaf:2"], label: C2}
"""


def write(folder: Path, text: str = SITE) -> Path:
    file = folder / "site.yml"
    file.write_text(text)
    return file


def refused(folder: Path, text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(PlanError) as caught:
        load_plan(write(folder, text))
    return [(problem.line, problem.field, problem.message) for problem in caught.value.problems]


def test_a_plan_is_read_from_its_file_or_its_folder(tmp_path):
    file = write(tmp_path)
    assert load_plan(file) == load_plan(tmp_path)
    plan = load_plan(file)
    assert plan.node("n1").boot_mac == "52:54:00:00:00:01", "an unquoted MAC of digits is not a number"
    assert plan.node("n1").hca_guids["mlx5_1"] == "0xb83fd20300010101", "an unquoted GUID is not a number"
    with pytest.raises(KeyError):
        plan.node("n9")


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "said"),
    [
        ("    serial: S1\n", "    serail: S1\n", 13, "nodes[n1].serail", "did you mean 'serial'?"),
        ("    serial: S1\n", "", 10, "nodes[n1].serial", "is missing"),
        ("serial: S2", "serial: S1", 22, "nodes[n2].serial", "'S1' stands twice"),
        ("192.0.2.2:8443", "192.0.2.1", 24, "nodes[n2].bmc.address", "192.0.2.1 is n1's already"),
        ("192.0.2.2:8443", "192.0.2.300", 24, "nodes[n2].bmc.address", "expected an IP address or host name"),
        ("192.0.2.2:8443", "192.0.2.2:99999", 24, "nodes[n2].bmc.address", "port must be between"),
        ("00:02", "00:01", 25, "nodes[n2].boot_mac", "stands twice"),
        ("00:00:00:02", "00:00:02", 25, "nodes[n2].boot_mac", "expected a MAC address"),
        ("198.51.100.2/24", "198.51.100.1/24", 26, "nodes[n2].address", "stands twice"),
        ("198.51.100.2/24", "198.51.100.2", 26, "nodes[n2].address", "lacks its prefix"),
        ("300010200", "300010100", 27, "nodes[n2].hca_guids.mlx5_0", "is n1:mlx5_0's already"),
        ("rack: r1\n    unit: 10", "rack: r7\n    unit: 10", 20, "nodes[n2].rack", "no rack 'r7'"),
        ("unit: 10", "unit: 50", 21, "nodes[n2].unit", "above the 48 units"),
        (
            "serial: S2\n    profile: dgx-h100",
            "serial: S2\n    profile: dgx",
            23,
            "nodes[n2].profile",
            "no profile 'dgx'",
        ),
        ("2026.11-h100", "'2026.12'", 4, "baseline", "no baseline '2026.12'"),
        ("2026.11-h100", "2026.12", 4, "baseline", "put it in quotes"),
        ('"n2:mlx5_0", "leaf:2"', '"n2:mlx5_0"', 32, "cables[C2].ends[1]", "is missing"),
        ("leaf:2", "leaf:9", 32, "cables[C2].ends[1]", "has ports 1 to 4"),
        ("leaf:2", "leaf:1", 32, "cables[C2].ends[1]", "holds cable C1 already"),
        ('n2:mlx5_0", ', 'n2:mlx5_7", ', 32, "cables[C2].ends[0]", "no HCA 'mlx5_7'"),
        ('n2:mlx5_0", ', 'n3:mlx5_0", ', 32, "cables[C2].ends[0]", "no node or switch 'n3'"),
        ("{env: FACTORY}", "{}", 5, "bmc.factory_password", "exactly one of"),
        ("site: test", "site: test\nsite: other", 4, "site", "stands twice"),
        ("schema: 1", "schema: 2", 2, "schema", "input should be 1"),
        ("racks:", "racks: [", 32, "", "is not YAML"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_field(tmp_path, old, new, line, field, said):
    assert old in SITE
    problems = refused(tmp_path, SITE.replace(old, new))
    assert any(p[1] == field and said in p[2] for p in problems), problems
    if field:
        assert any(p[0] == line and p[1] == field for p in problems), problems


def test_every_problem_is_told_at_once(tmp_path):
    problems = refused(tmp_path, SITE.replace("serial: S2", "serial: S1").replace("leaf:2", "leaf:9"))
    assert [p[1] for p in problems] == ["nodes[n2].serial", "cables[C2].ends[1]"]


def test_files_that_are_not_there_or_not_text(tmp_path):
    for path, said in ((tmp_path, "no site.yml"), (tmp_path / "x.yml", "no such file")):
        with pytest.raises(PlanError, match=said):
            load_plan(path)
    binary = tmp_path / "site.yml"
    binary.write_bytes(b"site: \xff\xfe")
    with pytest.raises(PlanError, match="UTF-8"):
        load_plan(binary)


def test_included_files_add_to_lists_and_keep_their_lines(tmp_path):
    head, _, cables = SITE.partition("cables:\n")
    (tmp_path / "cables.yml").write_text("cables:\n" + cables.replace("leaf:2", "leaf:9"))
    with pytest.raises(PlanError) as caught:
        load_plan(write(tmp_path, head + "include: [cables.yml]\n"))
    problem = caught.value.problems[0]
    assert (problem.file.name, problem.line, problem.field) == ("cables.yml", 3, "cables[C2].ends[1]")
    (tmp_path / "cables.yml").write_text("cables:\n" + cables)
    assert len(load_plan(tmp_path).cables) == 2
    (tmp_path / "cables.yml").write_text("site: other\n")
    with pytest.raises(PlanError, match=r"cables\.yml:1: site: an included file may hold only"):
        load_plan(tmp_path)
    (tmp_path / "cables.yml").unlink()
    with pytest.raises(PlanError, match=r"does not exist"):
        load_plan(tmp_path)


@given(cut=st.integers(min_value=0, max_value=len(SITE)))
def test_a_plan_cut_anywhere_is_read_or_refused_never_a_crash(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut")
    file = write(folder, SITE[:cut])
    with contextlib.suppress(PlanError):
        assert load_plan(file).nodes
        return
    with pytest.raises(PlanError) as caught:
        load_plan(file)
    assert caught.value.problems


def test_the_inventory_follows_from_the_plan(tmp_path):
    inventory = derive(load_plan(write(tmp_path)))
    assert inventory.groups["fleet"] == ["n1", "n2"]
    assert inventory.groups["rack_r1"] == inventory.groups["profile_dgx_h100"] == ["n1", "n2"]
    assert inventory.hosts["n1"]["ansible_host"] == "198.51.100.1"
    assert "accept-new" in inventory.hosts["n1"]["ansible_ssh_common_args"]
    assert "FACTORY" not in repr(inventory), "no secret, nor where it is, in the inventory"
