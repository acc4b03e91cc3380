"""Sources of exact noise: they stay what they are, the purse takes them by name, and the
certificate says which it was.
"""

import importlib.util
import pickle

import numpy as np
import pytest

from privypurse import Gaussian, NoiseSource, Norm, Purse, RdpFilter, Sensitive, ZcdpFilter
from privypurse.core import _randomness as randomness
from privypurse.core._errors import InvalidArgument
from privypurse.core.charges import GaussianCharge
from privypurse.mechanisms._non_private import NonPrivateAnswer
from privypurse.mechanisms._selection import ExponentialSelection
from privypurse.purse._certificate import INEXACT

EXACT = {"secure": True, "discrete": "discrete"}
if importlib.util.find_spec("opendp") is not None:
    EXACT["opendp"] = "opendp"
SCORES = Sensitive([0.0, 1.0], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)
BOX = Sensitive([1.0, 2.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)


def test_exact_is_the_default_but_for_simulations():
    for noise in (
        NoiseSource(),
        NoiseSource.parse(None),
        NoiseSource.parse("auto"),
        pickle.loads(pickle.dumps(NoiseSource())),
    ):
        assert noise.secure
        assert not noise.strict
        assert noise.sampler == "secure"
    assert not NoiseSource(seed=7).secure
    for noise in (NoiseSource(secure=False), NoiseSource.parse("plain")):
        assert not noise.secure
        assert noise.sampler == "plain"
        assert repr(noise) == "<NoiseSource: operating-system entropy>"


class FloatingPoint:
    """A mechanism of somebody else's, that knows nothing of exact noise."""

    def charge(self, box, neighbouring):
        return GaussianCharge(50.0)

    def draw(self, box, neighbouring, noise):
        assert not noise.secure, "it would have been called exact"
        return noise.normal(box.shape)


def test_what_has_no_exact_way_is_drawn_in_floating_point_and_put_on_record():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    purse.release(BOX, Gaussian(50.0))
    assert purse.certificate().noise == "operating-system entropy, exact arithmetic"
    assert not any("floating" in line for line in purse.certificate().uncovered)
    purse.release(BOX, FloatingPoint())
    said = "operating-system entropy, exact arithmetic for 1 of 2 releases, floating point for others"
    assert purse.certificate().noise == said
    assert any("floating" in line for line in purse.certificate().uncovered)


def test_what_has_no_exact_way_is_refused_where_it_was_asked_for():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise="secure")
    with pytest.raises(InvalidArgument, match="FloatingPoint does not declare exact noise"):
        purse.release(BOX, FloatingPoint())
    assert purse.spent.releases == 0


@pytest.mark.parametrize("exact_too", [True, False])
def test_a_block_is_exact_if_all_of_it_is(exact_too, tmp_path):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    with purse.reserve(10):
        purse.release(BOX, Gaussian(50.0))
        purse.release(BOX, Gaussian(50.0) if exact_too else FloatingPoint())
    said = "operating-system entropy, exact arithmetic" if exact_too else "operating-system entropy, floating point"
    assert Purse.reopen(tmp_path / "budget.db").certificate().noise == said


def test_a_block_that_was_never_settled_is_not_called_exact(tmp_path):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    block = purse.reserve(10)
    block.__enter__()
    purse.release(BOX, Gaussian(50.0))
    certificate = Purse.reopen(tmp_path / "budget.db").certificate()
    assert certificate.noise == "operating-system entropy, unknown for a block that was not settled"
    assert INEXACT in certificate.uncovered
    block.__exit__(None, None, None)
    assert "exact" in Purse.reopen(tmp_path / "budget.db").certificate().noise


