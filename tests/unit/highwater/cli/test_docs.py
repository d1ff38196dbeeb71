"""The pages are found, and a wrong name is answered with the right ones."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from highwater.cli.docs import docs, pages, sections

INDEX = Path(__file__).parents[4] / "docs" / "README.md"


def test_pages_are_listed_with_their_titles_those_for_users_first() -> None:
    lines = CliRunner().invoke(docs).output.splitlines()
    assert "  rules              The rules" in lines
    users, own = (
        lines.index("For users"),
        lines.index("About the project's own tests and measurements"),
    )
    assert users == 0
    assert users < lines.index("  pytest             Testing an application with pytest") < own
    assert own < lines.index("  coverage           What seeds reach")


def test_the_index_has_each_page_once() -> None:
    named = [name for names in sections(INDEX.read_text()).values() for name in names]
    assert sorted(named) == [path.stem for path in pages()]
    assert len(named) > 20


def test_a_page_is_printed_by_any_of_its_names() -> None:
    [rules] = [path.read_text() for path in pages() if path.stem == "rules"]
    for name in ("rules", "rules.md", "docs/rules.md"):
        assert CliRunner().invoke(docs, [name]).output == rules


def test_an_unknown_page_is_an_error_that_names_the_others() -> None:
    result = CliRunner().invoke(docs, ["rule"])
    assert result.exit_code == 2
    assert "there is no page 'rule'; there are app, bench" in result.output
