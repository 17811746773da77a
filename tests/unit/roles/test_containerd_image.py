"""The module containerd_image against a stand-in for ``ctr`` that keeps its images in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metalyard.fleet.plugins.module_utils import containerd as room
from ansible_collections.metalyard.fleet.plugins.modules import containerd_image

ONE = "sha256:" + "1" * 64
TWO = "sha256:" + "2" * 64
NAME = "registry.example/burn-in:1"
REAL = f"""\
REF                        TYPE                                       DIGEST STATUS         SIZE            UNPACKED
{NAME} application/vnd.oci.image.manifest.v1+json {ONE} complete (2/2) 285.0 B/285.0 B true
registry.example/half:1    application/vnd.oci.image.manifest.v1+json {TWO} incomplete (1/2) 189.0 B/285.0 B false
"""
CTR = """\
#!{python}
import json, pathlib, sys, time
state = pathlib.Path({state!r})
images = json.loads(state.read_text())
words = sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(words) + "\\n")
verb = words[words.index("images") + 1]
if verb == "check":
    name = words[-1].split('"')[1]
    print("REF TYPE DIGEST STATUS SIZE UNPACKED")
    if name in images["local"]:
        digest, status, unpacked = images["local"][name]
        print(name, "application/vnd.oci.image.manifest.v1+json", digest, status, "(1/1) 2.0 B/2.0 B", unpacked)
elif verb == "pull":
    time.sleep(images.get("sleep", 0))
    name = words[-1]
    if name not in images["remote"]:
        sys.exit("trying next host\\nctr: failed to resolve reference " + name + ": not found")
    images["local"][name] = [images["remote"][name], "complete", "true"]
elif verb == "remove":
    del images["local"][words[-1]]
state.write_text(json.dumps(images))
"""


class Ctr:
    """The stand-in, and what it holds."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "ctr"
        self.state = folder / "images.json"
        self.log = folder / "calls"
        text = CTR.format(python=sys.executable, state=str(self.state), calls=str(self.log))
        self.program.write_text(text)
        self.program.chmod(0o755)
        self.hold()

    def hold(self, **images: Any) -> None:
        self.state.write_text(json.dumps({"local": {}, "remote": {}, **images}))

    def local(self) -> dict[str, Any]:
        local: dict[str, Any] = json.loads(self.state.read_text())["local"]
        return local

    def verbs(self) -> list[str]:
        calls = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [call[call.index("images") + 1] for call in calls]

    def containerd(self) -> room.Containerd:
        return room.Containerd(str(self.program), "/run/x.sock", "k8s.io", "native")


@pytest.fixture
def ctr(tmp_path: Path) -> Ctr:
    return Ctr(tmp_path)


def present(ctr: Ctr, digest: str | None = None, *, dry: bool = False, timeout: float = 20) -> Any:
    containerd = ctr.containerd()
    parameters = {"name": NAME, "hosts_dir": "/etc/containerd/certs.d", "platform": "", "timeout": timeout}
    return containerd_image.present(containerd, parameters, digest, containerd.find(NAME), dry)


def test_reads_the_real_columns() -> None:
    assert room.parse_check(REAL, NAME) == room.Image(NAME, ONE, True, True)
    half = room.parse_check(REAL, "registry.example/half:1")
    assert half is not None
    assert not half.ready
    assert room.parse_check(REAL, "registry.example/burn-in") is None


@pytest.mark.parametrize("cut", range(0, len(REAL), 7))
def test_a_cut_answer_is_never_a_ready_image(cut: int) -> None:
    found = room.parse_check(REAL[:cut], NAME)
    complete_line = REAL.splitlines(keepends=True)[:2]
    assert found is None or not found.ready or cut >= len("".join(complete_line)) - 1


@pytest.mark.parametrize("name", [NAME, f"registry.example/a/b@{ONE}", "localhost/x:1", "10.0.0.1:5000/x:y", "h:1/x:1"])
def test_takes_references_in_full(name: str) -> None:
    assert room.check_reference(name) == (ONE if "@" in name else None)


@pytest.mark.parametrize(
    "name",
    ["debian:12", "library/debian:12", "registry.example/x", "registry.example/X:1", f"registry.example/x@{ONE}0"],
)
def test_refuses_references_that_leave_something_out(name: str) -> None:
    with pytest.raises(room.ContainerdError, match="expected registry, path, and a tag or digest"):
        room.check_reference(name)


