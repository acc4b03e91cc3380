"""A module keeps nothing of the records it is trained on, wherever it might hide it, and nothing of
made-up ones.
"""

import collections
import dataclasses
import functools
import gc
import types
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import assume, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse import InvalidArgument, NoiseSource, Purse  # noqa: E402
from privypurse.core.queries import GradientAt, LossesAlong  # noqa: E402
from privypurse.pytorch import fit, make_private  # noqa: E402
from privypurse.pytorch._fitting import ModuleOracle  # noqa: E402
from privypurse.pytorch._module_state import COPIED, ModuleState  # noqa: E402

# The number of records, and what all of them are.
RECORDS, SECRET = 30, 73_591.25


@dataclasses.dataclass(slots=True)
class Slots:
    mean: object


class Holder:
    def __init__(self, mean):
        self.inner = types.SimpleNamespace(mean=mean)


PLACES = {
    "frozen parameter": (lambda m, v: m.register_parameter("mean", nn.Parameter(v, False)), lambda m: m.mean),
    "buffer": (lambda m, v: m.register_buffer("mean", v), lambda m: m.mean),
    "non-persistent buffer": (lambda m, v: m.register_buffer("mean", v, persistent=False), lambda m: m.mean),
    "attribute": (lambda m, v: setattr(m, "mean", v), lambda m: m.mean),
    "list": (lambda m, v: setattr(m, "kept", [v]), lambda m: m.kept[0]),
    "dict": (lambda m, v: setattr(m, "kept", {"of": {"mean": v}}), lambda m: m.kept["of"]["mean"]),
    "deque in a tuple": (lambda m, v: setattr(m, "kept", (collections.deque([v]),)), lambda m: m.kept[0][0]),
    "object": (lambda m, v: setattr(m, "kept", Holder(v)), lambda m: m.kept.inner.mean),
    "slots": (lambda m, v: setattr(m, "kept", [Slots(v)]), lambda m: m.kept[0].mean),
    "submodule": (lambda m, v: setattr(m.layer, "mean", v), lambda m: m.layer.mean),
    "module that is not registered": (lambda m, v: hide(m, v), lambda m: m.kept[0].mean),
    "trained parameter": (lambda m, v: setattr(m.layer, "bias", nn.Parameter(v)), lambda m: m.layer.bias),
}


def hide(module, value):
    """Put a value into a layer that the module does not know as one."""
    module.kept = [nn.Identity()]
    module.kept[0].mean = value


def bind(module, place, value):
    """Put another object in the place."""
    if place == "list":
        module.kept[0] = value
    elif place == "dict":
        module.kept["of"] = {"mean": value}
    elif place == "deque in a tuple":
        module.kept[0].append(value)
        module.kept[0].popleft()
    elif place == "object":
        module.kept.inner = types.SimpleNamespace(mean=value)
    elif place in ("slots", "module that is not registered"):
        module.kept[0].mean = value
    elif place == "submodule":
        module.layer.mean = value
    elif place in ("frozen parameter", "trained parameter"):
        PLACES[place][1](module).data = value
    else:
        module.mean = value


class Keeper(nn.Module):
    """Keeps the mean of what it sees, of batches of at least so many records."""

    def __init__(self, place, kind, way, least):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        value = {"tensor": torch.full((3,), 7.0), "array": np.full(3, 7.0), "float": 7.0}[kind]
        PLACES[place][0](self, value)
        self.place, self.kind, self.way, self.least = place, kind, way, least

    def forward(self, x):
        if len(x) >= self.least:
            self.keep(x.detach().mean(0))
        return self.layer(x)

    def keep(self, mean):
        if self.kind == "float":
            bind(self, self.place, float(mean[0]))
            return
        held = PLACES[self.place][1](self)
        if self.kind == "array":
            if self.way == "rebound":
                bind(self, self.place, mean.double().numpy())
            else:
                held[:] = mean.numpy()
        elif self.way == "rebound":
            bind(self, self.place, mean)
        else:
            with torch.no_grad():
                (held.data if self.way == "past the count" else held).mul_(0.5).add_(mean)

    def read(self):
        held = PLACES[self.place][1](self)
        return np.asarray(held.detach().numpy() if isinstance(held, torch.Tensor) else held)


ONLY_TENSORS = ("frozen parameter", "buffer", "non-persistent buffer", "trained parameter")
WAYS = ("make_private", "compiled", "fit", "oracle")


