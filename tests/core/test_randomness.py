"""Noise sources: private by default, repeatable only when marked, never repeated by accident."""

import copy
import json
import math
import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from privypurse.core._errors import InvalidArgument, SharedAcrossProcesses
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource

# A few words come from the operating system, more from a cipher.
COUNTS = (4, 1_000)


def draws_of_a_fork(source, count):
    """Draw in a forked child and send the words back."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, source.words(count).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return np.frombuffer(pipe.read(), dtype=np.uint64)


def words_in_a_new_process(count):
    return NoiseSource().words(count).tolist()


@pytest.mark.parametrize("count", COUNTS)
def test_forks_never_repeat_the_parents_noise(count):
    source = NoiseSource()
    batches = [source.words(count), *(draws_of_a_fork(source, count) for _ in range(2)), source.words(count)]
    assert len(set(np.concatenate(batches).tolist())) == 4 * count


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_never_draw_the_same_noise(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        words = np.concatenate(pool.map(words_in_a_new_process, COUNTS * 10, chunksize=1)).tolist()
    assert len(set(words)) == 10 * sum(COUNTS)


@pytest.mark.parametrize("count", COUNTS)
def test_threads_never_draw_the_same_noise(count):
    source = NoiseSource()
    with ThreadPoolExecutor(4) as pool:
        words = np.concatenate(list(pool.map(lambda _: source.words(count), range(100))))
    assert len(set(words.tolist())) == 100 * count


def test_many_words_are_the_key_stream_of_one_key_from_the_operating_system(monkeypatch):
    """RFC 8439, appendix A.1, vectors 1 and 2: key and nonce of zeros, counters 0 and 1."""
    asked = []
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or bytes(size))
    stream = NoiseSource().words(1_000).tobytes()
    assert asked == [32]
    assert stream[:16].hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    assert stream[64:80].hex() == "9f07e7be5551387a98ba977c732d080d"


def test_copies_of_a_private_source_are_as_good_as_new():
    source = NoiseSource()
    for twin in (copy.copy(source), copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
        assert not twin.simulation
        assert not set(twin.words(4).tolist()) & set(source.words(4).tolist())


def test_a_seeded_source_repeats_and_says_so():
    first, second = NoiseSource(seed=3), NoiseSource(seed=3)
    assert first.simulation
    assert "SIMULATION" in repr(first)
    assert first.normal((5,)).tolist() == second.normal((5,)).tolist()
    assert first.normal((5,)).tolist() != NoiseSource(seed=4).normal((5,)).tolist()


def test_a_seeded_source_refuses_to_repeat_itself_elsewhere():
    source = NoiseSource(seed=3)
    with pytest.raises(SharedAcrossProcesses, match="spawn"):
        pickle.dumps(source)
    assert copy.deepcopy(source) is source
    assert copy.copy(source) is source
    child = os.fork()
    if child == 0:
        try:
            source.words(1)
        except SharedAcrossProcesses:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_spawned_children_are_independent_and_repeatable():
    parent = NoiseSource(seed=1)
    children = parent.spawn(3)
    words = [tuple(source.words(4).tolist()) for source in [parent, *children]]
    assert len(set(words)) == 4
    assert all(child.simulation for child in children)
    again = [tuple(source.words(4).tolist()) for source in NoiseSource(seed=1).spawn(3)]
    assert again == words[1:]
    assert tuple(parent.spawn(1)[0].words(4).tolist()) not in words
    assert not any(child.simulation for child in NoiseSource().spawn(2))


def test_position_of_a_simulation_survives_json():
    source = NoiseSource(seed=5)
    source.normal((7,))
    saved = json.loads(json.dumps(source.state()))
    expected = source.normal((9,)).tolist()
    resumed = NoiseSource(seed=99)
    resumed.restore(saved)
    assert resumed.normal((9,)).tolist() == expected


def test_a_private_source_has_no_position():
    assert NoiseSource().state() is None
    NoiseSource().restore(None)
    with pytest.raises(InvalidArgument, match="same kind"):
        NoiseSource().restore(NoiseSource(seed=1).state())
    with pytest.raises(InvalidArgument, match="same kind"):
        NoiseSource(seed=1).restore(None)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7", [1]], ids=repr)
def test_wrong_seeds_are_refused(seed):
    with pytest.raises(InvalidArgument, match="seed must be"):
        NoiseSource(seed=seed)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (0,)])
def test_shapes(shape):
    source = NoiseSource(seed=0)
    for draw in (source.normal, source.uniform, source.exponential, source.gumbel):
        assert draw(shape).shape == shape
        assert draw(shape).dtype == np.float64


def test_extreme_words_give_finite_noise():
    class Extreme(NoiseSource):
        def words(self, count):
            return np.resize(np.array([0, 2**64 - 1], dtype=np.uint64), count)

    for draw in (Extreme().normal, Extreme().exponential, Extreme().gumbel):
        assert np.isfinite(draw((64,))).all()
    assert Extreme().uniform((64,)).min() > 0
    assert Extreme().uniform((64,)).max() < 1


class FirstWords(NoiseSource):
    """The given words first, and seeded ones after them."""

    def __init__(self, *given, seed=0):
        super().__init__(seed)
        self._given = list(given)

    def words(self, count):
        first, self._given = self._given[:count], self._given[count:]
        return np.concatenate([np.array(first, dtype=np.uint64), super().words(count - len(first))])


def test_tails_of_plain_noise_are_not_cut_where_a_delta_would_show_it():
    """A word of zeros gave 9.49 standard deviations at most, and 36.7 for exponential and Gumbel
    variables.
    """
    assert FirstWords(*[0] * 17).normal((1,))[0] == pytest.approx(math.sqrt(2 * 1025 * math.log(2)))
    assert FirstWords(*[0] * 16).exponential((1,))[0] == pytest.approx(1013 * math.log(2))
    assert FirstWords(2**64 - 1, *[0] * 15).gumbel((1,))[0] == pytest.approx(1013 * math.log(2))


class Unseeded(NoiseSource):
    """The given words without a seed, which takes the way of real noise."""

    def __init__(self, *given):
        super().__init__()
        self._given = np.array(given, dtype=np.uint64)

    def words(self, count):
        first, self._given = self._given[:count], self._given[count:]
        assert len(first) == count
        return first


def test_many_normals_without_a_seed_are_at_the_given_length_and_direction():
    """Every quarter of the circle, its borders, and lengths next to zero, to one and to the limit of the finer steps."""
    words = np.random.Philox(5).random_raw(2_000)
    words[:6] = [2**34, 2**34 - 1, 2**20, 2**10, 2**63, 2**64 - 1]
    words[1_000:1_008] = [k + sign for k in (0, 2**63, 2**64 - 4, 2**63 - 4) for sign in (0, 3)]
    drawn = Unseeded(*words).normal((2_000,)).reshape(2, 1_000)
    lengths, turns = words[:1_000], words[1_000:]
    uniform = lengths * 2.0**-64 + 2.0**-65
    # Steps of 2^-52 from 2^-30 on.
    radius = np.sqrt(-2 * np.log(uniform))
    assert np.hypot(*drawn) == pytest.approx(radius, rel=1e-15, abs=1e-7)
    assert np.hypot(*drawn)[1:4] == pytest.approx(radius[1:4], rel=1e-15)
    angle = math.pi / 4 + turns.view(np.int64) * (math.pi / 4 * 2.0**-63)
    signs = 1 - 2.0 * (turns & np.uint64(1)), 1 - 2.0 * (turns >> np.uint64(1) & np.uint64(1))
    unit = drawn / np.hypot(*drawn)
    assert unit[0] == pytest.approx(signs[0] * np.cos(angle), abs=5e-16)
    assert unit[1] == pytest.approx(signs[1] * np.sin(angle), abs=5e-16)


def test_many_normals_without_a_seed_keep_the_whole_tail():
    drawn = Unseeded(*[0] * 512, *[0] * (256 * 15)).normal((512,)).reshape(2, 256)
    assert np.hypot(*drawn) == pytest.approx(math.sqrt(2 * 1025 * math.log(2)))


@pytest.mark.parametrize("count", [255, 256, 257, 32_768, 32_769, 70_001])
def test_any_number_of_normals(count):
    drawn = NoiseSource().normal((count,))
    assert drawn.shape == (count,)
    assert len(set(drawn.tolist())) == count


# A first word, what is drawn from it, and the probability of more than that, in steps of the word.
TAILS = {
    "normal": (lambda step: [step, 0], NoiseSource.normal, lambda x: math.exp(-x * x / 2) * 2.0**64),
    "exponential": (lambda step: [step << 12], NoiseSource.exponential, lambda x: math.exp(-x) * 2.0**52),
    "gumbel": (
        lambda step: [2**64 - 1 - (step << 12)],
        NoiseSource.gumbel,
        lambda x: -math.expm1(-math.exp(-x)) * 2.0**52,
    ),
}


@pytest.mark.statistical
@pytest.mark.parametrize("step", [0, 1, 1_023])
@pytest.mark.parametrize(("words", "draw", "beyond"), TAILS.values(), ids=TAILS)
def test_further_bits_spread_a_word_next_to_the_end_over_its_step(words, draw, beyond, step):
    places = [beyond(float(draw(FirstWords(*words(step), seed=seed), (1,))[0])) - step for seed in range(400)]
    assert stats.kstest(places, "uniform").pvalue > 1e-4


def test_other_words_are_as_they_were():
    words = np.array([2**10, 2**22 + 5, 2**40, 2**63, 2**64 - 2**23], dtype=np.uint64)
    uniform = ((words >> np.uint64(12)) + 0.5) * 2.0**-52
    assert FirstWords(*words).uniform((5,))[1:].tolist() == uniform[1:].tolist()
    assert FirstWords(*words).exponential((5,))[1:].tolist() == (-np.log(uniform[1:])).tolist()
    radius, angle = np.sqrt(-2 * np.log(words * 2.0**-64 + 2.0**-65)), 2 * np.pi * (words * 2.0**-64)
    assert FirstWords(*words, *words).normal((10,))[::2].tolist() == (radius * np.cos(angle)).tolist()


@pytest.mark.parametrize("spelling", ["add-remove", "ADD_REMOVE", " Add-Remove ", Neighbouring.ADD_REMOVE])
def test_relations_are_read_in_any_spelling(spelling):
    assert Neighbouring.parse(spelling) is Neighbouring.ADD_REMOVE


@pytest.mark.parametrize("spelling", ["", "swap", None, 1, True])
def test_unknown_relations_are_refused(spelling):
    with pytest.raises(InvalidArgument, match="neighbouring must be 'add-remove' or 'replace-one'"):
        Neighbouring.parse(spelling)
