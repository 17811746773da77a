"""The page: well formed, escaped whatever a node says, complete in itself, and readable without seeing it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import sample_rack

from metalyard.gate.finding import Finding, Outcome
from metalyard.plan.lifecycle import State
from metalyard.report import page
from metalyard.report.data import build
from metalyard.report.records import FirmwareRecord, NodeRecord, PartRecord, Records, StageRecord

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>{{ 7*7 }}"
VOID = {"meta", "br", "img", "input", "hr", "link"}
SELF_CLOSED_IN_SVG = {"rect", "path", "line", "circle"}


class Reader(HTMLParser):
    """Holds every tag against its end, and remembers what was met."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in VOID | SELF_CLOSED_IN_SVG, f"<{tag}/> does not close an HTML element"
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.texts.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def html() -> str:
    return page.render(build(sample_rack.plan(), sample_rack.records(), sample_rack.NOW))


def test_every_tag_is_closed_and_ids_are_unique(html):
    ids = [attributes["id"] for _, attributes in read(html).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {f"node-{node.name}" for node in sample_rack.plan().nodes} <= set(ids)


def test_every_link_leads_to_a_place_on_the_page(html):
    tags = read(html).tags
    ids = {attributes.get("id") for _, attributes in tags}
    links = [attributes["href"] for tag, attributes in tags if tag == "a"]
    assert links
    assert all(link.startswith("#") and link[1:] in ids for link in links)


def test_nothing_comes_from_outside_and_no_script_runs(html):
    tags = read(html).tags
    assert not {"script", "link", "iframe", "img", "object"} & {tag for tag, _ in tags}
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert "http://" not in html
    assert "https://" not in html
    assert "@import" not in html
    policy = next(a["content"] for t, a in tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_who_does_not_see_the_picture_is_told_it(html):
    svg = ElementTree.fromstring(  # noqa: S314 - our own page
        re.search(r"<svg width=.*?role=\"img\".*?</svg>", html, re.S)[0]
    )
    assert svg.get("aria-labelledby") == "picture-title picture-text"
    said = svg.findtext("desc")
    assert "gpu-r01-3 quarantined" in said
    assert "Cable gpu-r02-3:mlx5_0: planned to leaf-1:13, seen at leaf-2:13." in said


def test_no_state_is_told_by_colour_alone(html):
    texts = " ".join(read(html).texts)
    for word in ("in service", "quarantined", "passed", "failed", "not run"):
        assert word in texts
    assert html.count('fill="url(#pattern-bad)"') == 3


def test_tables_have_heads_with_a_scope(html):
    tags = read(html).tags
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in tags if tag == "th")
    assert sum(tag == "table" for tag, _ in tags) == sum(tag == "thead" for tag, _ in tags)


def test_it_says_per_node_why_and_what_next(html):
    texts = " ".join(" ".join(read(html).texts).split())
    assert "the BMC at 127.77.1.3:8443 reports serial 1660623009993, the plan says 1660623000003" in texts
    assert "nvidia-smi lists 7 GPUs, expected 8" in texts
    assert "Xid 79, once" in texts
    assert "165232310505" in texts
    assert "Exchange the plugs of the two cables" in texts
    assert "ops@controller-1" in texts


def _hostile() -> Records:
    finding = Finding(
        HOSTILE, "gpu-r01-1", Outcome.FAIL, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, source=HOSTILE
    )
    stage = StageRecord(stage="discover", outcome="failed", message=HOSTILE + "!", next_step=HOSTILE)
    node = NodeRecord(
        "gpu-r01-1",
        State.QUARANTINED,
        reason=HOSTILE,
        next_step=HOSTILE,
        owner=HOSTILE,
        verdict=Outcome.FAIL,
        rules=HOSTILE,
        stages=(stage,),
        findings=(finding,),
        evidence={HOSTILE: HOSTILE},
        parts=(PartRecord(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        firmware=(FirmwareRecord(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        ids={HOSTILE: HOSTILE},
        facts={HOSTILE: HOSTILE},
    )
    run = replace(sample_rack.records().run, operator=HOSTILE, id=HOSTILE, versions={HOSTILE: HOSTILE})
    return Records({"gpu-r01-1": node}, run)


def test_hostile_text_stays_text():
    reader = read(page.render(build(sample_rack.plan(), _hostile(), sample_rack.NOW)))
    assert not {"script", "img"} & {tag for tag, _ in reader.tags}
    assert not [name for _, attributes in reader.tags for name in attributes if name.startswith("on")]
    assert any(HOSTILE in text for text in reader.texts)
    assert "49" not in "".join(text for text in reader.texts if "7*7" in text)


def test_a_hostile_name_in_the_plan_stays_text():
    plan = sample_rack.plan()
    bad = plan.nodes[0].model_copy(update={"name": HOSTILE, "serial": HOSTILE})
    rack = plan.racks[0].model_copy(update={"row": HOSTILE, "power": HOSTILE})
    plan = plan.model_copy(update={"nodes": [bad, *plan.nodes[1:]], "racks": [rack, *plan.racks[1:]], "site": HOSTILE})
    reader = read(page.render(build(plan, Records(), sample_rack.NOW)))
    assert not {"script", "img"} & {tag for tag, _ in reader.tags}


def test_an_empty_site_has_a_page_too():
    plan = sample_rack.plan().model_copy(update={"nodes": [], "switches": [], "cables": []})
    reader = read(page.render(build(plan, Records(), sample_rack.NOW)))
    assert "0 of 0 nodes in service" in " ".join(reader.texts)


def test_the_file_is_written_whole_for_owner_and_group(tmp_path):
    view = build(sample_rack.plan(), sample_rack.records(), sample_rack.NOW)
    target = page.write(view, tmp_path / "new" / "report.html")
    assert target.read_text().endswith("</html>\n") or target.read_text().endswith("</html>")
    assert target.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in target.parent.iterdir()] == ["report.html"]


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, two: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("palette", [0, 1, 2], ids=["light", "dark", "paper"])
def test_text_stands_out_from_what_it_stands_on(html, palette):
    """WCAG 2 asks for 4.5 to 1 for text of this size."""
    blocks = re.findall(r":root \{(.*?)\}", html, re.S)

    def colours(text: str) -> dict[str, str]:
        found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})\b", text))
        return {
            name: "#" + "".join(c * 2 for c in value[1:]) if len(value) == 4 else value for name, value in found.items()
        }

    named = colours(blocks[palette])
    for ink in ("ink", "soft", "good", "work", "warn", "bad", "quiet"):
        for ground in ("paper", "card"):
            assert _contrast(named[ink], named[ground]) >= 4.5, (ink, ground)
    for tone in ("good", "work", "warn", "bad", "quiet"):
        assert _contrast(named[tone], named[f"{tone}-fill"]) >= 4.5, tone
        assert _contrast(named["ink"], named[f"{tone}-fill"]) >= 4.5, tone
