"""Strict reading of untrusted files, with one documented error, and values that JSON can hold."""

import contextlib
import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privypurse.core._errors import InvalidArgument, PrivypurseError

# Errors caused by parts that are missing, of another type, too large or nested too deeply.
MISSHAPEN: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@contextlib.contextmanager
def refusing(
    message: str, also: tuple[type[Exception], ...] = (), raising: type[PrivypurseError] = InvalidArgument
) -> Iterator[None]:
    """Raise `raising` where reading fails because the input is malformed; `also` are further such errors."""
    try:
        yield
    except PrivypurseError:
        raise
    except MISSHAPEN + also as error:
        raise raising(message) from error


def read_json(text: "str | bytes", *, strict: bool = True) -> Any:
    """Read JSON. Raise ValueError if invalid, too deep, ambiguous or, if `strict`, not finite."""
    numbers: Any = {"parse_constant": _finite, "parse_float": _finite} if strict else {}
    try:
        return json.loads(text, object_pairs_hook=_once, **numbers)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Reject duplicate keys, which readers resolve differently."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number of JSON, or too large")
    return number


def finite_or_none(value: Any, *, nan: bool = True) -> Any:
    """Replace infinities and, if `nan`, NaN in nested values by None, since JSON has neither."""
    if isinstance(value, Mapping):
        return {str(name): finite_or_none(inner, nan=nan) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(inner, nan=nan) for inner in value]
    return None if isinstance(value, float) and (math.isinf(value) or (nan and math.isnan(value))) else value


def check_fields(instance: Any) -> None:
    """Raise TypeError unless every field of a data class holds what its annotation says."""
    hints = typing.get_type_hints(type(instance))
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not _fits(value, hints[field.name]):
            raise TypeError(f"{field.name}: expected {hints[field.name]}, got {type(value).__name__}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if hint in (float, int):
        return _is_number(value, hint)
    if origin is tuple:
        whole = len(inner) == 2 and inner[1] is Ellipsis
        kinds: Sequence[Any] = [inner[0]] * len(value) if whole and isinstance(value, tuple) else inner
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if origin is list:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, Mapping) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, hint):
        check_fields(value)
        return True
    return isinstance(value, origin or hint)


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        return False
    # Larger integers fit into no database column.
    return not math.isnan(value) if isinstance(value, float) else abs(value) < 2**63