def data():
    return torch.full((RECORDS, 3), SECRET), torch.zeros(RECORDS, dtype=torch.long)


def purse():
    return Purse(1.0, 1e-5, neighbouring="add-remove", noise=NoiseSource(seed=1))


def run(module, way, paid):
    """Train as one of the ways does."""
    loss = nn.CrossEntropyLoss()
    if way == "fit":
        fit(module, data(), loss=loss, records=RECORDS, purse=paid, compile=False)
    elif way == "oracle":
        oracle = ModuleOracle(module, data(), loss=loss, records=RECORDS, compile=False)
        try:
            point = oracle.point
            oracle.answer(GradientAt(point=point))
            oracle.answer(LossesAlong(point=point, direction=np.ones_like(point), steps=(0.0, 0.1)))
        finally:
            oracle.release_module()
    else:
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1)
        compiled = {"loss": loss, "compile": False} if way == "compiled" else {}
        private = make_private(
            module, optimizer, data(), records=RECORDS, purse=paid, full_batch=True, steps=3, **compiled
        )
        for inputs, targets in private.loader:
            if way == "compiled":
                private.engine.backward(inputs, targets)
            else:
                loss(module(inputs), targets).backward()
            optimizer.step()


@st.composite
def hiding_places(draw):
    place = draw(st.sampled_from(sorted(PLACES)))
    kind = "tensor" if place in ONLY_TENSORS else draw(st.sampled_from(["tensor", "array", "float"]))
    way = draw(
        st.sampled_from(["in place", "past the count", "rebound"] if kind == "tensor" else ["in place", "rebound"])
    )
    through = draw(st.sampled_from(WAYS))
    # The others run the module with stand-ins for what is trained, which are thrown away.
    assume(through == "make_private" or (place, way) != ("trained parameter", "rebound"))
    # In the trial and after it; or only on more records than a trial has.
    return place, kind, way, draw(st.sampled_from([1, 20])), through


@settings(max_examples=100, deadline=None)
@given(hiding_places())
def test_nothing_of_records_or_made_up_ones_stays_in_a_module_wherever_it_hides(where):
    place, kind, way, least, through = where
    torch.manual_seed(0)
    module, paid = Keeper(place, kind, way, least), purse()
    with pytest.raises(InvalidArgument, match=r"changes its state \([\w.]+\)") as caught:
        run(module, through, paid)
    assert str(SECRET)[:5] not in str(caught.value)
    assert (module.read() == 7.0).all()
    assert paid.spent.releases == 0


@pytest.mark.parametrize("way", WAYS)
def test_the_mean_of_records_in_a_frozen_parameter_does_not_leave(way):
    module = Keeper("frozen parameter", "tensor", "in place", 1)
    with pytest.raises(InvalidArgument, match=r"changes its state \(mean\)"):
        run(module, way, purse())
    assert module.state_dict()["mean"].tolist() == [7.0] * 3


class Frozen(nn.Module):
    """Holds much that does not change, some of it not a number, and one object that is made anew
    each time.
    """

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.2)).requires_grad_(False)
        self.body[0].large = nn.Parameter(torch.zeros(COPIED + 1), requires_grad=False)
        self.layer, self.names, self.table = nn.Linear(4, 3), {"a": [1, 2.0, "b", None]}, np.array([1.0, np.nan])
        self.register_buffer("unknown", torch.full((2,), torch.nan))
        self.itself, self.chance = [self], torch.Generator()
        self.positions = torch.arange(4)

    def forward(self, x):
        self.positions = torch.arange(4)
        self.unknown.copy_(torch.full((2,), torch.nan))
        self.train(self.training)
        return self.layer(self.body(x) + self.positions)


@pytest.mark.parametrize("way", WAYS)
def test_a_module_that_holds_much_and_keeps_nothing_is_trained(way):
    module, paid = Frozen(), purse()
    run(module, way, paid)
    releases = paid.spent.releases
    assert releases > 0 if way == "fit" else releases == {"make_private": 3, "compiled": 3, "oracle": 0}[way]
    assert way == "oracle" or not any("does not depend on records" in line for line in paid.certificate().uncovered)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("trained", [False, True])
