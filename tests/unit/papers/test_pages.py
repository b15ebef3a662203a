"""Blocks of pages: found, compared and filled; a person's text beside them is never touched."""

from __future__ import annotations

import pytest

from tare.base.errors import StudyError
from tare.report.page_blocks import as_block, blocks_in, change_of, filled, renewed

PAGE = """\
# A paper

<!-- tare papers tables s0 -->
old
<!-- /tare -->

Text of ours.

  <!--  tare  papers  claims 'a store.tare' --paper s3  -->
<!-- /tare -->
"""


def test_blocks_are_found_with_their_line_their_words_and_what_they_printed():
    first, second = blocks_in(PAGE, "p.md")
    assert (first.line, first.words, first.printed) == (3, ("papers", "tables", "s0"), ("old",))
    assert (second.line, second.words, second.printed) == (9, ("papers", "claims", "a store.tare", "--paper", "s3"), ())
    assert second.command == "tare papers claims 'a store.tare' --paper s3"


def test_what_is_shown_as_code_is_no_block_and_a_fence_in_a_block_is_its_own():
    shown = "```\n<!-- tare papers tables s0 -->\n```\n~~~~md\n```\n<!-- tare x -->\n~~~\n~~~~\n"
    assert blocks_in(shown, "p.md") == []
    page = (
        "<!-- tare papers claims a -->\n```text\n``` inside\n<!-- /tare -->\n<!-- tare compare c b -->\n<!-- /tare -->"
    )
    assert [block.words[2] for block in blocks_in(page, "p.md")] == ["a", "b"]


def test_other_comments_are_left_alone():
    assert (
        blocks_in(
            "<!-- tarete x -->\n<!-- see tare papers tables -->\ntext <!-- tare papers tables s0 --> in a line\n",
            "p.md",
        )
        == []
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a\n<!-- tare papers tables s0 -->\nb\n", r"p\.md:2: the block is not closed"),
        (
            "<!-- tare papers tables s0 -->\n<!-- tare papers tables s1 -->\n<!-- /tare -->\n",
            r"p\.md:1: the block is not closed",
        ),
        ("a\n\n<!-- /tare -->\n", r"p\.md:3: .* begins no block"),
        ("<!-- tare -->\n<!-- /tare -->\n", r"p\.md:1: .* begins no block"),
        ("<!-- tare papers tables s0\n<!-- /tare -->\n", r"p\.md:1: .* begins no block"),
        ("<!-- tare papers tables 's0 -->\n<!-- /tare -->\n", r"p\.md:1: .* is no command line: No closing quotation"),
    ],
)
def test_what_is_not_a_block_is_said_with_its_line(text, sentence):
    with pytest.raises(StudyError, match=sentence):
        blocks_in(text, "p.md")


def test_text_is_fenced_and_markdown_stands_as_it_is():
    assert as_block("a  \nb\n", is_markdown=False, where="p.md:1") == ("```text", "a", "b", "```")
    assert as_block("| a |\n", is_markdown=True, where="p.md:1") == ("", "| a |", "")
    assert as_block("````\nx", is_markdown=False, where="p.md:1")[0] == "`````text"


def test_output_that_would_end_its_own_block_is_refused():
    with pytest.raises(StudyError, match=r"p\.md:1: its command prints a line that would begin or end a block"):
        as_block("label <!-- /tare -->", is_markdown=False, where="p.md:1")


def test_the_first_line_that_differs_is_named_with_its_place():
    (block, _) = blocks_in(PAGE, "p.md")
    assert change_of(block, ("old",), "p.md") is None
    assert str(change_of(block, ("new", "more"), "p.md")) == (
        "p.md:4: `tare papers tables s0` prints 'new', the page has 'old' (2 lines differ)."
    )
    assert (
        str(change_of(block, ("old", "more"), "p.md"))
        == "p.md:5: `tare papers tables s0` prints 'more', the page has nothing."
    )
    assert str(change_of(block, (), "p.md")) == "p.md:4: `tare papers tables s0` prints nothing, the page has 'old'."


def test_filling_a_page_changes_its_blocks_and_nothing_else():
    first, second = blocks_in(PAGE, "p.md")
    made = filled(PAGE, {first: ("1", "2", "3"), second: ("x",)})
    assert [block.printed for block in blocks_in(made, "p.md")] == [("1", "2", "3"), ("x",)]
    assert made.replace("1\n2\n3\n", "old\n").replace("--paper s3  -->\nx\n", "--paper s3  -->\n") == PAGE
    assert filled(PAGE, {block: block.printed for block in (first, second)}) == PAGE


def test_a_page_is_renewed_by_running_each_of_its_commands():
    made, changes, count = renewed(
        PAGE, "p.md", lambda block: ("old",) if block.words[:2] == ("papers", "tables") else ("said",)
    )
    assert count == 2
    assert [change.line for change in changes] == [10]
    assert renewed(made, "p.md", lambda block: block.printed) == (made, [], 2)
