"""What a person is shown instead of characters that cannot be seen."""

from __future__ import annotations

import unicodedata

import pytest

from toolspeak.tools.files.text_format import visible
from toolspeak.ui.format import printable

LOOKED_AT = [*range(0x3_0000), *range(0xE_0000, 0xE_1000), *range(0xF_FFF0, 0x10_0010), 0x10_FFFF]


@pytest.mark.parametrize("text", ["", "plain\ttab\n", "größer, 日本, 👩💻 ☺\ufe0f", "a\u0301 \u0e33 क्ष"])
def test_what_can_be_seen_stays(text):
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[8m\r\x7f\x9b", "\\x1b[8m\\r\\x7f\\x9b"),
        ("a\u202eb\u2066\u200b\ufeff\u00ad", "a\\u202eb\\u2066\\u200b\\ufeff\\xad"),
        ("ls\U000e0020\U000e007f\U000e0001", "ls\\U000e0020\\U000e007f\\U000e0001"),
        ("\u206a\u206f\u2028\u2029\u200d", "\\u206a\\u206f\\u2028\\u2029\\u200d"),
        ("\ue000\uffff\ud800\U0010ffff", "\\ue000\\uffff\\ud800\\U0010ffff"),
        ("if a\u3164 == 1\ufe01\U000e0100", "if a\\u3164 == 1\\ufe01\\U000e0100"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text, expected):
    assert visible(text) == expected


def test_every_invisible_character_is_spelled_out():
    hidden_categories = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
    for code in LOOKED_AT:
        character = chr(code)
        if unicodedata.category(character) in hidden_categories and character not in "\n\t":
            assert visible(character) == character.encode("unicode_escape").decode()


def test_whatever_the_terminal_view_spells_out_is_spelled_out_before():
    gaps = [hex(code) for code in LOOKED_AT if printable(chr(code)) != chr(code) == visible(chr(code))]
    assert gaps == []
