"""The noise that reaches the optimizer has the scale that was paid for, and no number of it is used
twice.
"""

import os
import random

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from privypurse import Gaussian, Neighbouring, NoiseSource, Norm, Purse  # noqa: E402
from privypurse.mechanisms._torch_gaussian import SensitiveTensor, TorchGaussian, keystream, to_normals  # noqa: E402
from privypurse.pytorch import make_private  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402

SEEDS = [11, 23, 47]
MULTIPLIER, CLIP, RECORDS, BATCH = 4.0, 1.5, 40, 8


def p_value(samples, scale):
    return stats.kstest(samples, stats.norm(scale=scale).cdf).pvalue


def assert_scale(samples, scale, chance=1e-4):
    """Accept the normal distribution at the right scale, reject it at 2/3 and 3/2."""
    assert p_value(samples, scale) > chance
    assert p_value(samples, 2 / 3 * scale) < 1e-9
    assert p_value(samples, 3 / 2 * scale) < 1e-9
    assert abs(samples.mean()) < 5 * scale / np.sqrt(samples.size), "its mean is zero"


def make(seed=None, relation="add-remove", full=False, loss=None, ledger=None, data=None, **changes):
    """A module of 2050 parameters, the noise of which is known beforehand."""
    module = nn.Linear(40, 50)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    purse = Purse(
        1e4,
        1e-2,
        neighbouring=relation,
        filter="gdp" if full else "rdp",
        noise=None if seed is None else NoiseSource(seed=seed),
        ledger=ledger,
    )
    data = (torch.ones(RECORDS, 40), torch.zeros(RECORDS, 50)) if data is None else data
    settings = {"records": RECORDS, "batch_size": BATCH, "steps": 10, "clip_norm": CLIP} | changes
    return make_private(
        module, optimizer, data, purse=purse, full_batch=full, schedule=ConstantNoise(MULTIPLIER), loss=loss, **settings
    )


def nothing(outputs, targets):
    """A loss without a gradient: what the optimizer gets is noise alone."""
    return (outputs * 0).sum()


def gradients(private, steps=10, how="hooks"):
    """Train, and return what the optimizer was given at each step."""
    module, optimizer, loader = private
    given = []
    while len(given) < steps:
        for inputs, targets in loader:
            optimizer.zero_grad()
            if how == "hooks":
                nothing(module(inputs), targets).backward()
            else:
                private.engine.backward(inputs, targets)
            optimizer.step()
            if next(module.parameters()).grad is None:
                continue  # the sample goes on in the next batch
            given.append(torch.cat([parameter.grad.flatten() for parameter in module.parameters()]).double().numpy())
            if len(given) == steps:
                break
    return np.array(given)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("full", [False, True], ids=["samples", "full batch"])
@pytest.mark.parametrize("how", ["hooks", "backward"])
def test_the_optimizer_is_given_the_noise_that_was_paid_for(seed, relation, full, how):
    """Multiplier 4 and clip norm 1.5 over the expected batch; twice that where a record is
    replaced.
    """
    private = make(seed, relation, full, loss=nothing if how == "backward" else None, compile=False)
    sensitivity = CLIP if relation == "add-remove" else 2 * CLIP
    samples = gradients(private, how=how).ravel()
    assert_scale(samples, MULTIPLIER * sensitivity / (RECORDS if full else BATCH))
    assert {step.noise_std for step in private.engine.trace.steps} == {MULTIPLIER * sensitivity}
    assert {step.charge["noise_multiplier"] for step in private.engine.trace.steps} == {MULTIPLIER}


@pytest.mark.statistical
@pytest.mark.parametrize("how", ["hooks", "backward"])
def test_noise_of_the_operating_system_has_the_same_scale(how):
    """Not seeded, so this fails by chance: once in ten million runs."""
    private = make(loss=nothing if how == "backward" else None, compile=False)
    assert_scale(gradients(private, how=how).ravel(), MULTIPLIER * CLIP / BATCH, chance=1e-7)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", SEEDS)
