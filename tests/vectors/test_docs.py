"""What the specification prints is what the vectors hold."""

import pytest

from tests.vectors.docs import EXAMPLES, PAGES, SPEC, renewed


@pytest.mark.parametrize("name", PAGES)
def test_the_worked_example_of_a_page_is_that_of_the_vectors(name: str) -> None:
    text = (SPEC / PAGES[name]).read_text(encoding="utf-8")
    assert EXAMPLES[name]() in text
    assert renewed(text, name) == text


@pytest.mark.parametrize("page", sorted(path.name for path in SPEC.glob("*.md")))
def test_a_page_has_marks_only_for_examples_that_exist(page: str) -> None:
    text = (SPEC / page).read_text(encoding="utf-8")
    marks = [line for line in text.splitlines() if line.startswith("<!-- vectors: ")]
    assert marks == [f"<!-- vectors: {name} -->" for name, own in PAGES.items() if own == page]
