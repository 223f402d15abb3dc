"""The pages of docs/derivations run, and there is one for each primitive and operator."""

import re
from pathlib import Path

import pytest
from conformance import MODULES

FOLDER = Path(__file__).parents[2] / "docs" / "derivations"
PAGES = sorted(FOLDER.glob("*.md"))

OPERATORS = {"linear_attention"}
"""What has a definition and a page, and is no primitive of the plan yet."""

LONGEST = {"README": 95, "attention": 192, "linear_attention": 80}
"""Lines of a page; 75 where nothing is said. Attention has many options, each with a paragraph."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page, capsys):
    """All python blocks of a page, one after the other, as a reader would type them."""
    text = page.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert blocks
    assert "check_gradients(" in text
    names: dict[str, object] = {}
    for block in blocks:
        line = text.count("\n", 0, block.start(1))
        code = "\n" * line + block.group(1)  # so that a traceback names the page's own line
        exec(compile(code, str(page), "exec"), names)
    assert "backward is right" in capsys.readouterr().out


def test_every_primitive_has_a_page_and_is_listed():
    assert {page.stem for page in PAGES} == {*MODULES, *OPERATORS, "README"}
    contents = (FOLDER / "README.md").read_text()
    for name in (*MODULES, *OPERATORS):
        assert f"({name}.md)" in contents


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short(page):
    assert 15 <= len(page.read_text().splitlines()) <= LONGEST.get(page.stem, 75)
