"""The public description of the made-up census, from what its generator says about its columns."""

from privypurse.datasets import Census
from privypurse.tables.schema import Category, ClassTarget, Column, Number, Schema


def census_schema(census: Census) -> Schema:
    """Describe the made-up census without looking at its rows."""
    columns: list[Column] = []
    for name, facts in census.schema_facts.items():
        if name == census.target:
            continue
        if facts.lower is not None and facts.upper is not None:
            columns.append(Number(name=name, range=(facts.lower, facts.upper), missing=facts.may_be_missing))
        else:
            columns.append(Category(name=name, categories=tuple(facts.categories), missing=facts.may_be_missing))
    return Schema(tuple(columns), ClassTarget(name=census.target, classes=tuple(census.classes)))
