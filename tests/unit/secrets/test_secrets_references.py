"""References to secrets: each way they can be wrong is named, and none is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from metalyard.plan.model import SecretRef, SitePlan
from metalyard.secrets import SecretsError, resolve


@pytest.fixture
def plan(tmp_path: Path) -> SitePlan:
    return SitePlan.model_validate(
        {
            "schema": 1,
            "site": "t",
            "baseline": "none",
            "bmc": {"factory_password": {"env": "UNUSED"}},
            "maas": {"url": "http://127.0.0.1/MAAS", "key": {"env": "UNUSED"}},
            "racks": [],
            "nodes": [],
            "root": tmp_path,
        }
    )


def test_from_the_environment(plan: SitePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_SECRET", "s3cret \n")
    assert resolve(SecretRef(env="YARD_SECRET"), plan) == "s3cret "
    monkeypatch.setenv("YARD_SECRET", " ")
    with pytest.raises(SecretsError, match="YARD_SECRET is empty"):
        resolve(SecretRef(env="YARD_SECRET"), plan)
    monkeypatch.delenv("YARD_SECRET")
    with pytest.raises(SecretsError, match="YARD_SECRET is not set"):
        resolve(SecretRef(env="YARD_SECRET"), plan)


def test_from_a_file_beside_the_plan(plan: SitePlan) -> None:
    target = plan.root / "factory"
    target.touch(mode=0o600)
    target.write_text("s3cret\r\n")
    assert resolve(SecretRef(file=Path("factory")), plan) == "s3cret"


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0, "does not exist"),
        (b"", 0o600, "is empty"),
        (b"\n", 0o600, "is empty"),
        (b"s3cret", 0o604, "chmod 600"),
        (b"s3cret", 0o644, "chmod 600"),
        (b"\xff\xfe\x00", 0o600, "no UTF-8"),
    ],
)
def test_a_file_that_is_wrong(plan: SitePlan, content: bytes | None, mode: int, said: str) -> None:
    target = plan.root / "factory"
    if content is not None:
        target.write_bytes(content)
        target.chmod(mode)
    with pytest.raises(SecretsError, match=said) as caught:
        resolve(SecretRef(file=Path("factory")), plan)
    assert str(target) in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_folder_and_an_ambiguous_reference(plan: SitePlan) -> None:
    with pytest.raises(SecretsError, match="is no file"):
        resolve(SecretRef(file=Path(".")), plan)
    with pytest.raises(SecretsError, match="exactly one"):
        resolve(SecretRef(), plan)
    with pytest.raises(SecretsError, match="exactly one"):
        resolve(SecretRef(env="A", file=Path("b")), plan)
