"""Host keys of nodes deployed anew are forgotten, and no others."""

import shutil
import subprocess

import pytest

from metalyard.runs.hostkeys import forget

A, B, C = "gpu-r01-1", "gpu-r01-2", "gpu-r01-3"


@pytest.mark.parametrize("port", [22, 2222])
@pytest.mark.parametrize("hashed", [False, True])
def test_a_node_deployed_anew_is_met_anew(plan, tmp_path, port, hashed):
    if shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh-keygen")
    plan = plan.model_copy(update={"ssh": plan.ssh.model_copy(update={"port": port})})
    assert forget(plan, [A]) == []
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=30)
    public = key.with_suffix(".pub").read_text()
    known = plan.state_dir / "known_hosts"
    names = ("10.231.0.101", "10.231.0.102")
    known.write_text("".join(f"{name if port == 22 else f'[{name}]:{port}'} {public}" for name in names))
    if hashed:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, timeout=30, capture_output=True)
    assert forget(plan, [A, C]) == [A]
    assert len(known.read_text().splitlines()) == 1
    assert forget(plan, [A]) == []
    assert forget(plan, [B]) == [B]
