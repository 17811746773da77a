"""Writes the generated parts of docs/ anew: ``python -m tests.document``."""

from pathlib import Path

from metalyard.plan import lifecycle, reference

DOCS = Path(__file__).parents[1] / "docs"


def replace_from(page: Path, marker: str, text: str) -> None:
    """Keep a page up to and with the marker line, and put the generated text after it."""
    head, found, _ = page.read_text().partition(marker)
    if not found:
        raise SystemExit(f"{page}: no line '{marker}'")
    page.write_text(f"{head}{marker}\n\n{text}")


if __name__ == "__main__":
    replace_from(DOCS / "site-plan.md", "## Fields", reference.as_markdown())
    replace_from(DOCS / "lifecycle.md", "## Transitions", lifecycle.as_markdown())