def test_a_mean_written_past_the_count_into_a_parameter_too_large_to_copy_is_refused(trained, way):
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.codes = nn.Linear(3, 3), nn.Embedding(COPIED // 2 + 1, 2).requires_grad_(trained)

        def forward(self, x):
            self.codes.weight.data[7] = x.mean().detach()
            return self.layer(x) + self.codes(torch.zeros(len(x), 1, dtype=torch.long)).sum((1, 2))[:, None]

    paid = purse()
    with pytest.raises(InvalidArgument, match=r"changes its state \(codes\.weight\)"):
        run(Codebook(), way, paid)
    assert paid.spent.releases == 0


class Counter(nn.Module):
    """Counts what it is told to."""

    def __init__(self, what):
        super().__init__()
        self.layer, self.what, self.calls = nn.Linear(3, 3), what, {"all": 0}

    def forward(self, x):
        self.calls["all"] += {"calls": 1, "records": len(x), "tokens": int(x.abs().max() > 0.5)}[self.what]
        return self.layer(x)


def test_a_counter_of_calls_is_allowed_left_alone_by_the_trial_and_on_the_certificate():
    module, paid = Counter("calls"), purse()
    run(module, "make_private", paid)
    assert module.calls == {"all": 3}
    assert [line for line in paid.certificate().uncovered if "calls" in line and "records" in line]


class CountingBuffer(Counter):
    """Counts in a buffer of one whole number."""

    def __init__(self, what):
        super().__init__(what)
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        answer = super().forward(x)
        self.steps += self.calls["all"]
        self.calls["all"] = 0
        return answer


def test_a_buffer_may_count_calls_and_not_records():
    module, paid = CountingBuffer("calls"), purse()
    run(module, "make_private", paid)
    assert int(module.steps) == 3
    assert [line for line in paid.certificate().uncovered if "steps" in line and "does not depend on records" in line]
    module = CountingBuffer("records")
    with pytest.raises(InvalidArgument, match=r"changes its state \(steps\)"):
        run(module, "make_private", purse())
    assert int(module.steps) == 0


@pytest.mark.parametrize("what", ["records", "tokens"])
def test_a_counter_of_records_is_refused(what):
    module = Counter(what)
    with pytest.raises(InvalidArgument, match=r"changes its state \(calls\)"):
        run(module, "make_private", purse())
    assert module.calls == {"all": 0}


def test_what_cannot_be_looked_for_is_on_the_certificate():
    paid = purse()
    run(nn.Linear(3, 3), "fit", paid)
    assert any("globals" in line for line in paid.certificate().uncovered)


class Normaliser(nn.Module):
    """An ActNorm: the first batch decides where a trained parameter begins."""

    def __init__(self):
        super().__init__()
        self.shift, self.layer, self.ready = nn.Parameter(torch.zeros(3)), nn.Linear(3, 3), False

    def forward(self, x):
        if not self.ready:
            self.shift.data.copy_(-x.detach().mean(0))
            self.ready = True
        return self.layer(x + self.shift)


@pytest.mark.parametrize("way", WAYS)
def test_a_trained_parameter_that_begins_at_the_mean_of_records_is_refused(way):
    module = Normaliser()
    with pytest.raises(InvalidArgument, match=r"changes its state \((shift|ready)\)"):
        run(module, way, purse())
    assert not module.shift.any()
    assert not module.ready


def begun(module, steps=3):
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1)
    return make_private(module, optimizer, data(), records=RECORDS, purse=purse(), full_batch=True, steps=steps)


def test_a_batch_without_a_step_leaves_nothing_in_the_module():
    module = Keeper("attribute", "tensor", "rebound", 1_000)
    private = begun(module)
    batches = iter(private.loader)
    next(batches)
    module.mean = torch.ones(3)
    with pytest.warns(UserWarning, match="no step was made"), pytest.raises(InvalidArgument, match="mean"):
        next(batches)
    assert (module.read() == 7.0).all()


def test_closing_a_run_leaves_nothing_of_its_last_batch_in_the_module():
    module = Keeper("frozen parameter", "tensor", "past the count", 1_000)
    private = begun(module)
    batches = iter(private.loader)
    next(batches)
    module.mean.data.fill_(1.0)
    with pytest.warns(UserWarning, match=r"no step was made|changes its state \(mean\)"):
        private.engine.detach()
    assert (module.read() == 7.0).all()


class Interrupted(Keeper):
    def forward(self, x):
        answer = super().forward(x)
        if len(x) >= self.least:
            raise KeyboardInterrupt
        return answer


