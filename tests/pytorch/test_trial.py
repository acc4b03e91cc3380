"""The trial on synthetic records: modules that mix records are refused before payment, modules that
do not are let in.
"""

import random
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402

from privypurse.core._errors import InvalidArgument  # noqa: E402
from privypurse.pytorch import fit  # noqa: E402
from privypurse.pytorch._fitting import ModuleOracle  # noqa: E402
from tests.pytorch.small_runs import begin_full_batch as begin  # noqa: E402

KINDS = {
    "float": lambda: torch.randn(30, 3),
    "int64": lambda: torch.randint(0, 50, (30, 3)),
    "int32": lambda: torch.randint(0, 50, (30, 3), dtype=torch.int32),
    "uint8": lambda: torch.randint(0, 50, (30, 3), dtype=torch.uint8),
    "bool": lambda: torch.rand(30, 3) > 0.5,
}
ANSWERS = ("whole", "squeezed")

MIXING = {
    "largest": lambda x: x / (1 + x.abs().max()),
    "largest of a column": lambda x: x / (1 + x.amax(0).abs()),
    "smallest": lambda x: x + x.amin(0),
    "sum": lambda x: x / (1 + x.sum().abs()),
    "length": lambda x: x / (1 + x.norm()),
    "spread": lambda x: x / (1 + x.std(0)),
    "centred": lambda x: x - x.mean(0),
    "centred for part": lambda x: torch.cat([x[:, :1], x[:, 1:] - x[:, 1:].mean(0)], 1),
    "sorted": lambda x: x.sort(0).values,
    "ranks": lambda x: x.argsort(0).argsort(0).to(x.dtype),
    "added up": lambda x: x.cumsum(0),
    "added up from behind": lambda x: x.flip(0).cumsum(0).flip(0),
    "place": lambda x: x + torch.arange(len(x))[:, None],
    "neighbour": lambda x: x + x.roll(1, 0),
    "number": lambda x: x * len(x),
    "softmax over records": lambda x: x.softmax(0),
    "only what is positive": lambda x: x + F.relu(x).sum(0),
    "only what is negative": lambda x: x + F.relu(-x).amax(0),
    "only what is large": lambda x: x * (2 if (x > 30).any() else 1),
    "many only": lambda x: x - x.mean(0) if len(x) > 8 else x,
    "attention over records": lambda x: (x @ x.T).softmax(1) @ x,
    "quantile": lambda x: x - x.quantile(0.5, dim=0),
}
# What does not mix for some inputs: none is below 0, or none is above 1; and for outputs: they are
# small, and their ranks have no
# gradient.
NOT_BELOW_ZERO = {"only what is negative"}
NOT_ABOVE_ONE = NOT_BELOW_ZERO | {"only what is large", "largest", "largest of a column"}
NOT_OF_OUTPUTS = {"only what is large", "ranks"}
DO_NOT_MIX = {"uint8": NOT_BELOW_ZERO, "bool": NOT_ABOVE_ONE}

APART = {
    "plain": lambda x: x,
    "normalised by itself": lambda x: F.layer_norm(x, (3,)),
    "sorted by itself": lambda x: x.sort(1).values,
    "added up by itself": lambda x: x.cumsum(1),
    "own largest": lambda x: x / (1 + x.abs().amax(1, keepdim=True)),
    "own softmax": lambda x: x.softmax(1),
    "tanh": torch.tanh,
    "own branch": lambda x: torch.where(x > 0, x, -2 * x),
    "in a loop": lambda x: torch.stack([row / (1 + row.norm()) for row in x]),
}


class Changed(nn.Module):
    """Changes its inputs before, or its outputs after, two layers."""

    def __init__(self, change, after, answer):
        super().__init__()
        self.change, self.after, self.answer = change, after, answer
        self.hidden, self.out = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x, other=None):
        x = x.float()
        if other is not None:
            x = x + 0.5 * other.float()
        if not self.after:
            x = self.change(x)
        x = self.out(torch.tanh(self.hidden(x)))
        if self.after:
            x = self.change(x)
        return x @ torch.tensor([1.0, 2.0, -1.5]) if self.answer == "squeezed" else x


