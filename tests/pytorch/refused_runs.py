"""Runs that ought to be refused, and how to tell."""

import re

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from privypurse import InvalidArgument, Purse  # noqa: E402
from privypurse.core._errors import PrivypurseError  # noqa: E402
from privypurse.pytorch import make_private  # noqa: E402

# A number that stands in every record, and must stand in no message.
SECRET = 73_591.25


def data(count=30):
    return torch.full((count, 3), SECRET), torch.zeros(count, dtype=torch.long)


def simple():
    return nn.Linear(3, 2)


def begin(module=None, loader=None, optimizer=None, **changes):
    module = simple() if module is None else module
    optimizer = torch.optim.SGD(module.parameters(), 0.1) if optimizer is None else optimizer
    arguments = {"purse": Purse(1.0, 1e-5, neighbouring="add-remove"), "records": 30, "full_batch": True, "steps": 3}
    if {"epsilon", "delta", "neighbouring"} & set(changes):
        arguments["purse"] = None
    return make_private(module, optimizer, data() if loader is None else loader, **arguments | changes)


def said(caught):
    message = str(caught.value)
    assert not re.search(r"73.?591", message), "values of records are not shown"
    assert len(message) < 1_000
    assert isinstance(caught.value, PrivypurseError)
    return message


def refused(match, error=InvalidArgument, **arguments):
    purse = arguments.get("purse") or Purse(1.0, 1e-5, neighbouring="add-remove")
    if not {"epsilon", "delta", "neighbouring", "purse"} & set(arguments):
        arguments["purse"] = purse
    with pytest.raises(error, match=match) as caught:
        begin(**arguments)
    if isinstance(purse, Purse):
        assert purse.spent.releases == 0
    return said(caught)