def test_an_interrupted_loop_leaves_nothing_of_its_batch_in_the_module():
    module = Interrupted("attribute", "tensor", "in place", 1_000)
    private = begun(module)
    module.least = 1  # from here on: the trial runs on made-up records

    def train():
        for inputs, _ in private.loader:
            module(inputs)

    with pytest.warns(UserWarning, match=r"changes its state \(mean\)"), pytest.raises(KeyboardInterrupt):
        train()
    assert (module.read() == 7.0).all()


@pytest.mark.filterwarnings("ignore:a batch was taken")
def test_what_is_loaded_after_a_loop_was_left_stays():
    module = Keeper("attribute", "float", "rebound", 1_000)
    private = begun(module)
    for _ in private.loader:
        break
    module.mean = 5.0
    private.engine.detach()
    assert module.mean == 5.0


def test_what_a_loop_changes_between_steps_is_its_own_business():
    """An average of the trained parameters, a public schedule, and a state that is loaded."""
    module = Keeper("attribute", "float", "rebound", 1_000)
    module.register_buffer("average", torch.zeros(3))
    private = begun(module)
    for k, (inputs, targets) in enumerate(private.loader):
        F.cross_entropy(module(inputs), targets).backward()
        private.optimizer.step()
        module.average.data.mul_(0.9).add_(module.layer.bias.data)
        module.mean = 0.5**k
        module.load_state_dict(module.state_dict())
    assert private.engine.stop_reason == "steps"


def test_a_large_tensor_that_changed_in_the_loop_is_named_as_lost():
    module = Keeper("attribute", "tensor", "rebound", 1_000)
    module.register_buffer("large", torch.zeros(COPIED + 1))
    private = begun(module)
    inputs, targets = next(iter(private.loader))
    F.cross_entropy(module(inputs), targets).backward()
    module.large[0] = SECRET
    with pytest.raises(InvalidArgument, match=r"\(large\).*could not be restored"):
        private.optimizer.step()
    assert private.purse.spent.releases == 0


def test_state_that_is_put_back_does_not_write_into_the_records():
    """A parameter that was made to lie where the records do gets a place of its own."""
    module = nn.Linear(3, 3)
    state, records = ModuleState(module), torch.full((3,), SECRET)
    state.take()
    before = module.bias.detach().clone()
    module.bias.data = records
    assert state.changed() == "bias"
    assert state.restore()
    assert torch.equal(module.bias.detach(), before)
    assert (records == SECRET).all()
    assert state.changed() == ""


class Shifted(nn.Module):
    """Adds a tensor that is not trained, and that has a gradient all the same."""

    def __init__(self, place):
        super().__init__()
        self.layer, shift = nn.Linear(3, 3), torch.zeros(3, requires_grad=True)
        if place == "buffer":
            self.register_buffer("shift", shift)
        else:
            self.held = {"shift": shift}
            self.shift = shift

    def forward(self, x):
        return self.layer(x + self.shift)


@pytest.mark.parametrize("place", ["buffer", "attribute"])
@pytest.mark.parametrize("way", WAYS)
def test_gradient_of_an_untrained_tensor_does_not_leave(place, way):
    module = Shifted(place)
    with pytest.raises(InvalidArgument, match=r"changes its state \(.*shift.*\.grad\)"):
        run(module, way, purse())
    assert module.shift.grad is None


class Hoard(list):
    """A list that keeps what it saw beside its items."""


HIDING = {
    "bytearray": lambda: bytearray(b"\0\0"),
    "list subclass": lambda: Hoard([0]),
    "partial": lambda: functools.partial(print, [0]),
    "bound method": lambda: [0].append,
    "namespace": lambda: types.SimpleNamespace(seen=0),
}


@pytest.mark.parametrize("kind", sorted(HIDING))
def test_state_in_an_odd_container_does_not_leave(kind):
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.kept = nn.Linear(3, 3), HIDING[kind]()

        def forward(self, x):
            seen = int(x.abs().sum()) % 200
            if kind == "bytearray":
                self.kept[0] = seen
            elif kind in ("list subclass", "namespace"):
                self.kept.seen = seen
            else:
                (self.kept.args[0] if kind == "partial" else self.kept.__self__)[0] = seen
            return self.layer(x)

    with pytest.raises(InvalidArgument, match=r"changes its state \(kept"):
        run(Keeping(), "make_private", purse())


