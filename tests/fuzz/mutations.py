"""Ways of spoiling a file: bytes, texts, trees of JSON values, tables. All of them are decided by
one seeded source.
"""

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 255, 256, 65_535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**18,
    10**30, 10**400, 0.0, -0.0, 0.1, 0.5, 0.999999, 1.0, 1.5, -0.5, 1e-6, 1e-9, 1e-100, 1e-300, 5e-324, 1e9, 1e100, 1e300,
    1.7976931348623157e308, float("inf"), float("-inf"), float("nan"), True, False,
)  # fmt: skip
TEXTS = (
    "", " ", "0", "-1", "1e999", "nan", "inf", "null", "true", "private", "declared", "add-remove", "replace-one", "gdp", "rdp",
    "zcdp", "fixed-schedule", "non-private", "gaussian", "repeated", "pure", "bounded-range", "a" * 300, "é", "\u202e", "\ufeff",
    "\ud800", "\x00", "\x7f", "\n", "\r\n", "\t", '"', "'", '""', "\\", "%s%n", "{}", "{0.__class__}", "$(touch /tmp/x)", "`id`",
    "; DROP TABLE entries; --", "../../../etc/passwd", "/dev/zero", "/dev/null", "/proc/self/mem", "=1+1", "__class__",
    "__import__('os').system('true')", "<script>alert(4711)</script>", "</script><script>alert(4711)</script>",
    "cos\nsystem\n(S'true'\ntR.", "[" * 40, "{" * 40, "0x1f", "1_000", "\u0661", "Infinity", "-0", "1" * 5_000,
)  # fmt: skip
TOKENS = (
    b"", b"\x00", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1f\x8b", b"PAR1", b"PK\x03\x04", b"PK\x05\x06", b"\x80\x04", b'"',
    b"'", b"\n", b"\r", b"\r\n", b",", b";", b"\t", b"=", b"[", b"]", b"[[", b"{", b"}", b"#", b".", b"-", b"NaN", b"Infinity",
    b"1e999",
    b"99999999999999999999", b"-1", b"null", b"true", b'"""', b"'''", b"\\u0000", b"\\ud800", b"\\", b"\x7f",
    b"cos\nsystem\n(S'true'\ntR.",
)  # fmt: skip


def value(random: Random) -> Any:
    """Make a JSON value that nobody expects."""
    kind = random.randrange(8)
    if kind < 3:
        return random.choice(NUMBERS)
    if kind < 6:
        return random.choice(TEXTS)
    if kind == 6:
        return random.choice([None, [], {}, [None], {"": ""}, [[]], [0] * 100, {"kind": "gaussian"}])
    return random.choice([random.random(), -random.random(), random.randrange(1000), random.uniform(0, 10)])


def nested(depth: int, close: bool = True) -> str:
    """Write a list in a list in a list."""
    return "[" * depth + "]" * (depth if close else 0)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """List every place in a tree, as a container and a key or index."""
    found: list[tuple[Any, Any]] = []
    if isinstance(tree, dict):
        inner = list(tree.items())
    elif isinstance(tree, list):
        inner = list(enumerate(tree))
    else:
        return found
    for key, child in inner:
        found.append((tree, key))
        found += places(child)
    return found


def spoil_tree(random: Random, tree: Any) -> Any:
    """Change a few places of a tree: values, kinds, keys; remove, repeat, exchange."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        known = places(tree)
        if not known:
            return value(random)
        container, key = random.choice(known)
        _spoil_place(random, container, key, known)
    return tree


def _spoil_place(random: Random, container: Any, key: Any, known: list[tuple[Any, Any]]) -> None:
    kind = random.randrange(10)
    if kind < 4:
        container[key] = value(random)
    elif kind < 6:
        container[key] = _near(random, container[key])
    elif kind == 6:
        del container[key]
    elif kind == 7:
        other, place = random.choice(known)
        container[key] = copy.deepcopy(other[place]) if _has(other, place) else None
    elif kind == 8 and isinstance(container, dict):
        container[str(random.choice(TEXTS))] = container.pop(key)
    elif isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]))
    else:
        container[str(random.choice(TEXTS))] = value(random)


def _has(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


def _near(random: Random, old: Any) -> Any:
    """Change a value a little: the kind of edit that a person would make."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return old + random.choice((-1, 1, 2, -old, old, 10 ** random.randrange(1, 25)))
    if isinstance(old, float):
        return old * random.choice((0.5, 2.0, -1.0, 0.999, 1.001, 1e-9, 1e9))
    if isinstance(old, str):
        return spoil_text(random, old)
    if isinstance(old, list):
        return random.choice((old[:-1], old * 2, old[::-1], dict(enumerate(map(str, old)))))
    return [old]


