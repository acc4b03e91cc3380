"""The noise of the gradients of `PrivateImageClassifier` has the scale that was paid for."""

import numpy as np
import pytest
from scipy import stats

from privypurse import GdpFilter, NoiseSource, Purse

torch = pytest.importorskip("torch")

from privypurse.audit._listening import record  # noqa: E402
from privypurse.estimators import PrivateImageClassifier  # noqa: E402
from privypurse.estimators._images import CENTRE_SHARE, CLIP_NORM  # noqa: E402

pytestmark = pytest.mark.statistical


@pytest.mark.parametrize("seed", [11, 23, 47])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_gradients_carry_the_noise_of_one_record_of_all_views(seed, relation):
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4

    def fit(data, purse):
        settings = {"n_public": 40, "classes": range(4), "views": 4, "device": "cpu"}
        return PrivateImageClassifier(None, purse=purse, **settings).fit(*data).coef_

    heard = record(fit, data, Purse(8.0, 1e-5, neighbouring=relation, noise=NoiseSource(seed=seed)))
    gradients = [each for each in heard.releases if each.what == "GradientAt"]
    samples = np.concatenate([np.ravel(each.answer - each.inside) for each in gradients])
    length = CLIP_NORM * (1 if relation == "add-remove" else 2)
    mu = GdpFilter(8.0, 1e-5, relation).mu * np.sqrt((1 - CENTRE_SHARE) / len(gradients))
    assert samples.size > 5_000
    chances = [stats.kstest(samples, stats.norm(scale=k * length / mu).cdf).pvalue for k in (1, 2 / 3, 3 / 2)]
    assert chances[0] > 1e-4
    assert max(chances[1:]) < 1e-9