@pytest.mark.parametrize(
    ("mechanisms", "said"),
    [
        ([Gaussian(50.0)], "exact arithmetic for 1 of 1 releases"),
        ([FloatingPoint()], "floating point"),
        ([Gaussian(50.0), FloatingPoint()], "exact arithmetic for 1 of 2 releases, floating point for others"),
    ],
    ids=["exact", "floating", "both"],
)
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_block_that_was_never_settled_is_not_called_floating_point_either(mechanisms, said, blocks, tmp_path):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    for mechanism in mechanisms:
        purse.release(BOX, mechanism)
    opened = []
    for _ in range(blocks):
        other = Purse.reopen(tmp_path / "budget.db")
        opened.append(other.reserve(10))
        opened[-1].__enter__()
        other.release(BOX, Gaussian(50.0))
    certificate = Purse.reopen(tmp_path / "budget.db").certificate()
    unknown = "a block that was" if blocks == 1 else "2 blocks that were"
    assert certificate.unsettled == blocks
    assert certificate.noise == f"operating-system entropy, {said}, unknown for {unknown} not settled"
    assert INEXACT in certificate.uncovered
    for block in opened:
        block.__exit__(None, None, None)


def test_a_ledger_that_says_only_that_noise_was_exact_is_read(monkeypatch):
    """As an earlier form has it, without the sampler's name."""
    pay = Purse._pay

    def pay_as_before(self, charge, other, what, *, exact=None, **_):
        pay(self, charge, other, what, exact=exact is not None)

    monkeypatch.setattr(Purse, "_pay", pay_as_before)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    purse.release(BOX, Gaussian(50.0))
    assert purse.certificate().noise == "operating-system entropy, exact arithmetic"
    purse.release(BOX, FloatingPoint())
    assert "exact arithmetic for 1 of 2 releases, floating point" in purse.certificate().noise


def test_nothing_released_is_nothing_exact():
    assert Purse(1.0, 1e-6, neighbouring="add-remove").certificate().noise == "operating-system entropy"


def test_a_simulation_of_exact_noise_says_both():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=7, secure=True))
    purse.release(BOX, Gaussian(50.0))
    assert purse.certificate().noise == "seeded (SIMULATION, not private), exact arithmetic"
    assert not purse.certificate().private


def test_noise_too_large_for_a_lattice_falls_back():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    purse.release(BOX, Gaussian(1e30))
    assert purse.certificate().noise == "operating-system entropy, floating point"


class DrawsAnew(Gaussian):
    """A Gaussian with a way of its own to draw, which inherits what its parent says of exact noise."""

    def draw(self, box, neighbouring, noise):
        assert not noise.secure
        return noise.normal(box.shape)


def test_what_a_parent_says_of_its_own_draw_does_not_hold_for_another():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    purse.release(BOX, DrawsAnew(50.0))
    assert purse.certificate().noise == "operating-system entropy, floating point"
    strict = Purse(1.0, 1e-6, neighbouring="add-remove", noise="secure")
    with pytest.raises(InvalidArgument, match="DrawsAnew does not declare exact noise"):
        strict.release(BOX, DrawsAnew(50.0))
    assert strict.spent.releases == 0


def test_an_answer_that_is_not_private_is_not_called_exact():
    purse = Purse.not_private()
    purse.release(BOX, NonPrivateAnswer("a test", lambda value, noise: value + noise.normal(value.shape)))
    assert purse.certificate().noise == "operating-system entropy, floating point"


@pytest.mark.parametrize("name", EXACT)
def test_exact_sources_stay_exact_when_they_travel(name):
    noise = NoiseSource(secure=EXACT[name])
    for kept in (
        noise,
        *noise.spawn(2),
        pickle.loads(pickle.dumps(noise)),
        NoiseSource.parse(name),
        NoiseSource.parse(noise),
    ):
        assert kept.secure
        assert kept.sampler == name
        assert not kept.simulation
        assert repr(kept).startswith("<NoiseSource: operating-system entropy, exact arithmetic")
    assert NoiseSource.parse(noise) is noise


@pytest.mark.parametrize("name", ["secure", "discrete"])
def test_a_seeded_exact_source_is_a_simulation_of_one(name):
    noise = NoiseSource(seed=7, secure=EXACT[name])
    assert "SIMULATION" in repr(noise)
    assert "exact arithmetic" in repr(noise)
    assert all(child.sampler == name and child.simulation for child in noise.spawn(2))
    before = noise.state()
    first = Gaussian(1.0).draw(BOX, Purse(1.0, 1e-6, neighbouring="add-remove").neighbouring, noise).tolist()
    noise.restore(before)
    assert noise.sampler == name
    assert Gaussian(1.0).draw(BOX, Purse(1.0, 1e-6, neighbouring="add-remove").neighbouring, noise).tolist() == first