CALLS = {
    "in order": lambda module, x: module(x),
    "by name": lambda module, x: module(x=x),
    "two in order": lambda module, x: module(x, x.flip(1)),
    "two by name": lambda module, x: module(x=x, other=x.flip(1)),
    "in a mixed way": lambda module, x: module(x, other=x.flip(1)),
}


def one_step(module, x, call, **changes):
    """Run a loop up to and without its first payment; returns the run."""
    private = begin(module, (x, torch.randn(len(x))), **changes)
    inputs, _ = next(iter(private.loader))
    call(module, inputs).square().flatten().mean().backward()
    return private


CASES = (st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(CALLS)), st.booleans(), st.sampled_from(ANSWERS))


@given(st.sampled_from(sorted(MIXING)), *CASES)
@settings(max_examples=60, deadline=None)
def test_a_module_that_mixes_records_is_refused_before_payment(name, kind, call, after, answer):
    torch.manual_seed(0)
    if name in (NOT_OF_OUTPUTS if after else DO_NOT_MIX.get(kind, ())):
        return
    with pytest.raises(InvalidArgument, match="mixes records"):
        one_step(Changed(MIXING[name], after, answer), KINDS[kind](), CALLS[call])


@given(st.sampled_from(sorted(APART)), *CASES)
@settings(max_examples=60, deadline=None)
def test_a_module_that_keeps_records_apart_is_let_in(name, kind, call, after, answer):
    torch.manual_seed(0)
    private = one_step(Changed(APART[name], after, answer), KINDS[kind](), CALLS[call])
    private.optimizer.step()
    assert private.purse.spent.releases == 1
    assert not any("tried out" in line for line in private.purse.certificate().uncovered)


