"""Digests of a user's objects that are equal across processes: code and values.

Pickles do not serve: they differ between processes, and hold only the names of functions.
"""

import functools
import hashlib
import sys
import types
from typing import Any

import numpy as np

_ATOMS = (type(None), bool, int, float, complex, str, bytes)


def fingerprint(thing: Any) -> str:
    """Return a digest of an object: its values, and code that is the user's."""
    return hashlib.sha256(_described(thing, {}).encode(errors="surrogatepass")).hexdigest()


def _described(thing: Any, seen: dict[int, tuple[int, Any]]) -> str:
    if isinstance(thing, _ATOMS):
        return f"{type(thing).__name__} {thing!r}"
    if id(thing) in seen:
        return f"number {seen[id(thing)][0]}"
    seen[id(thing)] = len(seen), thing  # kept alive: ids stay unique
    if isinstance(thing, set | frozenset):
        return f"set {sorted(_described(each, {}) for each in thing)}"
    return f"{type(thing).__name__} {[_described(part, seen) for part in _parts(thing)]}"


def _parts(thing: Any) -> list[Any]:
    """Return the parts of an object."""
    if isinstance(thing, list | tuple):
        return list(thing)
    if isinstance(thing, dict | types.MappingProxyType):
        return [part for pair in thing.items() for part in pair]
    if isinstance(thing, types.FunctionType | type):
        return [thing.__module__, thing.__qualname__, *([] if _known(thing) else _written(thing))]
    if hasattr(thing, "__array__"):
        array = np.asarray(thing)
        return [str(array.dtype), array.shape, array.tolist() if array.dtype.hasobject else array.tobytes()]
    for kind, names in _NAMES.items():
        if isinstance(thing, kind):
            return [getattr(thing, name) for name in names]
    if hasattr(thing, "__dict__") or hasattr(type(thing), "__slots__"):
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        return [type(thing), getattr(thing, "__dict__", {}), [getattr(thing, name, None) for name in slots]]
    shown = getattr(thing, "__qualname__", repr(thing))
    return [type(thing), "" if " at 0x" in shown else shown]


_NAMES: dict[type, tuple[str, ...]] = {
    types.CodeType: ("co_code", "co_names", "co_varnames", "co_consts"),
    types.ModuleType: ("__name__",),
    types.MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
}


def _known(thing: Any) -> bool:
    """Return whether a version identifies the code: of this library, Python and its numbers."""
    return str(thing.__module__).split(".")[0] in {"privypurse", "numpy", "scipy", *sys.stdlib_module_names}


def _written(thing: Any) -> list[Any]:
    """Return the code of a function with what it refers to, or of a class."""
    if isinstance(thing, type):
        return [thing.__bases__, {name: value for name, value in vars(thing).items() if not _made(name, value)}]
    used = {name: thing.__globals__[name] for name in _used(thing.__code__) if name in thing.__globals__}
    cells = [cell.cell_contents for cell in thing.__closure__ or () if cell != types.CellType()]
    return [thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells, used]


def _made(name: str, value: Any) -> bool:
    """Return whether an attribute of a class is Python's own; some appear when it is copied."""
    return name == "_abc_impl" or (name.startswith("__") and not isinstance(value, types.FunctionType))


def _used(code: types.CodeType) -> list[str]:
    """Return the names that code uses, including nested functions."""
    inner = [name for constant in code.co_consts if isinstance(constant, types.CodeType) for name in _used(constant)]
    return [*code.co_names, *inner]
