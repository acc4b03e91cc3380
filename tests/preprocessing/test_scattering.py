"""The scattering transform: equal to convolutions with the same wavelets, pixel by pixel, in double precision."""

import numpy as np
import pytest
from scipy import ndimage
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privypurse import InvalidArgument

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from privypurse.preprocessing import Scattering2D  # noqa: E402
from privypurse.preprocessing._images import features, seen_in, view  # noqa: E402


def bump(width, angle=0.0, slant=1.0):
    """Return a Gaussian of sum 1 on a grid, and the coordinate along `angle`."""
    y, x = np.mgrid[-40:41, -40:41].astype(float)
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    return slant / (2 * np.pi * width**2) * np.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2)), along


def wavelet(scale, turn, L):
    window, along = bump(0.8 * 2**scale, np.pi * turn / L, 4 / L)
    wave = window * np.exp(0.75j * np.pi / 2**scale * along)
    return wave - window * wave.sum() / window.sum()


def sampled(kernel, step):
    """Return every `step`-th pixel of a kernel around its middle, of the same sum."""
    first = 40 % step
    return kernel[first::step, first::step] * step**2


def convolved(values, kernel):
    return ndimage.convolve(values.astype(complex), kernel, mode="wrap")


def directly(image, J, L):
    places = [-(-side // 2**J) for side in image.shape]
    around = [(2**J, (count + 1) * 2**J - side) for count, side in zip(places, image.shape, strict=True)]
    padded = np.pad(image, around, mode="reflect")
    smooth = bump(0.8 * 2 ** (J - 1))[0]

    def means(values, scale):
        at = [slice(2 ** (J - scale), 2 ** (J - scale) * (count + 1), 2 ** (J - scale)) for count in places]
        return convolved(values, sampled(smooth, 2**scale)).real[tuple(at)]

    first, second = [means(padded, 0)], []
    for j in range(J):
        moduli = [np.abs(convolved(padded, wavelet(j, turn, L))[:: 2**j, :: 2**j]) for turn in range(L)]
        first += [means(each, j) for each in moduli]
        for k in range(j + 1, J):
            step = 2 ** (k - j)
            for each in moduli:
                pairs = (convolved(each, sampled(wavelet(k, turn, L), 2**j))[::step, ::step] for turn in range(L))
                second += [means(np.abs(pair), k) for pair in pairs]
    return np.array(first + second)


@pytest.mark.parametrize(("shape", "J", "L"), [((12, 9), 2, 4), ((7, 16), 1, 8), ((9, 10), 3, 3)])
def test_it_is_the_convolution_with_each_wavelet(shape, J, L):
    image = np.random.default_rng(0).uniform(size=shape)
    expected = directly(image, J, L)
    found = Scattering2D(J, L)(torch.from_numpy(image).float()).numpy()
    assert found.shape == expected.shape
    assert found == pytest.approx(expected, abs=1e-5)
    assert Scattering2D(J, L).fit_transform(image[None]) == pytest.approx(expected.reshape(1, -1), abs=1e-5)


def test_channels_are_transformed_one_by_one():
    images = torch.rand(2, 3, 9, 8, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([Scattering2D()(images[:, channel]) for channel in range(3)], dim=1)
    assert torch.allclose(Scattering2D()(images), expected, atol=1e-6)


def test_a_row_depends_on_its_image_alone():
    images = np.random.default_rng(0).uniform(size=(20, 28, 28))
    rows, alone = Scattering2D().transform(images), Scattering2D().transform(images[7:8])
    assert rows.shape == (20, 81 * 7 * 7)
    assert rows[7:8] == pytest.approx(alone, abs=1e-6)
    images[0] = np.nan
    assert np.array_equal(np.isnan(Scattering2D().transform(images)).any(axis=1), np.arange(20) == 0)


def test_it_is_a_transformer_and_a_module():
    images = np.random.default_rng(0).uniform(size=(4, 8, 8))
    assert clone(Scattering2D(1, 4)).get_params() == {"J": 1, "L": 4, "device": None}
    assert make_pipeline(Scattering2D(1), StandardScaler()).fit_transform(images).shape == (4, 9 * 4 * 4)
    network = torch.nn.Sequential(Scattering2D(1), torch.nn.Flatten(), torch.nn.Linear(9 * 16, 3))
    assert network(torch.from_numpy(images).float()).shape == (4, 3)
    assert len(list(Scattering2D().parameters())) == 0


@pytest.mark.parametrize("wrong", [{"J": 0}, {"L": 2.5}])
def test_settings_that_are_wrong_are_refused(wrong):
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Scattering2D(**wrong).fit(np.zeros((2, 8, 8)))


@pytest.mark.parametrize("images", [np.zeros((5, 64)), np.zeros((2, 8, 0)), np.full((1, 8, 8), "a")])
def test_what_are_no_images_is_refused(images):
    with pytest.raises(InvalidArgument, match="X must be numbers of shape"):
        Scattering2D().transform(images)


def test_views_are_public_maps_of_which_the_first_changes_nothing():
    assert view(0).tolist() == [[1, 0, 0], [0, 1, 0]]
    maps = np.array([view(number) for number in range(200)])
    assert np.abs(maps[:, :, 2]).max() <= 3 / 28
    assert np.linalg.svd(maps[:, :, :2])[1] == pytest.approx(1.0, abs=0.2)
    assert maps.mean(axis=0) == pytest.approx(view(0), abs=0.02)
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    turned = torch.stack([seen_in(image, number) for number in range(5)])
    assert torch.equal(turned[0], image)
    assert all(not torch.allclose(turned[0], other) for other in turned[1:])
    assert turned.min() >= 0
    assert turned.max() <= 15


def test_pixels_are_clipped_to_their_range():
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 3 - 1
    beyond = images.clone()
    beyond[images > 1], beyond[images < 0] = np.inf, np.nan
    for number in (0, 1):
        rows, clipped, others = (
            features(each, (0.0, 1.0), number, torch.device("cpu")) for each in (images, images.clamp(0, 1), beyond)
        )
        assert rows.shape == (2, 9 * 16)
        assert torch.isfinite(rows).all()
        assert torch.equal(rows, clipped)
        assert torch.equal(rows, others)