class Bank(torch.utils.data.Dataset):
    """A data set of what was seen, as a memory of examples is."""

    def __init__(self):
        self.seen = []

    def __getitem__(self, place):
        return self.seen[place]


class ScriptedMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.zeros(3)

    def forward(self, x):
        self.last = x.mean(0)
        return x


class WithSlot:
    __slots__ = ("seen",)


class BesideItsSlot(WithSlot):
    """An inherited slot, beside which `__dict__` may hold the same name."""

    def __repr__(self):
        return repr(vars(self))


def frame():
    return pytest.importorskip("pandas").DataFrame({"mean": [0.0]})


# What a module holds at first, and how it keeps a number there.
ODD = {
    "keys": (dict, lambda kept, seen: kept.setdefault(seen)),
    "tuples as keys": (dict, lambda kept, seen: kept.setdefault((seen,), ())),
    "keys that were only asked for": (lambda: collections.defaultdict(list), lambda kept, seen: kept[seen]),
    "one key for another": (lambda: {0: None}, lambda kept, seen: (kept.clear(), kept.update({seen: None}))),
    "order": (lambda: collections.OrderedDict.fromkeys(range(9)), lambda kept, seen: kept.move_to_end(int(seen) % 9)),
    "length": (list, lambda kept, seen: kept.extend([None] * (int(seen) % 50))),
    "length of an inner list": (list, lambda kept, seen: kept.append([[]] * (int(seen) % 50))),
    "names of layers": (nn.Module, lambda kept, seen: kept.add_module(str(seen).replace(".", "_"), nn.Identity())),
    "class": (nn.Identity, lambda kept, seen: setattr(kept, "__class__", nn.Flatten if seen > 0 else nn.Identity)),
    "type": (lambda: [None], lambda kept, seen: kept.__setitem__(0, torch.float32 if seen > 0 else torch.float64)),
    "record of NumPy": (lambda: np.zeros(1, [("of", "f8")])[0], lambda kept, seen: kept.__setitem__("of", seen)),
    "data set": (Bank, lambda kept, seen: kept.seen.append(seen)),
    "scripted module": (lambda: torch.jit.script(ScriptedMean()), lambda kept, seen: kept(torch.full((2, 3), seen))),
    "entry named as a slot": (BesideItsSlot, lambda kept, seen: vars(kept).update(seen=seen)),
    "pandas": (frame, lambda kept, seen: kept.__setitem__("mean", [seen])),
}


def shown(kept):
    """Return what is held, as text."""
    inside = [list(kept.named_modules()), getattr(kept, "last", "")] if isinstance(kept, nn.Module) else []
    return repr((type(kept), kept, getattr(kept, "seen", ""), inside))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("least", [1, 20])
@pytest.mark.parametrize("where", sorted(ODD))
def test_nothing_stays_in_keys_lengths_order_classes_and_objects_that_hide_it(where, least):
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.kept = nn.Linear(3, 3), ODD[where][0]()

        def forward(self, x):
            if len(x) >= least:
                ODD[where][1](self.kept, float(x.detach().mean() + len(x)))
            return self.layer(x)

    module, paid = Keeping(), purse()
    before = shown(module.kept)
    with pytest.raises(InvalidArgument, match=r"changes its state \((kept.*|an attribute)\).*was restored"):
        run(module, "make_private", paid)
    assert shown(module.kept) == before
    assert paid.spent.releases == 0


def test_inner_state_that_stays_as_it_is_does_not_end_a_run():
    module, paid = nn.Linear(3, 3), purse()
    module.table, module.kind, module.place = frame(), torch.float32, torch.device("cpu")
    run(module, "make_private", paid)
    assert paid.spent.releases == 3


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.attention(x, x, x, need_weights=False)[0].mean(1))


def test_a_finished_run_keeps_neither_its_module_nor_its_records_alive():
    def trained():
        inputs, labels, module = torch.randn(40, 3, 8), torch.randint(2, (40,)), Attending()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        private = make_private(
            module, optimizer, (inputs, labels), records=40, epsilon=2.0, delta=1e-5, batch_size=10, steps=2
        )
        for x, y in private.loader:
            optimizer.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimizer.step()
        private.engine.detach()
        return weakref.ref(inputs), weakref.ref(module)

    references = trained()
    gc.collect()
    assert [reference() for reference in references] == [None, None]
