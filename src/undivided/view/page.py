"""The page: one file of HTML that asks for nothing.

Its content-security policy names its own style and its own script by their hashes and forbids
everything else, so that nothing that comes with the data could run even if it were read as
markup. The data is JSON in a block of its own, without `<`, `>` and `&`: it cannot end the block.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["render"]

ASSETS = Path(__file__).parent / "assets"

SCRIPTS = (
    "decode.js",
    "colours.js",
    "elements.js",
    "state.js",
    "theme.js",
    "answer.js",
    "film.js",
    "gallery.js",
    "map.js",
    "sample.js",
    "tables.js",
    "linear_steps.js",
    "steps.js",
    "main.js",
)
"""In the order in which they build on one another."""


def render(data: dict[str, Any]) -> str:
    """The page that shows `data`."""
    style, script = _style(), _script()
    parts = {
        "policy": html.escape(_policy(style, script)),
        "title": html.escape(f"{data['title']} · attention"),
        "style": style,
        "script": script,
        "data": _json(data),
    }
    # One pass over the template alone: what is put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("template.html"))


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return _asset("style.css")


@cache
def _script() -> str:
    """All scripts as one, in a scope of their own."""
    parts = "\n".join(_asset(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def _policy(style: str, script: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",  # the page's own icon, without which a browser would ask for one
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _json(data: dict[str, Any]) -> str:
    """JSON in ASCII that holds no sign of markup."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
