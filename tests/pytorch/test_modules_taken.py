"""Modules whose layers are not all run by records, outputs without columns, and what `fix` puts in place."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from privypurse import InvalidArgument  # noqa: E402
from privypurse.methods import DPAGD  # noqa: E402
from privypurse.pytorch import fit, fix  # noqa: E402
from tests.pytorch.layer_cases import Own, assert_step, private_of  # noqa: E402
from tests.pytorch.recurrent_cases import Packed, packed_words  # noqa: E402
from tests.pytorch.refused_runs import refused  # noqa: E402

RECORDS = 6
TARGETS = torch.arange(RECORDS) % 3


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


def numbers():
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    return X, X[:, 0]


@pytest.mark.parametrize("backward", [False, True], ids=["hooks", "backward"])
def test_outputs_may_have_one_number_for_each_record(backward):
    torch.manual_seed(0)
    assert_step(Squeezed(), numbers(), nn.MSELoss(), backward=backward)


@pytest.mark.parametrize("method", [None, DPAGD()], ids=["default", "line search"])
def test_fit_takes_outputs_with_one_number_for_each_record(method):
    budget = {"records": 20, "epsilon": 2.0, "delta": 1e-5}
    assert fit(Squeezed(), numbers(), loss=nn.MSELoss(), method=method, **budget).purse.spent.releases > 0


class Positions(nn.Module):
    """Adds positions to words, in one of the ways in which models write it."""

    def __init__(self, how):
        super().__init__()
        self.words, self.places, self.map = nn.Embedding(5, 4), nn.Embedding(9, 4), nn.Linear(4, 3)
        self.how = how

    def forward(self, x):
        places = torch.arange(x.shape[1])
        found = {
            "looked up once": lambda: self.places(places),
            "with a dimension in front": lambda: self.places(places).unsqueeze(0),
            "expanded": lambda: self.places(places).expand(len(x), -1, -1),
            "rows of the weight": lambda: self.places.weight[: len(places)],
        }[self.how]()
        return self.map(torch.tanh(self.words(x) + found)).mean(1)


class Biased(nn.Module):
    """Attention whose bias for each pair of places is looked up once, as in T5, in a layer of its own."""

    def __init__(self):
        super().__init__()
        self.words, self.map, self.attention = nn.Embedding(5, 4), nn.Linear(4, 3), Scores()

    def forward(self, x):
        return self.map(self.attention(self.words(x))).mean(1)


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias, self.query = nn.Embedding(9, 1), nn.Linear(4, 4)

    def forward(self, x):
        places = torch.arange(x.shape[1])
        bias = self.bias((places[:, None] - places).clamp(-4, 4) + 4).squeeze(2)
        return F.scaled_dot_product_attention(self.query(x), x, x, attn_mask=bias)


@pytest.mark.parametrize("length", [4, RECORDS])
@pytest.mark.parametrize(
    "make",
    [
        Biased,
        lambda: Positions("looked up once"),
        lambda: Positions("with a dimension in front"),
        lambda: Positions("expanded"),
        lambda: Positions("rows of the weight"),
    ],
)
def test_what_holds_a_layer_that_is_not_run_by_records_is_run_for_each(make, length):
    """Also where there are as many records as places, which no shape tells apart."""
    torch.manual_seed(0)
    for backward in (False, True):
        with pytest.warns(RuntimeWarning, match="is run for each record alone"):
            assert_step(make(), (torch.randint(5, (RECORDS, length)), TARGETS), backward=backward)


class Marked(nn.Module):
    """Accepts only records that end in a 4, which synthetic ones do not."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        if not (x[:, -1] == 4).all():
            raise ValueError("a record has no end")
        return self.inner(x)


def marked_words(length):
    torch.manual_seed(0)
    words = torch.randint(5, (RECORDS, length))
    words[:, -1] = 4
    return words


@pytest.mark.parametrize("length", [4, RECORDS])
def test_positions_are_told_from_records_where_synthetic_records_are_not_accepted(length):
    words = marked_words(length)
    with pytest.warns(UserWarning, match="could not be tried"), pytest.warns(RuntimeWarning, match="each record"):
        assert_step(Marked(Positions("looked up once")), (words, TARGETS))


def test_fit_refuses_positions_that_cannot_be_told_from_records():
    words, budget = marked_words(RECORDS), {"records": RECORDS, "epsilon": 2.0, "delta": 1e-5}
    with pytest.raises(InvalidArgument, match=r"inner.places \(Embedding\) was run on 6 records"):
        fit(Marked(Looped("looked up once")), (words, TARGETS), loss=nn.CrossEntropyLoss(), **budget)


class Looped(Positions):
    def forward(self, x):
        return super().forward(x) if float(x.sum()) >= 0 else x


def test_positions_that_cannot_be_told_from_records_are_refused():
    private = private_of(Marked(Looped("looked up once")), (marked_words(RECORDS), TARGETS))
    inputs, _ = next(iter(private.loader))
    with pytest.raises(InvalidArgument, match=r"inner.places \(Embedding\) was run on 6 records"):
        private.module(inputs)
    assert private.purse.spent.releases == 0


