"""Software: the packages of the baseline, in the versions that were tested together."""

from __future__ import annotations

from collections.abc import Iterator

from metalyard.gate.check import Subject, check
from metalyard.gate.finding import Finding
from metalyard.gate.parsers.host import packages


@check(
    "software.packages",
    needs=("packages",),
    remedy="Run the stage configure again; it installs the baseline's versions.",
    source="the baseline (versions tested together)",
)
def baseline(subject: Subject) -> Iterator[Finding]:
    """Each package of the baseline is installed, configured, and of exactly its version."""
    installed = packages(subject.text("packages"))
    wanted = subject.baseline.packages
    good = 0
    for name, version in wanted.items():
        package = installed.get(name)
        if package is None or package.status[1] != "i":
            state = "not installed" if package is None else f"in dpkg state '{package.status}'"
            yield subject.failed(
                f"package {name} is {state}, expected version {version}",
                part=name,
                measured=state,
                expected=version,
            )
        elif package.version != version:
            yield subject.failed(
                f"package {name} is of version {package.version}, expected {version} "
                f"by baseline {subject.baseline.name}",
                part=name,
                measured=package.version,
                expected=version,
            )
        else:
            good += 1
    broken = sorted(
        package.name for package in installed.values() if package.status[2:] == "R" or package.status[1] in "HUFWt"
    )
    if broken:
        yield subject.watch(
            f"packages are not installed to their end: {', '.join(broken[:8])}",
            part=broken[0],
            measured=f"{len(broken)} packages",
            expected="0 packages",
            remedy="Run 'dpkg --configure -a' and see what it says.",
        )
    if good == len(wanted):
        yield subject.passed(f"{good} packages are those of baseline {subject.baseline.name}", measured=f"{good}")
