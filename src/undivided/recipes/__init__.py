"""Networks that ship with the package: one `.neural` file each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from undivided.errors import ArgumentError, suggest

if TYPE_CHECKING:
    from undivided.network import Network

__all__ = ["guide", "recipe", "recipe_path", "recipes"]

_FOLDER = Path(__file__).parent


def recipes() -> dict[str, str]:
    """Name → what it is, of every network that ships with the package."""
    return {name: _summary(_FOLDER / f"{name}.neural") for name in _names()}


def recipe(name: str) -> Network:
    """A network that ships with the package, such as `recipe("digits-attention")`.

    Those of the attention guide, unchanged, are `recipe("guide/NLPAttention")` and so on.
    """
    from undivided.language import read

    return read(recipe_path(name))


def recipe_path(name: str) -> Path:
    """The `.neural` file of a recipe: something to copy and to change."""
    known = _names()
    if name not in known and name not in guide():
        raise ArgumentError(
            f"There is no recipe named {name!r}.{suggest(str(name), [*known, *guide()])} "
            f"The recipes are {', '.join(known)}.",
            argument="name",
        )
    return _FOLDER / f"{name}.neural"


def guide() -> list[str]:
    """The names of the attention guide's networks, unchanged, which ship as recipes too."""
    return [f"guide/{path.stem}" for path in sorted((_FOLDER / "guide").glob("*.neural"))]


def _names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.neural"))


def _summary(path: Path) -> str:
    """The first sentence of the comment at the head of the file."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return " ".join(lines).split(". ")[0].split(": ")[0].rstrip(".:") + "."