class Flat(nn.Module):
    """Runs layers on all places of all records at once, as OPT does."""

    def __init__(self, first=0):
        super().__init__()
        self.layers, self.first = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), first

    def forward(self, x):
        x = x.transpose(0, self.first)
        return self.layers(x.flatten(0, 1)).unflatten(0, x.shape[:2]).mean(1 - self.first)


def test_layers_may_run_on_all_places_of_all_records():
    torch.manual_seed(0)
    assert_step(Flat(), (torch.randn(RECORDS, 4, 4), TARGETS))


@pytest.mark.parametrize("length", [4, RECORDS])
def test_places_before_records_are_not_taken_for_records(length):
    torch.manual_seed(0)
    for make in (lambda: Flat(first=1), Transposed):
        with pytest.warns(RuntimeWarning, match="is run for each record alone"):
            assert_step(make(), (torch.randn(RECORDS, length, 4), TARGETS))


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x.transpose(0, 1)).tanh().sum(0)


def test_lengths_of_packed_sequences_are_tried_out():
    torch.manual_seed(0)
    private = assert_step(Packed(nn.GRU), (*packed_words(RECORDS), TARGETS))
    assert not any("tried out" in line for line in private.purse.certificate().uncovered)


class Saving(nn.Module):
    """Runs a layer twice by checkpoints of activations, but not on one record."""

    def __init__(self, layer, reentrant):
        super().__init__()
        self.one, self.layer, self.two, self.reentrant = nn.Linear(4, 4), layer, nn.Linear(4, 3), reentrant

    def forward(self, x):
        x = self.one(x)
        for _ in range(2):
            x = self.layer(x) if len(x) == 1 else checkpoint(self.layer, x, use_reentrant=self.reentrant)
        return self.two(x).mean(1)


class First(nn.Sequential):
    def forward(self, x):
        return super().forward(x)[0]


@pytest.mark.parametrize("backward", [False, True], ids=["hooks", "backward"])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.Tanh()),
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        lambda: First(nn.GRU(4, 4, batch_first=True)),
        lambda: nn.Sequential(Own(), nn.Tanh()),
    ],
    ids=["linear", "encoder", "recurrent", "own parameters"],
)
def test_checkpoints_of_activations_change_nothing(make, reentrant, backward):
    torch.manual_seed(0)
    assert_step(Saving(make(), reentrant), (torch.randn(RECORDS, 5, 4), TARGETS), backward=backward)


def test_a_checkpoint_around_the_module_changes_nothing():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    call = lambda x: module(x) if len(x) == 1 else checkpoint(module, x, use_reentrant=False)  # noqa: E731
    assert_step(module, (torch.randn(RECORDS, 4), TARGETS), call=call)


class Unrunnable(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.map = nn.Parameter(torch.ones(3)), nn.Linear(3, 2)

    def forward(self, x):
        return self.map(x * self.scale) if float(x.sum()) < 1e9 else x


def test_a_layer_that_cannot_be_run_for_each_record_is_named_with_the_cause():
    message = refused("for each record alone", module=nn.Sequential(nn.Linear(3, 3), Unrunnable()))
    assert message.startswith("1 (Unrunnable)")
    assert "item()" in message


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.scaled, self.words = nn.InstanceNorm1d(3, track_running_stats=True), nn.Embedding(5, 3, max_norm=1.0)

    def forward(self, x):
        return self.norm(self.conv(x)).mean((2, 3))


def test_all_layers_that_are_refused_are_named_at_once():
    message = refused("mixes|normalises", module=nn.Sequential(*[Block() for _ in range(5)]))
    for part in ("0.norm, 1.norm, 2.norm and 2 more (BatchNorm2d)", "GroupNorm(2, 4)", "0.scaled", "0.words", "fix("):
        assert part in message


def test_fix_makes_a_module_trainable_and_says_what_it_changed(capsys):
    torch.manual_seed(0)
    module = nn.Sequential(Block())
    nn.init.normal_(module[0].norm.weight)
    module[0].norm.bias.requires_grad_(False)
    before = copy.deepcopy(module[0].norm)
    assert fix(module) is module
    assert capsys.readouterr().out.splitlines() == [
        "0.norm (BatchNorm2d) is now nn.GroupNorm(2, 4)",
        "0.scaled (InstanceNorm1d) is now the same layer with track_running_stats=False",
        "0.words (Embedding) is now a plain nn.Embedding",
    ]
    assert torch.equal(module[0].norm.weight, before.weight)
    assert [value.requires_grad for value in module[0].norm.parameters()] == [True, False]
    assert_step(module, (torch.randn(RECORDS, 3, 5, 5), TARGETS))
    fix(module)
    assert not capsys.readouterr().out


def test_fix_leaves_frozen_normalisation_and_replaces_a_module_that_is_one():
    frozen = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).requires_grad_(False))
    assert isinstance(fix(frozen)[1], nn.BatchNorm1d)
    plain = fix(nn.BatchNorm1d(4, affine=False).eval().train())
    assert (plain.num_groups, plain.weight, plain.bias) == (2, None, None)
