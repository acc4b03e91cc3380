"""What the frameworks have in common."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from privypurse import InvalidArgument
from privypurse.pytorch import make_private
from privypurse.pytorch.integrations._frameworks import check_updates, has_ended, save_along, settings_for


def make_run(**length):
    module = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    data = (torch.zeros(20, 3), torch.zeros(20, dtype=torch.long))
    return make_private(
        module, optimizer, data, records=20, full_batch=True, epsilon=2.0, delta=1e-3, **length or {"steps": 2}
    )


def test_an_update_that_was_not_paid_for_is_noticed():
    private = make_run()
    check_updates(private, 0)
    with pytest.raises(InvalidArgument, match="1 updates were made, 0 paid for"):
        check_updates(private, 1)


def test_a_run_with_all_steps_made_has_ended_and_not_before():
    private = make_run(epochs=2)
    for ended in (False, True):
        for inputs, targets in private.loader:
            nn.functional.cross_entropy(private.module(inputs), targets).backward()
            private.optimizer.step()
        assert has_ended(private) is ended
    assert private.purse.spent.releases == 2


def test_a_run_whose_ledger_is_in_memory_is_not_saved_along(tmp_path):
    assert not save_along(make_run(), tmp_path / "run.pt")
    assert not (tmp_path / "run.pt").exists()


@pytest.mark.parametrize(
    ("given", "length", "expected"),
    [
        ({}, (30, 5), {"steps": 30}),
        ({}, (-1, 5), {"epochs": 5}),
        ({}, (-1, -1), {}),
        ({"steps": 7}, (30, 5), {"steps": 7}),
        ({"full_batch": True}, (30, 5), {"full_batch": True}),
    ],
)
def test_a_run_is_as_long_as_the_frameworks_unless_said_otherwise(given, length, expected):
    assert settings_for(given, {}, *length) == expected


def test_without_a_framework_its_absence_is_named():
    script = """
import sys
for name in ("lightning", "pytorch_lightning", "transformers"):
    sys.modules[name] = None
from privypurse.pytorch.integrations.hugging_face import private_trainer
from privypurse.pytorch.integrations.lightning import PrivateTraining
for call in (lambda: private_trainer(None), lambda: PrivateTraining(records=10)):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.count("pip install 'privypurse[torch-tools]'") == 2
