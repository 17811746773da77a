"""Which nodes a limit means."""

from __future__ import annotations

import pytest

from metalyard.plan import load_plan
from metalyard.report.choice import ChoiceError, chosen


@pytest.fixture
def plan(site):
    return load_plan(site)


def names(plan, limit):
    return [node.name for node in chosen(plan, limit)]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, 8),
        ("", 8),
        ("all", 8),
        ("fleet", 8),
        ("gpu-r01-1", ["gpu-r01-1"]),
        ("gpu-r02-1,gpu-r01-1", ["gpu-r01-1", "gpu-r02-1"]),
        ("gpu-r02-1:gpu-r01-1", ["gpu-r01-1", "gpu-r02-1"]),
        ("rack_r02", [f"gpu-r02-{i}" for i in range(1, 5)]),
        ("gpu-r0?-1", ["gpu-r01-1", "gpu-r02-1"]),
        ("rack_*,!rack_r01", [f"gpu-r02-{i}" for i in range(1, 5)]),
        ("!rack_r01", [f"gpu-r02-{i}" for i in range(1, 5)]),
        ("rack_r01,&gpu-*-3", ["gpu-r01-3"]),
        ("!gpu-r01-1,rack_r01", ["gpu-r01-2", "gpu-r01-3", "gpu-r01-4"]),
        ("gpu-r01-1,sm-1,localhost", ["gpu-r01-1"]),
    ],
)
def test_patterns(plan, limit, expected):
    found = names(plan, limit)
    assert len(found) == expected if isinstance(expected, int) else found == expected


@pytest.mark.parametrize("limit", ["gpu-r09-1", "gpu-r01-1,rack_r09", "rack_r01,!rack_r9", "gpu-x*"])
def test_a_part_that_names_nothing_is_an_error(plan, limit):
    with pytest.raises(ChoiceError, match="no node or group"):
        chosen(plan, limit)


def test_a_limit_that_leaves_nothing_is_an_error(plan):
    with pytest.raises(ChoiceError, match="leaves no node"):
        chosen(plan, "rack_r01,!rack_r01")
