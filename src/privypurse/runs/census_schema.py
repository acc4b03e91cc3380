"""The schema of the synthetic census, from the facts that its generator declares."""

from privypurse.datasets import Census
from privypurse.tables.schema import Category, ClassTarget, Column, Number, Schema


def census_schema(census: Census) -> Schema:
    """Return the schema of a synthetic census without reading its rows."""
    columns: list[Column] = []
    for name, facts in census.schema_facts.items():
        if name == census.target:
            continue
        if facts.lower is not None and facts.upper is not None:
            columns.append(Number(name=name, range=(facts.lower, facts.upper), missing=facts.may_be_missing))
        else:
            columns.append(Category(name=name, categories=tuple(facts.categories), missing=facts.may_be_missing))
    return Schema(tuple(columns), ClassTarget(name=census.target, classes=tuple(census.classes)))
