"""A page on which every head can be looked at, and one query be worked through in numbers."""

from undivided.view.view import View, view_of

__all__ = ["View", "view_of"]
