"""Small private estimators to search over, which remember what trials did with them."""

import warnings

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from privypurse import (
    Gaussian,
    GdpFilter,
)
from privypurse.losses import Logistic
from privypurse.methods import Nesterov
from privypurse.oracles import DenseOracle
from privypurse.oracles.statistics import clipped_sum
from privypurse.training import fit
from privypurse.training._prediction import linear_scores

SEEN = []  # what trials did, for tests only
GRID = {"column": [0, 1]}


class Tiny(ClassifierMixin, BaseEstimator):
    """A private logistic regression, small, on one of the columns."""

    def __init__(self, column=0, fails=False, epsilon=1.0, delta=None, neighbouring=None, random_state=None, purse=None,
                 n_public=None, verbose=0, callbacks=None):  # fmt: skip
        self.column, self.fails, self.n_public, self.verbose, self.callbacks = (
            column,
            fails,
            n_public,
            verbose,
            callbacks,
        )
        self.epsilon, self.delta, self.neighbouring, self.random_state, self.purse = (
            epsilon, delta, neighbouring, random_state, purse,
        )  # fmt: skip

    def _columns(self, X):
        X = X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=float)
        if np.isnan(X).any():
            raise ValueError("NaN in a row")
        return X[:, [self.column]]

    def fit(self, X, y):
        SEEN.append((self.column, self.purse, self.epsilon, self.random_state, self.n_public))
        print("a trial with column", self.column)
        warnings.warn(f"column {self.column}", stacklevel=1)
        if self.fails:
            raise ValueError(f"first record {X[0]}")
        X = np.asarray(X.todense() if sparse.issparse(X) else X, dtype=float)[:, [self.column]]
        oracle = DenseOracle(X, y, loss=Logistic(clip_derivative=0.5))
        self.purse_ = self.purse
        self.coef_ = fit(oracle, Nesterov(steps=15), self.purse, records=self.n_public or 1000).point
        self.classes_, self.n_features_in_ = np.array([0, 1]), 2
        self.certificate_, self.privacy_spent_ = self.purse.certificate(), self.purse.spent
        return self

    def decision_function(self, X):
        return linear_scores(self._columns(X), self.coef_)

    def predict(self, X):
        return (self.decision_function(X) > 0).astype(int)


class TinyMean(RegressorMixin, BaseEstimator):
    """Predicts a noisy mean, moved by a public offset."""

    def __init__(self, offset=0.0, epsilon=1.0, purse=None):
        self.offset, self.epsilon, self.purse = offset, epsilon, purse

    def fit(self, X, y):
        noisy = self.purse.release(
            clipped_sum(y.reshape(-1, 1), clip_norm=1.0), Gaussian(self.purse.remaining.noise_multiplier)
        ).value
        self.mean_ = noisy[0] / 1000 + self.offset
        return self

    def predict(self, X):
        return np.full(X.shape[0], self.mean_)


class NoisyScaler(BaseEstimator):
    """A step that pays a little."""

    def __init__(self, epsilon=0.1, purse=None):
        self.epsilon, self.purse = epsilon, purse

    def fit(self, X, y=None):
        mu = GdpFilter(self.epsilon, self.purse.delta, self.purse.neighbouring).mu
        self.sum_ = self.purse.release(clipped_sum(X, clip_norm=1.0), Gaussian(1 / mu * 1.000001)).value
        return self

    def transform(self, X):
        return X


def two_columns():
    """Return a table of which the first column tells the class."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2_000, 2))
    y = (X[:, 0] + 0.1 * rng.standard_normal(2_000) > 0).astype(int)
    return X, y