class Divided(nn.Module):
    """Divides by the largest integer of the batch, as a scale between 0 and 1 does."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, t):
        return self.map(t.float() / t.max())


@pytest.mark.parametrize("way", ["hooks", "backward", "fit"])
def test_division_by_the_largest_integer_of_the_batch_is_refused(way):
    data = torch.randint(1, 50, (30, 3)), torch.randint(2, (30,))
    loss, budget = nn.CrossEntropyLoss(), {"records": 30, "epsilon": 1.0, "delta": 1e-5}
    train = {
        "hooks": lambda: begin(Divided(), data),
        "backward": lambda: begin(Divided(), data, loss=loss),
        "fit": lambda: fit(Divided(), data, loss=loss, **budget),
    }[way]
    with pytest.raises(InvalidArgument, match="mixes records"):
        train()


class Looked(nn.Module):
    """Looks integers up in a table of few rows and weighs them by something of the batch."""

    def __init__(self, size, weight):
        super().__init__()
        self.table, self.map, self.weight = nn.Embedding(size, 3), nn.Linear(3, 2), weight

    def forward(self, t):
        return self.map(self.table(t.long()).mean(1)) * self.weight(t)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 9, 12])
@pytest.mark.parametrize(
    "weight",
    [
        lambda t: 1 / (1 + t.max()),
        lambda t: 1 + t.min(),
        lambda t: 1 + (t > 0).any(),
        lambda t: 1 + (t > 0).all(),
        lambda t: 1 + (t > 0).all(0).sum(),
    ],
    ids=["largest", "smallest", "any", "all", "all of a column"],
)
@pytest.mark.parametrize("kind", [torch.int64, torch.bool])
def test_a_weight_by_the_extremes_of_a_small_range_of_integers_is_refused(kind, weight, size):
    torch.manual_seed(0)
    with pytest.raises(InvalidArgument, match="mixes records"):
        begin(Looked(size, weight), (torch.randint(2, (30, 3)).to(kind), torch.randint(2, (30,))))


def test_a_record_without_numbers_may_not_take_the_gradients_of_others_along():
    """A product with zero, which keeps every layer in the graph, is NaN for all if it is for one."""

    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.map, self.unused = nn.Linear(3, 2), nn.Linear(3, 1)

        def forward(self, x):
            return self.map(x) + 0 * self.unused(x).sum()

    with pytest.raises(InvalidArgument, match="mixes records"):
        begin(Beside(), (torch.randn(30, 3), torch.randint(2, (30,))))


class Picky(nn.Module):
    """Refuses records that make no sense to it."""

    def __init__(self):
        super().__init__()
        self.map, self.table = nn.Linear(3, 2), nn.Embedding(50, 2)

    def forward(self, x, lengths):
        if not bool(torch.isfinite(x).all()) or int(lengths.max()) < 1:
            raise ValueError("expected numbers and lengths")
        return self.map(x) + self.table(lengths)


def test_unusual_records_that_a_module_does_not_take_are_no_refusal():
    module = Picky()
    private = begin(module, (torch.randn(30, 3), torch.randint(1, 9, (30,)), torch.randint(2, (30,))))
    x, lengths, y = next(iter(private.loader))
    F.cross_entropy(module(x, lengths), y).backward()
    private.optimizer.step()
    assert private.purse.spent.releases == 1


class Words(nn.Module):
    """Words and kinds of words, with tables of different sizes."""

    def __init__(self):
        super().__init__()
        self.words, self.kinds, self.out = nn.Embedding(2_000, 3), nn.Embedding(2, 3), nn.Linear(3, 2)

    def forward(self, words, kinds):
        return self.out(self.words(words).mean(1) + self.kinds(kinds))


@pytest.mark.parametrize("scale", [False, True])
def test_tables_of_different_sizes_are_tried_with_integers_that_each_takes(scale):
    class Scaled(Words):
        def forward(self, words, kinds):
            return super().forward(words, kinds) / (words.max() if scale else 1.0)

    data = torch.randint(2_000, (30, 4)), torch.randint(2, (30,)), torch.randint(2, (30,))
    if scale:
        with pytest.raises(InvalidArgument, match="mixes records"):
            begin(Scaled(), data)
    else:
        assert begin(Scaled(), data).purse.spent.releases == 0


def test_a_loss_over_words_that_leaves_some_of_them_out_is_refused():
    """Its mean is over the words of all records: the number of words of one would scale the
    gradients of others.
    """

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.map = nn.Embedding(10, 4), nn.Linear(4, 2)

        def forward(self, words, labels):
            return F.cross_entropy(self.map(self.words(words)).flatten(0, 1), labels.flatten())

    module = Tagger()
    private = begin(module, (torch.randint(10, (30, 5)), torch.randint(2, (30, 5))))
    words, labels = next(iter(private.loader))
    with pytest.raises(InvalidArgument, match="mixes records"):
        module(words, labels)
    assert private.purse.spent.releases == 0


class Squeezed(nn.Module):
    """Answers with one number for each record, in one dimension."""

    def __init__(self, how):
        super().__init__()
        self.map, self.how = nn.Linear(3, 1), how

    def forward(self, x):
        return {"one": lambda out: out.squeeze(1), "all": torch.squeeze, "place": lambda out: out[:, 0]}[self.how](
            self.map(x)
        )


@pytest.mark.parametrize(
    ("how", "loss"),
    [("one", nn.MSELoss()), ("all", nn.BCEWithLogitsLoss()), ("place", lambda out, y: (out - y).abs().mean())],
)
@pytest.mark.parametrize("way", ["hooks", "backward", "fit", "oracle"])
def test_one_number_for_each_record_may_come_in_one_dimension(how, way, loss):
    data = torch.randn(30, 3), (torch.rand(30) > 0.5).float()
    module = Squeezed(how)
    if way == "fit":
        done = fit(module, data, loss=loss, records=30, epsilon=1.0, delta=1e-5, method="dp-agd", micro_batch=1)
        assert done.purse.spent.releases > 0
        return
    if way == "oracle":
        assert ModuleOracle(module, data, loss=loss, records=30).untried == []
        return
    private = begin(module, data, **{"loss": loss, "micro_batch": 1} if way == "backward" else {})
    for x, y in private.loader:
        if way == "backward":
            private.engine.backward(x, y)
        else:
            loss(module(x), y).backward()
        private.optimizer.step()
    assert private.purse.spent.releases == 2


class Pooled(nn.Module):
    """Adds up places that a mask names, and divides by the mean number of places in the batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x, mask):
        return (self.layer(x) * mask[..., None]).sum(1) / mask.sum(1).mean()


