"""Writes the variables' table into each role's README.md, from its meta/argument_specs.yml.

``python tests/unit/roles/role_tables.py`` writes; the test next to it holds what is written.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).parents[3] / "roles"
BEGIN, END = "<!-- variables -->", "<!-- /variables -->"


def plain(text: str | list[str]) -> str:
    """Ansible's markup as Markdown."""
    joined = " ".join([text] if isinstance(text, str) else text)
    return re.sub(r"\b[CVOMRE]\(((?:\\.|\([^()]*\)|[^()\\])*)\)", r"`\1`", joined).replace("|", "\\|")


def shown(option: dict[str, Any]) -> str:
    """The default as the table shows it; long ones are left to defaults/main.yml."""
    if option.get("required"):
        return "required"
    if "default" not in option:
        return ""
    text = yaml.safe_dump(option["default"], default_flow_style=True, width=10**6).replace("\n...", "").strip()
    return f"`{text}`" if len(text) <= 60 else "see defaults"


def rows(options: dict[str, Any], prefix: str = "") -> list[str]:
    """Table rows of options, those of their items behind them."""
    lines = []
    for name, option in options.items():
        kind = f"list of {option['elements']}" if option["type"] == "list" else option["type"]
        lines.append(f"| {prefix}`{name}` | {kind} | {shown(option)} | {plain(option['description'])} |")
        lines += rows(option.get("options", {}), f"{prefix}`{name}` · ")
    return lines


def table(specs: dict[str, Any]) -> str:
    """The table of a role's main entry point."""
    head = ["| variable | type | default | what it is |", "| --- | --- | --- | --- |"]
    return "\n".join([BEGIN, *head, *rows(specs["main"]["options"]), END])


def filled(readme: str, specs: dict[str, Any]) -> str:
    """The README with its table up to date; raises ``ValueError`` when it has no place for one."""
    start, found, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"expected a line {BEGIN} and a line {END}")
    return start + table(specs) + after


def specs_of(role: Path) -> dict[str, Any]:
    """A role's entry points."""
    loaded: dict[str, Any] = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    return loaded


def main() -> None:
    """Write every README that has a place for a table."""
    for readme in sorted(ROLES.glob("*/README.md")):
        text = filled(readme.read_text(), specs_of(readme.parent))
        if text != readme.read_text():
            readme.write_text(text)
            print(f"wrote {readme}")


if __name__ == "__main__":
    main()