@pytest.mark.parametrize("secure", ["plain", "secure", "yes", "", 1, 2.0], ids=repr)
def test_wrong_kinds_are_refused(secure):
    with pytest.raises(InvalidArgument, match="secure must be"):
        NoiseSource(secure=secure)


@pytest.mark.parametrize("noise", ["", "Secure", "exact", 7, True, [1]], ids=repr)
def test_wrong_names_are_refused_by_the_purse(noise):
    with pytest.raises(InvalidArgument, match="noise must be a NoiseSource, 'auto' or one of 'plain', 'secure'"):
        Purse(1.0, 1e-6, neighbouring="add-remove", noise=noise)


@pytest.mark.parametrize("name", EXACT)
def test_the_certificate_says_which_noise_it_was(name):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="zcdp", noise=name)
    released = purse.release(BOX, Gaussian(50.0)).value
    assert np.isfinite(released).all()
    assert (released * 2.0**30 % 1 == 0).all()
    entropy = "operating-system entropy" + (" and OpenDP's own" if name == "opendp" else "")
    law = "" if name == "secure" else " (discrete Gaussian)"
    assert purse.certificate().noise == f"{entropy}, exact arithmetic{law}"
    assert INEXACT not in purse.certificate().uncovered
    purse.release(SCORES, ExponentialSelection(0.01))
    assert purse.certificate().noise == f"{entropy}, exact arithmetic{law}"


@pytest.mark.parametrize("name", EXACT)
def test_a_selection_is_not_called_gaussian(name):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="zcdp", noise=name)
    purse.release(SCORES, ExponentialSelection(0.01))
    noise = purse.certificate().noise
    assert noise.endswith(", exact arithmetic")
    assert noise.startswith("operating-system entropy")


@pytest.mark.parametrize("name", ["secure", "plain"])
@pytest.mark.parametrize("filter", ["gdp", "rdp", "zcdp"])
def test_every_filter_takes_the_floored_gaussian(name, filter):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter=filter, noise=name)
    assert purse.noise.sampler == name
    assert purse.release(BOX, Gaussian(50.0)).value.shape == (2,)


@pytest.mark.parametrize("name", [name for name in EXACT if name != "secure"])
def test_only_the_zcdp_filter_takes_the_discrete_gaussian(name, tmp_path):
    for filter in ("gdp", "rdp"):
        with pytest.raises(InvalidArgument, match="has a price in zCDP only"):
            Purse(1.0, 1e-6, neighbouring="add-remove", filter=filter, noise=name, ledger=tmp_path / "budget.db")
    assert not (tmp_path / "budget.db").exists(), "refused before an account is opened"
    with pytest.raises(InvalidArgument, match="has a price in zCDP only"):
        Purse.with_filter(RdpFilter(1.0, 1e-6, "add-remove"), noise=NoiseSource(secure=name))
    assert Purse.with_filter(ZcdpFilter(1.0, 1e-6, "add-remove"), noise=name).noise.sampler == name
    assert Purse.not_private(noise=name).noise.sampler == name


def test_reopened_purses_take_the_name_too(tmp_path):
    Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    assert Purse.reopen(tmp_path / "budget.db", noise="secure").noise.secure
    with pytest.raises(InvalidArgument, match="has a price in zCDP only"):
        Purse.reopen(tmp_path / "budget.db", noise="discrete")
    purse = pickle.loads(pickle.dumps(Purse.reopen(tmp_path / "budget.db", noise="secure")))
    assert purse.noise.sampler == "secure"


def test_opendp_has_no_seed_and_must_be_there(monkeypatch):
    monkeypatch.setattr(randomness.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(InvalidArgument, match="seed must be None with secure='opendp'"):
        NoiseSource(seed=1, secure="opendp")
    monkeypatch.setattr(randomness.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match=r"pip install 'privypurse\[opendp\]'"):
        NoiseSource(secure="opendp")