def test_division_by_the_places_that_masks_of_the_batch_leave_is_refused():
    module = Pooled()
    private = begin(module, (torch.randn(30, 4, 2), torch.randint(2, (30,))))
    x, _ = next(iter(private.loader))
    with pytest.raises(InvalidArgument, match="mixes records"):
        module(x, mask=torch.ones(30, 4))
    assert private.purse.spent.releases == 0


class Reparameterised(nn.Module):
    """Draws numbers in each mode, as the example of a variational autoencoder does, and maybe mixes
    records.
    """

    def __init__(self, mixes):
        super().__init__()
        self.mean, self.spread, self.out, self.mixes = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(2, 3), mixes

    def forward(self, x):
        mean, spread = self.mean(x), self.spread(x)
        if self.mixes:
            mean = mean - mean.mean(0)
        return self.out(mean + torch.randn_like(mean) * torch.exp(0.5 * torch.tanh(spread))), mean, spread


def test_a_module_that_draws_numbers_in_each_mode_is_tried_in_place_and_that_is_on_the_certificate():
    data = (torch.randn(30, 3),)
    uncovered = begin(Reparameterised(False), data).purse.certificate().uncovered
    assert [any(words in line for line in uncovered) for words in ("eval mode", "tried out")] == [True, False]
    with pytest.raises(InvalidArgument, match="mixes records"):
        begin(Reparameterised(True), data)


