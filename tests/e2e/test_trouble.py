"""Bad input on a live rack: each gets a clear error, and the rest of the rack goes on."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import PLAN, Site

pytestmark = pytest.mark.rack


def variant(site: Site, name: str, *changes: tuple[str, str]) -> str:
    """A copy of the plan beside the original's relative paths, with changes."""
    text = (PLAN / "site.yml").read_text().replace("../../build/virtual/state", str(site.home / f"state-{name}"))
    text = text.replace("../../build/virtual", str(site.home))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    folder = site.home / f"plan-{name}"
    folder.mkdir(exist_ok=True)
    (folder / "site.yml").write_text(text)
    return str(folder)


def bringup(site: Site, plan: str, *words: str):
    return site.metalyard("bringup", *words, METALYARD_SITE=plan)


def test_a_typo_in_the_plan_names_file_and_line(site: Site):
    done = bringup(site, variant(site, "typo", ("serial:", "serail:")))
    assert done.returncode == 1
    assert "site.yml:" in done.stderr
    assert "did you mean 'serial'?" in done.stderr


def test_an_unreachable_bmc_does_not_stop_the_others(site: Site):
    plan = variant(site, "unreachable", ("127.77.1.1:8443", "127.77.9.9:8443"))
    done = bringup(site, plan, "--stage", "discover", "--limit", "gpu-r01-1,gpu-r01-2")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "127.77.9.9" in done.stdout
    states = site.metalyard("status", METALYARD_SITE=plan).stdout
    assert "discovered" in states


def test_a_wrong_factory_password_is_said_without_saying_it(site: Site):
    wrong = site.home / "secrets" / "wrong"
    wrong.write_text("not-the-password")
    wrong.chmod(0o600)
    plan = variant(site, "password", ("secrets/factory-password", "secrets/wrong"))
    done = bringup(site, plan, "--stage", "discover", "--limit", "gpu-r01-2")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "password" in done.stdout.lower()
    assert "not-the-password" not in done.stdout + done.stderr


def test_a_bad_key_of_maas_is_said_for_each_node(site: Site):
    wrong = site.home / "secrets" / "wrong-key"
    wrong.write_text("a:b:c")
    wrong.chmod(0o600)
    plan = variant(site, "key", ("secrets/maas-api-key", "secrets/wrong-key"))
    stages = [word for stage in ("discover", "bmc", "firmware", "provision") for word in ("--stage", stage)]
    done = bringup(site, plan, "--limit", "gpu-r01-4", *stages)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "MAAS" in done.stdout
    assert "key" in done.stdout.lower()


def test_a_maas_that_is_not_there(site: Site):
    plan = variant(site, "nomaas", ("127.0.0.1:5240", "127.0.0.1:5249"))
    done = site.metalyard("check", METALYARD_SITE=plan)
    assert done.returncode == 1
    assert "MAAS" in done.stdout + done.stderr
    assert "127.0.0.1:5249" in done.stdout + done.stderr
