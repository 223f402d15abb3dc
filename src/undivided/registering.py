"""Layers of your own: `register` makes one that the language, the printer and files know.

    @undivided.register
    class Scale(undivided.Layer):
        \"\"\"y = x · factor.\"\"\"

        factor: float = undivided.argument(2.0, doc="what every number is multiplied by")

        def lower(self, builder, x):
            return builder.rescale(x, self.factor, 0.0)

A function will do where there is nothing but a lowering: its arguments after `builder` and `x`,
annotated, are those of the layer, its documentation is the layer's, and its name too.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import os
import re
import sys
import traceback
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from undivided.description import Description, accept, argument, arguments_of
from undivided.errors import ArgumentError
from undivided.layers.base import Layer

__all__ = ["register", "use"]

Definition = TypeVar("Definition", bound=Callable[..., Any])

_SIMPLE = (int, float, bool, str, type(None))
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def register(definition: Definition) -> Definition:
    """Make a layer of a subclass of Layer, or of a function (builder, x, …); it is given back.

    Two layers of one name are an error, unless it is the same definition, run again.
    """
    if inspect.isclass(definition):
        _register_class(definition)
    elif inspect.isfunction(definition):
        _register_function(definition)
    else:
        raise ArgumentError(
            "undivided.register takes a subclass of undivided.Layer, or a function of (builder, x, "
            f"…). Got {definition!r:.80}."
        )
    return definition


def _register_class(cls: Any) -> None:
    if not issubclass(cls, Layer) or cls is Layer:
        raise ArgumentError(
            f"undivided.register takes a subclass of undivided.Layer. {cls.__name__} is none: "
            f"write `class {cls.__name__}(undivided.Layer)`."
        )
    try:
        if cls.lower is Layer.lower:
            raise ArgumentError(
                f"The layer {cls.__name__} has no `lower(self, builder, x)`, which says what "
                "operations it comes to."
            )
        if "__dataclass_fields__" not in cls.__dict__:
            for name in inspect.get_annotations(cls):
                _document(cls, name)
            try:
                dataclasses.dataclass(frozen=True)(cls)
            except (TypeError, ValueError) as error:
                raise ArgumentError(
                    f"The arguments of the layer {cls.__name__}: {error}."
                ) from error
        for field in dataclasses.fields(cls):
            if not field.metadata:
                known = types.MappingProxyType({"doc": "", "limits": {}})
                field.metadata = known
        _check_arguments(cls)
    except Exception:
        Layer.members.pop(cls.keyword, None)
        raise
    if "prefix" not in cls.__dict__:
        cls.prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()


def _register_function(function: Any) -> None:
    taken = list(inspect.signature(function).parameters.values())
    name = function.__name__
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if [each.name for each in taken[:2]] != ["builder", "x"] or any(
        each.kind not in by_keyword for each in taken
    ):
        raise ArgumentError(
            f"The layer {name} must be a function of (builder, x, and its own arguments). "
            f"Got {name}{inspect.signature(function)}."
        )
    hints = typing.get_type_hints(function)
    body: dict[str, Any] = {"__annotations__": {}, "__module__": function.__module__}
    for each in taken[2:]:
        if each.name not in hints:
            raise ArgumentError(
                f"The argument {each.name!r} of the layer {name} needs a type: write "
                f"`{each.name}: int`, or what it is."
            )
        body["__annotations__"][each.name] = hints[each.name]
        if each.default is not inspect.Parameter.empty:
            body[each.name] = each.default
    names = [each.name for each in taken[2:]]

    def lower(self: Any, builder: Any, x: Any) -> Any:
        return function(builder, x, **{name: getattr(self, name) for name in names})

    body |= {"lower": lower, "__doc__": function.__doc__, "__qualname__": function.__qualname__}
    _register_class(types.new_class(name, (Layer,), exec_body=lambda space: space.update(body)))


def _document(cls: Any, name: str) -> None:
    """An argument without documentation is one all the same."""
    given = cls.__dict__.get(name, dataclasses.MISSING)
    written = str(cls.__annotations__[name]).removeprefix("typing.")
    if not isinstance(given, dataclasses.Field) and not written.startswith("ClassVar"):
        setattr(cls, name, argument(given, doc=""))


def _check_arguments(cls: Any) -> None:
    """Every argument must be of a type that text can give."""
    try:
        signature = arguments_of(cls)
    except Exception as error:
        raise ArgumentError(
            f"The arguments of the layer {cls.__name__} cannot be read: {error}"
        ) from error
    for field, hint in signature:
        if not _can_be_written(hint):
            raise ArgumentError(
                f"The argument {field.name!r} of the layer {cls.__name__} is {hint!r}, which no "
                "text can give. It may be int, float, bool, str, a Literal, a tuple of these, a "
                "layer or another description, or one of several, with None.",
                argument=field.name,
            )
        if field.default is not dataclasses.MISSING:
            accept(cls.__name__, field, hint, field.default)


def _can_be_written(hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return all(map(_can_be_written, inner))
    if origin is Literal:
        return True
    if origin is tuple:
        return all(each is Ellipsis or _can_be_written(each) for each in inner)
    return hint in _SIMPLE or (isinstance(hint, type) and issubclass(hint, Description))


def use(path: str | os.PathLike[str]) -> None:
    """Run a Python file that registers layers, as `--use` does."""
    file = Path(os.path.expanduser(path)).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise ArgumentError(
            f"There is no Python file {os.fspath(path)!r} to use: name one that ends in .py."
        )
    name = "undivided_use_" + "_".join(_NAME.findall(file.stem))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where annotations are looked up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        calls = traceback.extract_tb(error.__traceback__)
        lines = [call.lineno for call in calls if call.filename == str(file)]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f", line {lines[-1]}" if lines else ""
        raise ArgumentError(f"{os.fspath(path)}{where}: {type(error).__name__}: {error}") from error
