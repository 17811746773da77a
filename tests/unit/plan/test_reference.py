"""docs/site-plan.md holds the schema as it is."""

from pathlib import Path

from metalyard.plan.reference import as_markdown


def test_the_page_holds_every_field():
    page = (Path(__file__).parents[3] / "docs" / "site-plan.md").read_text()
    assert as_markdown() in page, "write the page anew: python -m tests.document"


def test_every_field_of_the_plan_is_there():
    text = as_markdown()
    for field in ("`schema`", "`boot_mac`", "`hca_guids`", "`admission_days`", "`activation`", "`rate_gbps`"):
        assert field in text