@pytest.mark.parametrize("drawn_before", range(8))
def test_records_that_are_mixed_by_chance_are_refused(drawn_before):
    """Manifold mixup: in training, and with another record each time."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(3, 8), nn.Linear(8, 2)

        def forward(self, x):
            hidden = self.inner(x)
            if self.training:
                hidden = F.dropout(hidden, 0.1)
                for _ in range(drawn_before):
                    hidden = hidden + 0.01 * torch.randn_like(hidden)
                hidden = 0.6 * hidden + 0.4 * hidden[torch.randperm(len(hidden))]
            return self.outer(hidden)

    with pytest.raises(InvalidArgument, match="mixes records"):
        begin(Mixed(), (torch.randn(30, 3), torch.randint(2, (30,))))


@pytest.mark.parametrize("draw", [lambda: random.random(), lambda: np.random.rand()])  # noqa: NPY002
def test_chance_from_elsewhere_is_no_mixing_and_stays_as_it_was(draw):
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.outer(x + self.inner(x) if not self.training or draw() > 0.5 else x)

    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    begin(Dropped(), (torch.randn(30, 3), torch.randint(2, (30,))))
    drawn = draw()
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    assert drawn == draw()


def test_a_large_output_does_not_hide_that_another_mixes_records():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.large, self.mixed = nn.Linear(3, 1), nn.Linear(3, 2)

        def forward(self, x):
            return 1e5 * self.large(x), self.mixed(x / x.norm(dim=0))

    with pytest.raises(InvalidArgument, match="mixes records"):
        begin(Two(), (torch.randn(30, 3), torch.randint(2, (30,))))


class Columns(nn.Module):
    """A table with a column of two kinds beside one of counts, which are maybe divided by the
    largest.
    """

    def __init__(self, divides):
        super().__init__()
        self.kinds, self.out, self.divides = nn.Embedding(2, 3), nn.Linear(4, 2), divides

    def forward(self, t):
        counts = t[:, 1:].float()
        counts = counts / (counts.max().clamp(min=1) if self.divides else 9)
        return self.out(torch.cat([self.kinds(t[:, 0]), counts], 1))


def test_a_column_of_zeros_and_ones_does_not_hide_what_is_done_to_the_others():
    data = torch.stack([torch.randint(2, (30,)), torch.randint(1, 9, (30,))], 1), torch.randint(2, (30,))
    uncovered = begin(Columns(False), data).purse.certificate().uncovered
    assert not any("other than 0 and 1" in line for line in uncovered)
    with pytest.raises(InvalidArgument, match="mixes records"):
        begin(Columns(True), data)


def test_a_wide_table_of_zeros_and_ones_is_on_the_certificate():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.kinds, self.out = nn.Embedding(2, 3), nn.Linear(3, 2)

        def forward(self, t):
            return self.out(self.kinds(t).mean(1))

    private = begin(Wide(), (torch.randint(2, (30, 50)), torch.randint(2, (30,))))
    assert sum("other than 0 and 1" in line for line in private.purse.certificate().uncovered) == 1


class Particular(nn.Module):
    """Does not take, or answers in ways, that a trial would like."""

    def __init__(self, what):
        super().__init__()
        self.what, self.first, self.second, self.pairs = what, nn.Linear(3, 2), nn.Linear(3, 2), nn.Embedding(110, 2)

    def forward(self, x, other=None):
        if self.what == "far out":
            return torch.distributions.Normal(self.first(x), self.second(x).exp(), validate_args=True).stddev
        if self.what == "a list":
            return list(self.first(x).unbind(0))
        if self.what == "constants":
            outputs = self.first(x)
            return outputs, torch.ones(()), outputs.detach().mean()
        return self.pairs(x.clamp(min=0) * 10 + other.clamp(min=0))


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("far out", "tried out on synthetic"),
        ("a list", "tried out on synthetic"),
        ("pairs", "0 and 1"),
        ("constants", ""),
    ],
)
def test_what_makes_no_sense_to_a_module_is_on_the_certificate_and_no_refusal(what, named):
    data = [torch.randint(10, (30,)), torch.randint(10, (30,))] if what == "pairs" else [torch.randn(30, 3)]
    module = Particular(what)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        private = begin(module, (*data, torch.randint(2, (30,))))
        for *inputs, _ in private.loader:
            outputs = module(*inputs)
            outputs = torch.stack(outputs) if what == "a list" else outputs[0] if what == "constants" else outputs
            outputs.square().mean().backward()
            private.optimizer.step()
    uncovered = [line for line in private.purse.certificate().uncovered if "tried out" in line]
    assert [line for line in uncovered if named and named in line] == uncovered
    assert bool(uncovered) == bool(named)


def test_records_that_are_mixed_are_refused_where_others_far_out_make_no_sense():
    class Narrow(Particular):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    with pytest.raises(InvalidArgument, match="mixes records"):
        begin(Narrow("far out"), (torch.randn(30, 3), torch.randint(2, (30,))))


def test_a_module_that_keeps_what_it_computes_from_parameters_is_refused_before_payment():
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(3, 2))
    module = nn.Sequential(layer)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(InvalidArgument, match=r"stores 0\.weight, which it computes from its parameters"):
        begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    again = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    assert begin(again, (torch.randn(30, 3), torch.randint(2, (30,)))).purse.spent.releases == 0


class Weighed(nn.Module):
    """Weighs records by one number each, and divides by the mean of these in the batch."""

    def __init__(self, mean):
        super().__init__()
        self.layer, self.mean = nn.Linear(3, 2), mean

    def forward(self, x, loss_mask):
        weights = loss_mask.float()
        return self.layer(x) * weights[:, None] / (weights.abs().mean() + 1 if self.mean else 1)


@pytest.mark.parametrize("kind", [torch.float32, torch.bool, torch.int64])
@pytest.mark.parametrize("mean", [False, True])
def test_a_mask_of_one_number_for_each_record_is_tried(kind, mean):
    module = Weighed(mean)

    def train():
        private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))), full_batch=False, batch_size=1, steps=20)
        for x, y in private.loader:
            F.cross_entropy(module(x, loss_mask=torch.ones(len(x), dtype=kind)), y).backward()
            private.optimizer.step()
        return private.purse

    if mean:
        with pytest.raises(InvalidArgument, match="mixes records"):
            train()
    else:
        purse = train()
        assert purse.spent.releases == 20
        assert not any("tried out" in line for line in purse.certificate().uncovered)


class Compared(nn.Module):
    """Compares records with public rows that come as a second argument."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, rows):
        return self.layer(x) @ rows.T


def test_public_rows_as_many_as_a_later_sample_has_records_do_not_end_a_run():
    module, rows, sizes = Compared(), None, set()
    data = torch.randn(100, 3), torch.randint(2, (100,))
    private = begin(module, data, records=100, full_batch=False, batch_size=10, steps=150)
    for x, y in private.loader:
        rows = torch.randn(10 if len(x) != 10 else 11, 2) if rows is None else rows
        sizes.add(len(x))
        F.cross_entropy(module(x, rows), y).backward()
        private.optimizer.step()
    assert len(rows) in sizes
    assert private.engine.gradients == 150
