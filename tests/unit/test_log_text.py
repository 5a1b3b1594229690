"""A line of a log as HTML: colours, links and matches. No line can add elements of its own."""

import re

import pytest

from controlplane.console.presenters.log_text import is_error, show_log_text

RED, END = "\x1b[31m", "\x1b[0m"


def test_plain_text_is_escaped():
    assert show_log_text('<b> & "c"') == "&lt;b&gt; &amp; &quot;c&quot;"


def test_a_colour_of_the_terminal_is_a_class():
    assert show_log_text(f"a {RED}b{END} c") == 'a <span class="ansi-1">b</span> c'


@pytest.mark.parametrize("code", ["91", "38;5;196", "38;2;250;10;10"])
def test_every_colour_becomes_one_of_sixteen(code):
    assert re.fullmatch(r'<span class="ansi-(1|9)">x</span>', show_log_text(f"\x1b[{code}mx{END}"))


def test_bold_italic_and_underline_are_kept():
    assert show_log_text(f"\x1b[1;3;4mx{END}") == '<span class="ansi-bold ansi-italic ansi-underline">x</span>'


@pytest.mark.parametrize("line", ["\x1b[2Kx", "\x1b]0;title\x07x", "\x1b[10;20Hx"])
def test_codes_that_move_or_clear_are_left_out(line):
    assert show_log_text(line) == "x"


def test_a_progress_bar_shows_its_last_state():
    assert show_log_text(" 10 %\r 50 %\r 90 %") == " 90 %"


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("see https://example.org/a?b=1&c=2.", "https://example.org/a?b=1&amp;c=2"),
        ("(http://example.org/x)", "http://example.org/x"),
    ],
)
def test_an_address_is_a_link_without_the_mark_that_ends_the_sentence(text, link):
    shown = show_log_text(text)
    assert f'<a href="{link}" rel="noopener noreferrer nofollow">{link}</a>' in shown


@pytest.mark.parametrize("text", ["javascript:alert(1)", 'https://a"onclick="x', "https://<script>x</script>"])
def test_no_text_becomes_an_attribute_or_an_element(text):
    shown = re.sub(r'<a href="[^"<>]*" rel="noopener noreferrer nofollow">|</a>', "", show_log_text(text))
    assert "<" not in shown and '"' not in shown


def test_a_match_is_marked_inside_colours_and_links():
    shown = show_log_text(f"{RED}Error{END} at http://x.org/error", "error")
    assert shown == (
        '<mark><span class="ansi-1">Error</span></mark> at <a href="http://x.org/error" rel="noopener noreferrer '
        'nofollow">http://x.org/</a><mark><a href="http://x.org/error" rel="noopener noreferrer nofollow">error</a>'
        "</mark>"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ERROR: no file", True),
        (f"{RED}ERROR{END}: no file", True),
        ("Traceback (most recent call last):", True),
        ("no errors", False),
        ("terror", False),
    ],
)
def test_the_level_of_a_line_is_read_from_its_beginning(line, expected):
    assert is_error(line) is expected
