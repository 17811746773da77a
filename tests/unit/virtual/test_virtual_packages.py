"""Packages and the repository: what dpkg reads of them, that the same input gives the same bytes, and the signature."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from metalyard.plan.profile import Baseline, Profile
from metalyard.virtual import debs, emulated, host, image, packages

PROFILE = image.packaged(Profile, "profiles", image.DEFAULT_PROFILE)
BASELINE = image.packaged(Baseline, "baselines", image.DEFAULT_BASELINE)

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb (Debian, Ubuntu)")
needs_gpg = pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg")


def field(path: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "--field", str(path), name], capture_output=True, text=True, check=True).stdout


@needs_dpkg
def test_the_packages_are_the_baselines_by_name_and_version(tmp_path):
    built = {package.name: debs.build(package, tmp_path) for package in emulated.gpu_packages(BASELINE)}
    for name, version in BASELINE.packages.items():
        assert field(built[name], "Version").strip() == version
    driver = built["nvidia-driver-570-server-open"]
    assert f"nvidia-utils-570-server (= {BASELINE.packages['nvidia-utils-570-server']})" in field(driver, "Depends")
    held = {re.split(r"[ (]", one.strip())[0] for path in built.values() for one in field(path, "Depends").split(",")}
    assert held - {""} <= {*built, "metalyard-virtual-node"}


@needs_dpkg
def test_the_same_input_gives_the_same_bytes(tmp_path):
    package = emulated.gpu_packages(BASELINE)[1]
    one, two = debs.build(package, tmp_path / "one"), debs.build(package, tmp_path / "two")
    assert one.read_bytes() == two.read_bytes()
    before = package.digest()
    package.programs["/usr/bin/nvidia-smi"] += b"\n"
    assert package.digest() != before


@needs_dpkg
def test_the_node_package_holds_tools_that_python_can_read(tmp_path):
    package = emulated.node_package(PROFILE, BASELINE)
    assert package.version.startswith("1.0+")
    root = tmp_path / "root"
    subprocess.run(["dpkg-deb", "--extract", str(debs.build(package, tmp_path)), str(root)], check=True)
    for name in ("dmesg", "modprobe", "lsmod", "nvme", "boot"):
        assert (root / f"usr/lib/metalyard-virtual/bin/{name}").stat().st_mode & 0o111
    for script in package.scripts.values():
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    for path in (root / "usr/lib/metalyard-virtual").rglob("*.py"):
        compile(path.read_text(), str(path), "exec")


def test_the_tools_need_nothing_newer_than_python_3_8():
    """A node's Python may be as old as 3.8: compiled with that grammar; annotations are strings by the import."""
    import ast

    for path in emulated.TOOLS.glob("*.py"):
        text = path.read_text()
        ast.parse(text, feature_version=(3, 8))
        assert "from __future__ import annotations" in text or path.name == "__init__.py", path


@needs_dpkg
@needs_gpg
def test_the_repository_is_signed_and_its_sums_are_right(tmp_path):
    folder = tmp_path / "apt"
    for package in emulated.gpu_packages(BASELINE)[:3]:
        debs.build(package, folder / "emulated")
    key, public = tmp_path / "key.asc", folder / packages.KEY
    debs.index(folder, "Test", 1764547200.0)
    debs.sign(folder, key, public)
    assert key.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in public.read_bytes()
    with tempfile.TemporaryDirectory(prefix="mygpg-") as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet"]
        subprocess.run([*gpg, "--import", str(public)], check=True, capture_output=True)
        subprocess.run([*gpg, "--verify", str(folder / "InRelease")], check=True, capture_output=True)
        (folder / "Release").write_bytes((folder / "Release").read_bytes() + b"X: y\n")
        bad = subprocess.run(
            [*gpg, "--verify", str(folder / "Release.gpg"), str(folder / "Release")], check=False, capture_output=True
        )
        assert bad.returncode != 0
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
    stanzas = (folder / "Packages").read_text().strip().split("\n\n")
    assert len(stanzas) == 3
    for stanza in stanzas:
        values = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"^[A-Z]", line))
        import hashlib

        data = (folder / values["Filename"]).read_bytes()
        assert values["SHA256"] == hashlib.sha256(data).hexdigest()
        assert int(values["Size"]) == len(data)


@needs_dpkg
@needs_gpg
def test_a_key_that_is_there_is_kept(tmp_path):
    key, public = tmp_path / "key.asc", tmp_path / "public.asc"
    (tmp_path / "Release").write_text("Origin: Test\n")
    debs.sign(tmp_path, key, public)
    first = public.read_bytes()
    debs.sign(tmp_path, key, public)
    assert public.read_bytes() == first


@needs_dpkg
@needs_gpg
def test_a_repository_is_built_once_and_again_when_something_changes(tmp_path):
    output, key = tmp_path / "apt", tmp_path / "key.asc"
    made = packages.Repository(output, key, PROFILE, [BASELINE], "base")
    assert not made.current()
    assert made.begin()
    made.finish()
    assert packages.Repository(output, key, PROFILE, [BASELINE], "base").current()
    # Another image lacks other packages: they are fetched anew.
    other = packages.Repository(output, key, PROFILE, [BASELINE], "another base")
    assert not other.current()
    assert other.begin()
    other.finish()
    newer = BASELINE.model_copy(update={"dcgm": "4.5.0"})
    third = packages.Repository(output, key, PROFILE, [newer], "another base")
    assert not third.current()
    assert not third.begin()


def test_a_damaged_package_is_named(tmp_path):
    (tmp_path / "broken.deb").write_bytes(b"!<arch>\nnot a package")
    with pytest.raises(host.CommandError, match=r"broken\.deb"):
        debs.packages_index(tmp_path)


def test_the_image_is_built_anew_for_any_change_of_its_recipe():
    package = emulated.node_package(PROFILE, BASELINE)
    first = image.digest(None, package)
    assert image.digest(None, package) == first
    assert image.digest("debian:bookworm", package) != first
    package.files["/usr/share/metalyard-virtual/x"] = b"x"
    assert image.digest(None, package) != first
    assert image.base_digest(None) != image.base_digest("debian:bookworm")
