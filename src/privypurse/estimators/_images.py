"""A private classifier of images: a softmax model on fixed features of several views of each image."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from privypurse.core._checks import FloatArray, positive, positive_integer
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.estimators._compat import all_or_nothing
from privypurse.estimators._fit_budget import LeavesItsPurse, open_budget, uncharged_around_fits
from privypurse.estimators._linear_models import LABELS_READ, PrivateLinearClassifier, encode_labels
from privypurse.estimators._private_statistics import gaussian, private_count
from privypurse.methods._nesterov import Nesterov, balanced_steps
from privypurse.preprocessing._images import channels_first, check_range, features, features_of_views
from privypurse.purse._holds import held
from privypurse.purse._opening import check_delta
from privypurse.purse._purse import Purse
from privypurse.pytorch._views import ViewsOracle, of_length_one
from privypurse.training._loop import check_callbacks, facts_for, fit
from privypurse.training._progress import Callback, ProgressBar

# Shares of the budget for the number of records and for the centre of features.
COUNT_SHARE, CENTRE_SHARE = 0.01, 0.02
CLIP_NORM, CONSTANT = 0.1, 0.1
PACE, MOMENTUM = 20.0, 0.9  # steps, for gradients in units of the clip norm
LENGTH, MOST_STEPS = 2.0, 1_000  # of a run, in steps of n mu/sqrt(d), and at most
VIEWS = 5, 15  # of an image: on the CPU, where a step may use some of them, and elsewhere
ROUNDED = "rounding of sums over images in single precision, beyond the margin that is kept for it"
CHECKED = "that images and labels passed the checks before payment: proper labels, more than one image"


class PrivateImageClassifier(LeavesItsPurse, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of images under differential privacy, without hyper-parameters to tune.

    A multinomial model on fixed features (`privypurse.preprocessing.Scattering2D`), which were not
    learned and cost nothing. The gradient of an image is the mean over several views of it (shifted,
    rotated, scaled, sheared), clipped once, so views cost nothing either. Features of all views are
    held in memory: 14 kB for a view of an image of 28 x 28 pixels.

    Parameters
    ----------
    epsilon, delta, neighbouring, n_public, purse, random_state, noise, callbacks, verbose
        As for `PrivateLogisticRegression`. Without `n_public` the number of images is bought. Sums of
        gradients are in floating point whatever `noise` is.
    classes : sequence, optional
        The public labels. By default they are read from y, which the certificate names as not
        covered.
    pixel_range : pair of float, optional
        Public range of pixels, to which they are clipped; by default that of their type, 0 to 255 for
        bytes. Must be declared for other numbers.
    channels : {"first", "last"} or None
        Whether images are (n, c, h, w) or (n, h, w, c); by default recognised by 1, 3 or 4 channels.
    views : int, optional
        Number of views of an image; by default 15 on a GPU and 5 on a CPU. On a CPU many steps use
        fewer of them, the next ones at each step. Predictions are means over the views.
    device : str or device, optional
        Where to compute; by default a GPU if there is one.

    Attributes
    ----------
    coef_, intercept_, centre_ : ndarray
        The model on rows of features, from which the released centre is subtracted, scaled to length 1.
    n_views_ : int
        Number of views in training, and in predictions.
    privacy_spent_, certificate_, trace_, stop_reason_, n_iter_
        As for `PrivateLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.estimators import PrivateImageClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(400) % 2
    >>> images = rng.integers(0, 100, (400, 8, 8), dtype=np.uint8)
    >>> images[y == 1, 3] += 150                               # a line
    >>> model = PrivateImageClassifier(epsilon=4.0, delta=1e-4, n_public=400, classes=[0, 1], random_state=0)
    >>> model.fit(images, y).score(images, y) > 0.9, round(model.privacy_spent_.epsilon, 3)
    (True, 4.0)
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        delta: float | None = None,
        classes: Sequence[Any] | None = None,
        pixel_range: tuple[float, float] | None = None,
        channels: str | None = None,
        views: int | None = None,
        device: Any = None,
        neighbouring: Neighbouring | str | None = None,
        n_public: int | None = None,
        purse: Purse | None = None,
        random_state: Any = None,
        noise: str = "auto",
        callbacks: Sequence[Callback] = (),
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.pixel_range = pixel_range
        self.channels = channels
        self.views = views
        self.device = device
        self.neighbouring = neighbouring
        self.n_public = n_public
        self.purse = purse
        self.random_state = random_state
        self.noise = noise
        self.callbacks = callbacks
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Any:
        """Train on private images.

        Parameters
        ----------
        X : array_like or Tensor of shape (n, h, w), (n, h, w, c) or (n, c, h, w)
            The images. Not kept.
        y : array_like of shape (n,)
            Their labels. Not kept.

        Returns
        -------
        self

        Raises
        ------
        InvalidArgument
            A setting or the data is wrong. No budget is spent.
        BudgetExhausted
            Less is left in the purse than `epsilon`. No budget is spent.
        """
        images, bounds, count, device = self._checked(X)
        labels = np.asarray(y)
        if labels.shape != (len(images),) or len(images) < 2:
            what = f"y must have a label for each of two or more images; got shape {labels.shape} for {len(images)}"
            raise InvalidArgument(f"{what}. Check both.")
        classes = PrivateLinearClassifier._declared(self, labels)
        target = torch.from_numpy(encode_labels(labels, classes)).to(device)
        if self.n_public is not None:
            positive(n_public=self.n_public)
        check_callbacks(self.callbacks)
        purse = open_budget(self)
        check_delta(purse.delta, self.n_public)
        uncovered = () if self.classes is not None else (LABELS_READ,)
        rows = features_of_views(images, bounds, count, device, self._tell)
        oracle = ViewsOracle(rows, target, classes=classes.size, constant=CONSTANT)
        with held(purse):
            for what in (*uncovered, CHECKED, ROUNDED, *uncharged_around_fits(purse)):
                purse.declare_uncovered(what)
            records = self._records(images, purse)
            centre = purse.release(oracle.total(), gaussian(purse, CENTRE_SHARE), what="centre of features")
            self.centre_ = shrunk(centre.value / records, (centre.noise_std or 0.0) / records)
            oracle.centre(self.centre_)
            facts = facts_for(oracle, purse, records=records, clip_norm=CLIP_NORM)
            steps = min(round(LENGTH * balanced_steps(facts, most=MOST_STEPS)), MOST_STEPS)
            if device.type == "cpu":
                oracle.at_once = min(max(MOST_STEPS // steps, 1), count)
            method = Nesterov(steps=steps, momentum=MOMENTUM, step_size=PACE / CLIP_NORM)
            callbacks = [*self.callbacks, *([ProgressBar(purse, show=True)] if self.verbose else [])]
            result = fit(oracle, method, purse, records=records, clip_norm=CLIP_NORM, callbacks=callbacks)
        weights = result.point.reshape(-1, classes.size)
        self.coef_, self.intercept_, self.classes_ = weights[:-1].T, CONSTANT * weights[-1], classes
        self.image_shape_, self.n_views_ = tuple(images.shape[1:]), count
        self.trace_, self.n_iter_, self.stop_reason_ = result.trace, len(result.trace.steps), result.trace.stop_reason
        self.privacy_spent_, self.certificate_ = purse.spent, purse.certificate()

    def decision_function(self, X: Any) -> FloatArray:
        """Return a score for each class; for two classes, positive for the second."""
        scores = self.predict_log_proba(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each image. No guarantee covers predictions for private images."""
        place = self.predict_log_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[place])

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class: the mean over views of the image."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of the probability of each class."""
        check_is_fitted(self)
        images, bounds, _, device = self._checked(X)
        if images.shape[1:] != self.image_shape_:
            what = f"X must have images of shape {self.image_shape_}, as in fit; got {tuple(images.shape[1:])}"
            raise InvalidArgument(f"{what}. Resize them.")
        centre, logs = torch.from_numpy(self.centre_).to(device, torch.float32), []
        for number in range(self.n_views_):
            rows = of_length_one(of_length_one(features(images, bounds, number, device)) - centre)
            logs.append(special.log_softmax(rows.cpu().numpy() @ self.coef_.T + self.intercept_, axis=1))
        return np.asarray(special.logsumexp(logs, axis=0) - math.log(self.n_views_))

    def _checked(self, X: Any) -> tuple[Any, tuple[float, float], int, torch.device]:
        """Return images (n, c, h, w), the range of pixels, the number of views and the device."""
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        views = VIEWS[device.type != "cpu"] if self.views is None else self.views
        positive_integer(views=views)
        images = channels_first(X, self.channels)
        return images, check_range(self.pixel_range, images), views, device

    def _records(self, images: Any, purse: Purse) -> float:
        """Return the public number of records, or a noisy one."""
        if self.n_public is not None:
            return float(self.n_public)
        return max(private_count(images, purse=purse, share=COUNT_SHARE), 1.0)

    def _tell(self, done: int, views: int) -> None:
        if self.verbose:
            print(f"privypurse: features of {done} of {views} views", file=sys.stderr)


def shrunk(mean: FloatArray, error: float) -> FloatArray:
    """Shrink a noisy mean by the share of noise in its squared length (James and Stein 1961)."""
    squared = float(mean @ mean)
    return mean * max(0.0, 1 - mean.size * error**2 / squared) if squared > 0 else mean