def spoil_text(random: Random, text: str) -> str:
    """Change a text: a letter, a part, a strange piece in it."""
    at, to = sorted(random.randrange(len(text) + 1) for _ in range(2))
    kind = random.randrange(6)
    if kind == 0:
        return text[:at] + text[to:]
    if kind == 1:
        return text[:at] + random.choice(TEXTS) + text[at:]
    if kind == 2:
        return text[:at] + text[at:to] * random.choice((2, 3, 50)) + text[to:]
    if kind == 3:
        return (
            text[:at]
            + chr(random.choice((0, 9, 10, 34, 48, 57, 65, 127, 255, 0x2028, 0xFEFF, 0x1F600)))
            + text[at + 1 :]
        )
    if kind == 4:
        return text.swapcase()
    return text[::-1]


def spoil_bytes(random: Random, content: bytes, others: "tuple[bytes, ...]" = ()) -> bytes:
    """Change bytes: flip, replace, cut, repeat, splice, cut off."""
    spoilt = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        at, to = sorted(random.randrange(len(spoilt) + 1) for _ in range(2))
        to = min(to, at + random.choice((1, 4, 16, 64, 100_000)))
        kind = random.randrange(9)
        if kind == 0 and spoilt:
            spoilt[at % len(spoilt)] ^= 1 << random.randrange(8)
        elif kind == 1 and spoilt:
            spoilt[at % len(spoilt)] = random.randrange(256)
        elif kind == 2:
            spoilt[at:to] = b""
        elif kind == 3:
            spoilt[at:at] = spoilt[at:to] * random.choice((1, 2, 20))
        elif kind == 4:
            spoilt[at:at] = random.choice(TOKENS)
        elif kind == 5:
            spoilt[at : at + 4] = random.randrange(2**32).to_bytes(4, random.choice(("big", "little")))
        elif kind == 6 and others:
            other = random.choice(others)
            first, last = sorted(random.randrange(len(other) + 1) for _ in range(2))
            spoilt[at:to] = other[first:last]
        elif kind == 7 and random.random() < 0.3:
            del spoilt[at:]
        else:
            spoilt[at:to] = bytes(random.randrange(256) for _ in range(to - at if to - at < 64 else 64))
        del spoilt[1 << 20 :]
    return bytes(spoilt)


def spoil_json(random: Random, tree: Any) -> bytes:
    """Spoil a tree and write it, or write it and spoil the text; now and then something very deep,
    long or large.
    """
    kind = random.randrange(12)
    if kind < 9:
        return as_json(spoil_tree(random, tree))
    if kind < 11:
        return spoil_bytes(random, as_json(tree))
    if not places(tree):
        return nested(random.choice((50, 2_000, 200_000)), random.random() < 0.5).encode()
    tree = copy.deepcopy(tree)
    container, key = random.choice(places(tree))
    container[key] = "<here>"
    return as_json(tree).replace(b'"<here>"', _extreme(random))


def _extreme(random: Random) -> bytes:
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: nested(random.choice((50, 990, 5_000, 200_000)), random.random() < 0.7).encode(),
        lambda: b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        lambda: b"9" * random.choice((20, 400, 5_000, 200_000)),
        lambda: b'"' + b"x" * 200_000 + b'"',
        lambda: b"[" + b"0," * 20_000 + b"0]",
        lambda: b"1e" + b"9" * 20,
    )
    return random.choice(makers)()


def as_json(tree: Any) -> bytes:
    """Write a tree as JSON; what JSON does not have (NaN, lone halves of characters) too."""
    # Whole numbers of any length are written: a file may hold them.
    return json.dumps(tree).encode("utf-8", "surrogatepass")
