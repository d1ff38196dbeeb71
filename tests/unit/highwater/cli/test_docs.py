"""The pages are found, and a wrong name is answered with the right ones."""

from __future__ import annotations

from click.testing import CliRunner

from highwater.cli.docs import docs, pages


def test_pages_are_listed_with_their_titles() -> None:
    lines = CliRunner().invoke(docs).output.splitlines()
    assert len(lines) == len(list(pages())) > 20
    assert "rules            The rules" in lines


def test_a_page_is_printed_by_any_of_its_names() -> None:
    [rules] = [path.read_text() for path in pages() if path.stem == "rules"]
    for name in ("rules", "rules.md", "docs/rules.md"):
        assert CliRunner().invoke(docs, [name]).output == rules


def test_an_unknown_page_is_an_error_that_names_the_others() -> None:
    result = CliRunner().invoke(docs, ["rule"])
    assert result.exit_code == 2
    assert "there is no page 'rule'; there are app, bench" in result.output
