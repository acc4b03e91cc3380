"""Schemas as TOML files that a person writes, checks and keeps."""

import difflib
import json
import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument
from privypurse.tables.schema import (
    MISSING_VALUES,
    Category,
    ClassTarget,
    Column,
    Number,
    NumberTarget,
    Schema,
    Source,
    Target,
)

# A file that says that something was bought speaks of an earlier run.
_SOURCES = {"declared": Source.DECLARED, "data": Source.DATA, "bought": Source.EARLIER}
_WRITTEN = {Source.DECLARED: "declared", Source.DATA: "data", Source.BOUGHT: "bought", Source.EARLIER: "bought"}
_COLUMN_KEYS = ("range", "cuts", "categories", "other", "missing", "source", "ignore")
_TARGET_KEYS = ("column", "classes", "range", "source")
_KEYS = ("source", "missing_values", "decimal", "target", "columns")

_DRAFT = """\
# DRAFT: kinds, ranges and categories below were READ FROM THE DATA. No guarantee covers that: a rare category or an extreme
# number tells of a single record. Go through it; replace what you see by what you know without looking (an age lies between 0
# and 120; the list of jobs is in the questionnaire), and then write source = "declared". Or write range = "private" for a
# column of numbers, and its range is bought from the budget. A column of numbers that is skewed, or whose effect bends, does
# better with cuts = [10, 100, 1000] of your own in place of its range.
"""
_DECLARED = """\
# The public description of a table. source = "declared": known without looking at the records.
"""


def read_schema(path: "str | pathlib.Path") -> Schema:
    """Read a schema from a TOML file."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgument(
            f"schema {str(path)!r} cannot be read: {error.strerror}. `privypurse schema data.csv` drafts one."
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"schema {str(path)!r} is not a text file in UTF-8. Save it as one.") from error
    try:
        return parse_schema(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"schema {str(path)!r}: {error}") from error


def parse_schema(text: str) -> Schema:
    """Read a schema from TOML text."""
    try:
        fields = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers that are too long, and lists in lists in lists
        raise InvalidArgument(f"this is not TOML: {error}. `privypurse schema data.csv` drafts one.") from error
    _check_keys(fields, _KEYS, "the schema")
    default = _unless_bought(_source(fields.get("source"), "the schema", Source.DECLARED))
    described = fields.get("columns", {})
    if not isinstance(described, dict):
        raise InvalidArgument(
            "columns must be tables, one for each column: [columns.age] and below it range = [0, 120]."
        )
    columns = tuple(
        column for name, settings in described.items() if (column := _column(name, settings, default)) is not None
    )
    missing = fields.get("missing_values", list(MISSING_VALUES))
    if not isinstance(missing, list) or not all(isinstance(value, str) for value in missing):
        raise InvalidArgument(f'missing_values must be a list of texts; got {shown(missing)}. Write ["?", "NA"].')
    target = fields.get("target")
    return Schema(
        columns,
        None if target is None else _target(target, default),
        tuple(missing),
        default,
        fields.get("decimal", "."),
    )


def _column(name: str, settings: Any, default: Source) -> Column | None:
    what = f"column {name!r}"
    if not isinstance(settings, dict):
        raise InvalidArgument(
            f"{what} must be a table; got {shown(settings)}. Write [columns.{_key(name)}] and settings below it."
        )
    _check_keys(settings, _COLUMN_KEYS, what)
    source = _source(settings.get("source"), what, default)
    flags = {key: _flag(settings, key, what) for key in ("ignore", "missing", "other")}
    if flags["ignore"]:
        return None
    if ("range" in settings or "cuts" in settings) == ("categories" in settings):
        raise InvalidArgument(
            f"{what} must have either range = [low, high] (numbers) or categories = [...]. For a column that is to be left out, "
            "write ignore = true."
        )
    if "categories" in settings:
        listed = _list(settings["categories"], f"categories of {what}")
        texts = tuple(_as_text(value) for value in listed)
        return Category(
            name=name, categories=texts, other=flags["other"], missing=flags["missing"], source=_unless_bought(source)
        )
    cuts = tuple(map(_as_number, _list(settings.get("cuts", []), f"cuts of {what}")))
    pair = settings.get("range")
    if pair == "private":
        if cuts:
            raise InvalidArgument(f'{what} has cuts, which need no range. Leave out range = "private".')
        # Its kind may have been read from the data; its range is going to be paid for.
        return Number(
            name=name, missing=flags["missing"], source=source if source is not Source.DATA else Source.DECLARED
        )
    if pair is None and not cuts:
        raise InvalidArgument(f"cuts of {what} must not be empty. Write for example cuts = [25, 40, 65], or a range.")
    range_ = None if pair is None else _pair(pair, what)
    own = _unless_bought(source) if cuts else source
    return Number(name=name, range=range_, cuts=cuts, missing=flags["missing"], source=own)


def _target(settings: Any, default: Source) -> Target:
    if not isinstance(settings, dict) or not isinstance(settings.get("column"), str):
        raise InvalidArgument('[target] must name a column. Write column = "income" below it.')
    name = settings["column"]
    _check_keys(settings, _TARGET_KEYS, "[target]")
    source = _unless_bought(_source(settings.get("source"), "[target]", default))
    if ("classes" in settings) == ("range" in settings):
        raise InvalidArgument(
            '[target] must have either classes = ["no", "yes"] or, for a number, range = [low, high].'
        )
    if "classes" in settings:
        classes = tuple(_as_text(value) for value in _list(settings["classes"], "classes"))
        return ClassTarget(name=name, classes=classes, source=source)
    return NumberTarget(name=name, range=_pair(settings["range"], f"target {name!r}"), source=source)


def _pair(pair: Any, what: str) -> tuple[float, float]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise InvalidArgument(
            f'range of {what} must be two numbers or "private"; got {shown(pair)}. Write range = [0, 100].'
        )
    return _as_number(pair[0]), _as_number(pair[1])


def _as_number(value: Any) -> Any:
    """Take a whole number that no float holds for the float it will be used as; what is no number is refused by the schema."""
    return float(value) if type(value) is int and 2**53 < abs(value) <= 10**100 else value


def _list(values: Any, what: str) -> list[Any]:
    if not isinstance(values, list):
        raise InvalidArgument(f"{what} must be a list; got {shown(values)}. Write it in square brackets.")
    return values


def _as_text(value: Any) -> Any:
    """Turn a category as TOML has it into the text that a file has; what is no simple value is refused by the schema."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value.strip() if isinstance(value, str) else value


