"""What the readers share."""

from __future__ import annotations

import os

import pytest

from undivided.data.reading import describe_start, memory_limit


def test_the_limit_is_half_of_the_memory(monkeypatch):
    sizes = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__, raising=False)
    assert memory_limit() == 2_048_000
    sizes["SC_PHYS_PAGES"] = -1  # not known
    assert memory_limit() == 4 << 30
    monkeypatch.delattr(os, "sysconf")  # as on Windows
    assert memory_limit() == 4 << 30


@pytest.mark.parametrize(
    ("start", "guess"),
    [
        (b"\n <!DO", " (a web page, saved in place of the file?)"),
        (b"a,b\r\n\t", " (text)"),
        (b"\x80\x04\x95", ""),
        (b"", ""),
    ],
)
def test_a_start_is_shown_with_a_guess(start, guess):
    assert describe_start(start) == f"{start!r}{guess}"