def test_noise_is_not_scaled_by_parts_of_a_sample(seed):
    samples = gradients(make(seed, accumulate=2, batch_size=BATCH // 2), steps=10).ravel()
    assert_scale(samples, MULTIPLIER * CLIP / BATCH)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", SEEDS)
def test_noise_is_independent_across_parameters_and_steps(seed):
    steps = gradients(make(seed, steps=300), steps=300)[:, ::41]  # 50 parameters, the last of them a bias
    off = np.corrcoef(steps, rowvar=False)[~np.eye(steps.shape[1], dtype=bool)]
    assert np.abs(off).max() < 5.5 / np.sqrt(300)
    assert (off**2).mean() * 300 == pytest.approx(1.0, abs=0.2)
    later = np.corrcoef(steps)[~np.eye(300, dtype=bool)]
    assert np.abs(later).max() < 6 / np.sqrt(steps.shape[1])
    assert np.unique(steps).size > steps.size - 10, "no number came twice, but for chance in single precision"


@pytest.mark.statistical
def test_noise_is_not_the_same_for_parameters_of_one_shape():
    """As where one key is used for all parameters."""
    module = nn.Sequential(*(nn.Linear(20, 20) for _ in range(5)))
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), lr=0.0),
        (torch.ones(9, 20), torch.zeros(9, 20)),
        records=9,
        full_batch=True,
        epsilon=1.0,
        delta=1e-2,
        steps=1,
        noise=NoiseSource(seed=3),
    )
    gradients(private, steps=1)
    drawn = np.array([layer.weight.grad.flatten().numpy() for layer in module])
    off = np.corrcoef(drawn)[~np.eye(5, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(400)


@pytest.mark.statistical
def test_runs_without_a_seed_differ_and_runs_with_one_do_not():
    first, second = gradients(make(), 3), gradients(make(), 3)
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 6.5 / np.sqrt(first.size)
    assert np.array_equal(gradients(make(5), 3), gradients(make(5), 3))
    assert abs(np.corrcoef(gradients(make(5), 3).ravel(), gradients(make(6), 3).ravel())[0, 1]) < 6.5 / np.sqrt(
        first.size
    )


def gradients_of_a_fork(private, steps):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pipe.write(gradients(private, steps).tobytes())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        drawn = np.frombuffer(pipe.read())
    os.waitpid(child, 0)
    return drawn


@pytest.mark.statistical
def test_forked_processes_draw_noise_of_their_own_and_each_pays(tmp_path):
    private = make(ledger=tmp_path / "budget.db", block=1)
    drawn = [gradients_of_a_fork(private, 2) for _ in range(3)] + [gradients(private, 2).ravel()]
    off = np.corrcoef(drawn)[~np.eye(4, dtype=bool)]
    assert np.abs(off).max() < 6.5 / np.sqrt(drawn[0].size)
    assert private.purse.spent.releases == 8


@pytest.mark.parametrize("how", ["hooks", "backward"])
def test_a_batch_without_records_gives_noise_and_is_paid_for(how):
    """One record at a rate of one in a thousand: all of these samples are empty."""
    data = (torch.ones(1, 40), torch.ones(1, 50))
    private = make(7, data=data, records=8_000, loss=nn.MSELoss(), compile=False)
    module, optimizer, loader = private
    given = []
    for inputs, targets in loader:
        assert private.engine._drawn.chunk == 0
        assert len(inputs) == 1
        if how == "hooks":
            nn.functional.mse_loss(module(inputs), targets).backward()
        else:
            private.engine.backward(inputs, targets)
        optimizer.step()
        given.append(module.weight.grad.flatten().double().numpy())
    assert private.engine.gradients == private.purse.spent.releases == len(given) == 10
    assert_scale(np.concatenate(given), MULTIPLIER * CLIP / BATCH)


def test_a_batch_without_records_needs_no_backward_pass():
    private = make(7, data=(torch.ones(1, 40), torch.ones(1, 50)), records=8_000)
    for _ in private.loader:
        private.optimizer.step()
        assert private.module.weight.grad.abs().min() > 0
    assert private.purse.spent.releases == 10


# The cipher that makes noise on devices.


def words_of(key, counter, nonce):
    """ChaCha20 by RFC 8439, one block, in whole numbers; the counter runs on into the first word of
    the nonce.
    """
    mask = 0xFFFFFFFF
    first = [
        0x61707865,
        0x3320646E,
        0x79622D32,
        0x6B206574,
        *key,
        counter & mask,
        nonce[0] ^ (counter >> 32),
        *nonce[1:],
    ]
    x = list(first)

    def turned(value, by):
        return (value << by | value >> (32 - by)) & mask

    def quarter(a, b, c, d):
        x[a] = (x[a] + x[b]) & mask
        x[d] = turned(x[d] ^ x[a], 16)
        x[c] = (x[c] + x[d]) & mask
        x[b] = turned(x[b] ^ x[c], 12)
        x[a] = (x[a] + x[b]) & mask
        x[d] = turned(x[d] ^ x[a], 8)
        x[c] = (x[c] + x[d]) & mask
        x[b] = turned(x[b] ^ x[c], 7)

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for k in range(4):
            quarter(k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
    return [(a + b) & mask for a, b in zip(x, first, strict=True)]


RFC_KEY = np.frombuffer(bytes(range(32)), dtype="<u4").astype(np.int64)
RFC_NONCE = (0x09000000, 0x4A000000, 0)
RFC_WORDS = """e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3
               466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2"""


def test_the_keystream_is_that_of_rfc_8439():
    expected = [int(word, 16) for word in RFC_WORDS.split()]
    words = keystream(torch.from_numpy(RFC_KEY), torch.tensor([1]), RFC_NONCE)
    assert [int(word) for word in words] == expected
    assert words_of(RFC_KEY.tolist(), 1, RFC_NONCE) == expected, "and so is the one it is compared with below"


def test_the_keystream_is_that_of_another_chacha_for_any_key_and_counter():
    rng = random.Random(8439)
    for _ in range(20):
        key = [rng.getrandbits(32) for _ in range(8)]
        counters = [rng.getrandbits(20), rng.getrandbits(32), 2**32 - 1, 2**32, 2**32 + 1, rng.getrandbits(45)]
        words = torch.stack(keystream(torch.tensor(key), torch.tensor(counters)), dim=-1)
        for counter, row in zip(counters, words.tolist(), strict=True):
            assert row == words_of(key, counter, (0, 0, 0))


def cipher_normals(seed, blocks):
    key = NoiseSource(seed=seed).words(4).view("uint32").astype("int64")
    return to_normals(torch.from_numpy(key), torch.arange(blocks)).numpy()


@pytest.mark.statistical
@pytest.mark.parametrize("seed", SEEDS)
def test_normals_of_the_cipher_are_normal_and_independent(seed):
    drawn = cipher_normals(seed, 25_000)  # eight for each block
    assert drawn.shape == (25_000, 8)
    assert drawn.dtype == np.float64
    assert_scale(drawn.ravel(), 1.0)
    off = np.corrcoef(drawn, rowvar=False)[~np.eye(8, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(25_000)
    sizes = np.corrcoef(np.abs(drawn), rowvar=False)[~np.eye(8, dtype=bool)]
    assert np.abs(sizes).max() < 5 / np.sqrt(25_000), "nor do the magnitudes of a pair move together"
    assert np.abs((drawn[1:] * drawn[:-1]).mean(axis=0)).max() < 5 / np.sqrt(25_000)
    assert np.unique(drawn).size == drawn.size


@pytest.mark.statistical
@pytest.mark.parametrize("seed", SEEDS)
def test_tails_of_the_cipher_reach_as_far_as_they_should(seed):
    drawn = np.abs(cipher_normals(seed, 60_000))
    for beyond in (3.0, 4.0):
        low, high = stats.poisson(drawn.size * 2 * stats.norm.sf(beyond)).interval(0.9999)
        assert low <= (drawn > beyond).sum() <= high


def test_the_largest_normal_of_the_cipher_is_beyond_eleven_standard_deviations(monkeypatch):
    """Words of zeros gave 9.49: a probability of 2^-65 for each pair was left out, and 2^-97 is
    now.
    """
    zeros = [torch.zeros(1, dtype=torch.int64)] * 16
    monkeypatch.setattr("privypurse.mechanisms._torch_gaussian.keystream", lambda key, blocks: zeros)
    largest = float(to_normals(torch.zeros(8, dtype=torch.int64), torch.arange(1)).max())
    assert largest == pytest.approx(np.sqrt(194 * np.log(2)))
    assert np.exp(-(largest**2) / 2) == pytest.approx(2.0**-97)


@pytest.mark.statistical
def test_two_keys_give_normals_that_have_nothing_in_common():
    drawn = np.array([cipher_normals(seed, 2_500).ravel() for seed in range(6)])
    off = np.corrcoef(drawn)[~np.eye(6, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(20_000)


@pytest.mark.statistical
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5)])
def test_normals_have_the_shape_that_is_asked_for(shape):
    box = SensitiveTensor(torch.zeros(shape), norm=Norm.L2, add_remove=1.0, replace_one=2.0)
    drawn = TorchGaussian(1.0).draw(box, Neighbouring.ADD_REMOVE, NoiseSource(seed=1))
    assert tuple(drawn.shape) == shape
    assert drawn.dtype == torch.float64


def test_the_mechanism_on_tensors_is_priced_as_the_one_on_arrays():
    box = SensitiveTensor(torch.zeros(3), norm=Norm.L2, add_remove=1.5, replace_one=3.0, sample_prob=0.2)
    for relation in Neighbouring:
        assert TorchGaussian(4.0).charge(box, relation) == Gaussian(4.0).charge(box, relation)
        assert TorchGaussian(4.0).noise_std(box, relation) == 4.0 * box.bound(relation, Norm.L2)