def test_pulls_what_is_not_there_and_then_leaves_it(ctr: Ctr) -> None:
    ctr.hold(remote={NAME: ONE})
    changed, after, text = present(ctr)
    assert changed
    assert text == f"{NAME}: {ONE}\n"
    assert after == room.Image(NAME, ONE, True, True)
    assert present(ctr)[0] is False
    assert ctr.verbs().count("pull") == 1


def test_passes_mirrors_and_snapshotter(ctr: Ctr) -> None:
    ctr.hold(remote={NAME: ONE})
    present(ctr)
    call = next(json.loads(line) for line in ctr.log.read_text().splitlines() if '"pull"' in line)
    assert call[call.index("--hosts-dir") + 1] == "/etc/containerd/certs.d"
    assert call[call.index("--snapshotter") + 1] == "native"
    assert call[call.index("--namespace") + 1] == "k8s.io"


@pytest.mark.parametrize("flaw", [["incomplete", "true"], ["complete", "false"]])
def test_pulls_an_interrupted_image_again(ctr: Ctr, flaw: list[str]) -> None:
    ctr.hold(local={NAME: [ONE, *flaw]}, remote={NAME: ONE})
    assert present(ctr)[0]
    assert ctr.local()[NAME] == [ONE, "complete", "true"]


def test_a_dry_run_changes_nothing(ctr: Ctr) -> None:
    ctr.hold(remote={NAME: ONE})
    changed, after, text = present(ctr, ONE, dry=True)
    assert (changed, after) == (True, None)
    assert ONE in text
    assert "pull" not in ctr.verbs()


def test_another_digest_is_pulled_again_and_refused_where_the_registry_has_it_too(ctr: Ctr) -> None:
    ctr.hold(local={NAME: [ONE, "complete", "true"]}, remote={NAME: TWO})
    assert present(ctr, TWO)[0]
    ctr.hold(local={NAME: [TWO, "complete", "true"]}, remote={NAME: TWO})
    with pytest.raises(room.ContainerdError, match=f"is {TWO} in the registry, expected {ONE}"):
        present(ctr, ONE)
    assert ctr.local() == {}, "the image that was refused is not kept"


def test_says_what_the_registry_said_and_what_to_do(ctr: Ctr) -> None:
    with pytest.raises(room.ContainerdError, match=r"can't be pulled: ctr: .*not found\. Look whether the mirror has"):
        present(ctr)


def test_a_pull_has_an_end(ctr: Ctr) -> None:
    ctr.hold(remote={NAME: ONE}, sleep=60)
    start = time.monotonic()
    with pytest.raises(room.ContainerdError, match=f"pulling {NAME}: not done after 0.5 s"):
        present(ctr, timeout=0.5)
    assert time.monotonic() - start < 10


def test_no_program_is_said(tmp_path: Path) -> None:
    containerd = room.Containerd(str(tmp_path / "absent"), "/run/x.sock", "k8s.io", "")
    with pytest.raises(room.ContainerdError, match="can't be started"):
        containerd.find(NAME)


def call_module(ctr: Ctr, *options: str, check: bool = False) -> tuple[int, dict[str, Any]]:
    """The module as Ansible runs it."""
    words = " ".join([f"name={NAME}", f"executable={ctr.program}", *options])
    command = [str(Path(sys.executable).parent / "ansible"), "localhost", "-c", "local", "-m"]
    command += ["metalyard.fleet.containerd_image", "-a", words, *(["--check"] if check else [])]
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.oneline", "ANSIBLE_NOCOLOR": "1"}
    environment["ANSIBLE_PYTHON_INTERPRETER"] = sys.executable
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert "=> " in done.stdout, done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout[done.stdout.index("=> ") + 3 :])


def test_the_module_itself(ctr: Ctr) -> None:
    ctr.hold(remote={NAME: ONE})
    assert call_module(ctr, check=True)[1]["changed"] is True
    assert ctr.local() == {}
    status, result = call_module(ctr, f"digest={ONE}")
    assert status == 0
    assert result["image"] == {"name": NAME, "digest": ONE, "complete": True, "unpacked": True}
    assert call_module(ctr, "state=absent")[1]["changed"] is True
    assert call_module(ctr, "state=absent")[1]["changed"] is False
    status, result = call_module(ctr, "digest=sha256:12")
    assert status != 0
    assert "64 hexadecimal digits" in result["msg"]