def _flag(settings: Mapping[str, Any], key: str, what: str) -> bool:
    value = settings.get(key, False)
    if not isinstance(value, bool):
        raise InvalidArgument(f"{key} of {what} must be true or false; got {shown(value)}.")
    return value


def _unless_bought(source: Source) -> Source:
    """Take what cannot be bought, and is said to be, for what it is: read from the data."""
    return Source.DATA if source is Source.EARLIER else source


def _source(value: Any, what: str, default: Source) -> Source:
    if value is None:
        return default
    if not isinstance(value, str) or value not in _SOURCES:
        raise InvalidArgument(
            f'source of {what} must be "declared", "data" or "bought"; got {shown(value)}. Write one of them.'
        )
    return _SOURCES[value]


def _check_keys(settings: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            guess = f" Did you mean {near[0]}?" if near else f" It may have: {', '.join(known)}."
            raise InvalidArgument(f"{what} has a setting {key!r} that is not known.{guess}")


def write_schema(schema: Schema, *, comments: Mapping[str, str] | None = None) -> str:
    """Write a schema as TOML.

    Parameters
    ----------
    schema : Schema
        What to write.
    comments : dict of str to str, optional
        A remark for a column, by its name; a name that is not in the schema is written as a column to be ignored.
    """
    remarks = dict(comments or {})
    default = schema.kinds
    lines = [_DECLARED if schema.is_declared else _DRAFT, f"source = {_text(_WRITTEN[default])}"]
    if schema.missing_values != MISSING_VALUES:
        lines.append(f"missing_values = {_texts(schema.missing_values)}")
    if schema.decimal != ".":
        lines.append(f"decimal = {_text(schema.decimal)}")
    if schema.target is not None:
        target = schema.target
        lines += ["", "[target]", f"column = {_text(target.name)}"]
        if isinstance(target, ClassTarget):
            lines.append(f"classes = {_texts(target.classes)}")
        else:
            lines.append(f"range = {_numbers(target.range)}")
        lines += _own_source(target.source, default)
    for column in schema.columns:
        remark = remarks.pop(column.name, "")
        lines += ["", f"[columns.{_key(column.name)}]" + (f"  # {_line(remark)}" if remark else "")]
        if isinstance(column, Category):
            lines.append(f"categories = {_texts(column.categories)}")
            lines += ["other = true"] * column.other
        else:
            if column.range is not None:
                lines.append(f"range = {_numbers(column.range)}")
            elif not column.cuts:
                lines.append('range = "private"')
            lines += [f"cuts = {_numbers(column.cuts)}"] * bool(column.cuts)
        lines += ["missing = true"] * column.missing
        lines += _own_source(column.source, default)
    for name, remark in remarks.items():
        lines += ["", f"[columns.{_key(name)}]  # {_line(remark)}", "ignore = true"]
    return "\n".join(lines) + "\n"


def _own_source(source: Source, default: Source) -> list[str]:
    return [] if source is default else [f"source = {_text(_WRITTEN[source])}"]


def _text(value: str) -> str:
    # TOML's quoted text is JSON's, but for the delete character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _texts(values: Sequence[str]) -> str:
    listed = "[" + ", ".join(map(_text, values)) + "]"
    return listed if len(listed) <= 100 else "[\n" + "".join(f"    {_text(value)},\n" for value in values) + "]"


def _numbers(values: Sequence[float]) -> str:
    return "[" + ", ".join(map(_number, values)) + "]"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _key(name: str) -> str:
    bare = name.isascii() and name and all(letter.isalnum() or letter in "-_" for letter in name)
    return name if bare else _text(name)


def _line(remark: str) -> str:
    return " ".join(remark.split())
