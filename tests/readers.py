"""How others read the formats of a certificate: the registry of deployments, and dp_accounting."""

import json
import pathlib
from collections import namedtuple

import dp_accounting
import jsonschema
import yaml

ROOT = pathlib.Path(__file__).parents[1]
LAYOUT = json.loads((ROOT / "docs" / "registry.schema.json").read_text(encoding="utf-8"))


def read_entry(text):
    """Return an entry of the registry, checked against its layout."""
    entry = yaml.safe_load(text)
    jsonschema.Draft202012Validator(LAYOUT, format_checker=jsonschema.FormatChecker()).validate(entry)
    return entry


def priced(found, accountant, delta=1e-6):
    """Return the epsilon that an accountant of dp_accounting states for what `dp_events` returned."""
    named = json.loads(json.dumps(found["event"]), object_hook=lambda fields: namedtuple("Event", fields)(**fields))
    relation = dp_accounting.NeighboringRelation[found["neighboring_relation"]]
    composed = accountant(neighboring_relation=relation).compose(dp_accounting.DpEvent.from_named_tuple(named))
    return composed.get_epsilon(delta)
