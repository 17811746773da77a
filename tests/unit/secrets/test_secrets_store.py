"""The secret store: whole or not at all, closed to others, and clear about what is wrong."""

from __future__ import annotations

import multiprocessing
import stat
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalyard.secrets import FileSecretStore, SecretsError

ENTRY = {"user": "admin", "password": "correct-horse-1"}


def test_an_entry_comes_back_and_is_not_readable_on_disk(tmp_path: Path) -> None:
    store = FileSecretStore(tmp_path / "secrets")
    assert store.read("bmc/gpu-1") is None
    store.write("bmc/gpu-1", ENTRY)
    assert FileSecretStore(tmp_path / "secrets").read("bmc/gpu-1") == ENTRY
    for file in (tmp_path / "secrets").rglob("*"):
        if file.is_file():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert b"correct-horse" not in file.read_bytes()
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


def test_a_write_replaces_the_entry_and_leaves_no_draft(tmp_path: Path) -> None:
    store = FileSecretStore(tmp_path)
    store.write("bmc/gpu-1", ENTRY)
    store.write("bmc/gpu-1", {**ENTRY, "pending": "next"})
    assert store.read("bmc/gpu-1") == {**ENTRY, "pending": "next"}
    assert sorted(f.name for f in tmp_path.rglob("*") if f.is_file()) == ["gpu-1.secret", "key"]


@pytest.mark.parametrize("name", ["", "../key", "bmc/../../x", "/etc/passwd", "bmc/", "a b", ".key.1", "bmc//x"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SecretsError, match="no name of an entry"):
        FileSecretStore(tmp_path).write(name, ENTRY)


def test_another_key_is_named(tmp_path: Path) -> None:
    store, other = FileSecretStore(tmp_path / "a"), FileSecretStore(tmp_path / "b")
    store.write("bmc/gpu-1", ENTRY)
    other.write("bmc/gpu-1", ENTRY)
    (tmp_path / "a" / "key").write_bytes((tmp_path / "b" / "key").read_bytes())
    with pytest.raises(SecretsError, match=r"gpu-1\.secret does not open with .*key") as caught:
        store.read("bmc/gpu-1")
    assert "correct-horse" not in str(caught.value)


def test_an_entry_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    store = FileSecretStore(tmp_path)
    store.write("x", {"a": 1})
    target = tmp_path / "x.secret"
    whole = target.read_bytes()
    for length in range(len(whole)):
        target.write_bytes(whole[:length])
        with pytest.raises(SecretsError):
            store.read("x")


def test_a_lost_key_is_an_error_and_never_replaced(tmp_path: Path) -> None:
    store = FileSecretStore(tmp_path)
    store.write("bmc/gpu-1", ENTRY)
    (tmp_path / "key").unlink()
    with pytest.raises(SecretsError, match="key is missing"):
        store.read("bmc/gpu-1")
    with pytest.raises(SecretsError, match="key is missing"):
        store.write("bmc/gpu-2", ENTRY)
    assert not (tmp_path / "key").exists()


def test_a_key_that_others_can_read_or_that_is_cut_is_refused(tmp_path: Path) -> None:
    store = FileSecretStore(tmp_path)
    store.write("x", ENTRY)
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(SecretsError, match="chmod 600"):
        store.read("x")
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "key").write_bytes(b"half")
    with pytest.raises(SecretsError, match="is no key"):
        store.write("x", ENTRY)


def _write(folder: Path, number: int) -> None:
    FileSecretStore(folder).write(f"bmc/gpu-{number}", {"number": number})


def test_processes_that_write_first_at_once_share_one_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path, number)) for number in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
        assert writer.exitcode == 0
    store = FileSecretStore(tmp_path)
    assert [store.read(f"bmc/gpu-{number}") for number in range(6)] == [{"number": number} for number in range(6)]


@settings(max_examples=30, deadline=None)
@given(
    entry=st.dictionaries(st.text(string.ascii_letters, min_size=1), st.text() | st.none() | st.integers(), max_size=5)
)
def test_every_entry_survives(tmp_path_factory: pytest.TempPathFactory, entry: dict[str, object]) -> None:
    store = FileSecretStore(tmp_path_factory.mktemp("store"))
    store.write("any", entry)
    assert store.read("any") == entry
