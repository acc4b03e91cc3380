"""Sealed boxes: raw aggregates of private data with the bounds that were enforced on them."""

import contextlib
import enum
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from privypurse.core._checks import FloatArray, ordinary, positive_integer, probability
from privypurse.core._errors import (
    InvalidArgument,
    SealedValue,
    SharedAcrossProcesses,
    UnboundedSensitivity,
    UnsupportedCharge,
)
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import this_process

# Sums of records bounded by at most 1e100 each stay below this.
LARGEST_VALUE = 1e200


class Norm(enum.Enum):
    """How the distance between two neighbouring values is measured.

    Attributes
    ----------
    L2
        Euclidean length of the difference: what Gaussian noise needs.
    RANGE
        Largest minus smallest coordinate of the difference: what a selection among scores needs.
        A shift shared by all scores does not count.
    GRADIENT
        Euclidean length of the difference of two objectives' gradients, at any point.
    MU
        Gaussian-DP parameter of one run of the experiment in the box.
    """

    L2 = "l2"
    RANGE = "range"
    GRADIENT = "gradient"
    MU = "gaussian-dp"


class Sample:
    """One Poisson sample of the records, valid for one release.

    The price of a sampled release requires a fresh sample. Boxes computed from the same sample
    share its token, and the purse takes the token with the first charged release.

    Guarantees
    ----------
    `take` succeeds once, in the process that drew the sample, whatever threads or forks do.
    """

    __slots__ = ("_lock", "_process", "_taken")

    def __init__(self) -> None:
        self._lock, self._process, self._taken = threading.Lock(), this_process(), False

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Hold the sample during a charge; it is used up unless the charge raises."""
        if this_process() != self._process:
            raise SharedAcrossProcesses("a sample was carried into a forked process. Draw a sample in that process.")
        with self._lock:
            if self._taken:
                what = "this sample was already released once, which is all that its rate prices"
                raise UnsupportedCharge(f"{what}. Draw a fresh sample.")
            yield
            self._taken = True


_BOUND_UNDER = {Neighbouring.ADD_REMOVE: "add_remove", Neighbouring.REPLACE_ONE: "replace_one"}
_set = object.__setattr__  # for the maker of a box, which nothing changes afterwards


class Sensitive:
    """A value computed from private data, sealed until it is released through a purse.

    Oracles make boxes and mechanisms open them; other code can only pass them on.

    Parameters
    ----------
    value : array_like
        The raw aggregate, such as a sum of clipped gradients. Kept as float64.
    norm : Norm
        The norm in which the bounds hold.
    add_remove, replace_one : float or None
        How far the value can move, in that norm, when one record is added or removed, or replaced.
        None where no bound was enforced; asking for it then raises `UnboundedSensitivity`.
    sample_prob : float, default 1.0
        Poisson sampling rate of the records behind the value; 1.0 means all records.
    sample : Sample, optional
        Token of the sample if ``sample_prob`` is below 1, shared by all boxes of one sample. By
        default the box has its own.

    Attributes
    ----------
    sample : Sample or None
        Token of the sample behind the value; None where all records took part.
    shape : tuple of int
        The shape of the value; shapes are public.

    Guarantees
    ----------
    * The bounds are public, were enforced by the maker of the box, and alone determine prices. No
      attribute of a box can be set again.
    * ``repr``, ``str``, ``format``, ``float()``, ``np.asarray``, comparison, truth value,
      iteration, copying and pickling never show or yield the value. (Python cannot keep a
      determined caller in the same process from private attributes; ``tests/architecture`` keeps
      the library from them.)
    * ``replace_one`` lies between ``add_remove`` and twice ``add_remove`` where both are given: a
      replacement is a removal and an addition.

    Examples
    --------
    >>> Sensitive([3.0, 4.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
    <Sensitive: shape (2,), l2 bound 1.0 (add-remove), 2.0 (replace-one)>
    """

    __slots__ = ("_value", "add_remove", "norm", "replace_one", "sample", "sample_prob", "shape")

    _value: FloatArray
    norm: Norm
    add_remove: float | None
    replace_one: float | None
    sample_prob: float
    sample: Sample | None
    shape: tuple[int, ...]

    # numpy must not treat the box as an array-like object, not even as an operand.
    __array_ufunc__ = None

    def __init__(
        self,
        value: ArrayLike,
        *,
        norm: Norm,
        add_remove: float | None,
        replace_one: float | None,
        sample_prob: float = 1.0,
        sample: Sample | None = None,
    ) -> None:
        if not isinstance(norm, Norm):
            raise InvalidArgument(f"norm must be a Norm; got {norm!r}. Pass for example norm=Norm.L2.")
        sample_prob = probability(sample_prob=sample_prob)
        add_remove = None if add_remove is None else ordinary(add_remove=add_remove)
        replace_one = None if replace_one is None else ordinary(replace_one=replace_one)
        if add_remove is not None and replace_one is not None and not add_remove <= replace_one <= 2 * add_remove:
            what = f"replace_one must lie between add_remove and twice that; got {replace_one!r} with {add_remove=}"
            raise InvalidArgument(f"{what}. Pass replace_one={2 * add_remove!r} if in doubt.")
        # A private copy, so that the caller cannot read or change it.
        array = np.array(value, dtype=np.float64)
        if array.size and not (array.max() < LARGEST_VALUE and array.min() > -LARGEST_VALUE):
            # A bound is void if one record can make the aggregate non-finite: a defect of the
            # maker, reported without the value.
            what = "the value of a box must be finite and below 1e200; it is not, so the bound was not enforced"
            raise UnboundedSensitivity(f"{what}. Drop or clip such records where the sum is computed.")
        array.setflags(write=False)
        _set(self, "_value", array)
        _set(self, "norm", norm)
        _set(self, "add_remove", add_remove)
        _set(self, "replace_one", replace_one)
        _set(self, "sample_prob", sample_prob)
        _set(self, "sample", None if sample_prob == 1 else sample or Sample())
        _set(self, "shape", array.shape)

    def _hold(self, value: Any, shape: tuple[int, ...]) -> None:
        """Hold something other than an array, whose release has this shape; for subclasses."""
        _set(self, "_value", value)
        _set(self, "shape", shape)

    def bound(self, neighbouring: Neighbouring, norm: Norm) -> float:
        """Return the bound under a relation, if it was enforced in this norm.

        For a Poisson sample, in L2 under replace-one, it is twice the add/remove bound, which prices
        of sampled charges assume: the record may be sampled on one side only.
        """
        if norm is not self.norm:
            what = f"this box is bounded in the {self.norm.value} norm, but the mechanism needs the {norm.value} norm"
            raise UnboundedSensitivity(f"{what}. Gaussian noise needs Norm.L2, a selection Norm.RANGE.")
        if norm is Norm.L2 and neighbouring is Neighbouring.REPLACE_ONE and self.sample_prob < 1:
            return 2 * self.bound(Neighbouring.ADD_REMOVE, norm)
        bound: float | None = getattr(self, _BOUND_UNDER[neighbouring])
        if bound is None:
            why = f"this box has no bound under the relation {neighbouring.value!r}"
            raise UnboundedSensitivity(f"{why}. Use a purse with the other relation.")
        return bound

    def sensitivity(self, neighbouring: Neighbouring) -> float | None:
        """Return the bound under a relation, in the norm of the box; None where it has none."""
        with contextlib.suppress(UnboundedSensitivity):
            return self.bound(neighbouring, self.norm)
        return None

    def __repr__(self) -> str:
        enforced = ((getattr(self, name), relation) for relation, name in _BOUND_UNDER.items())
        bounds = ", ".join(f"{bound} ({relation.value})" for bound, relation in enforced if bound)
        sampled = f", sampled with probability {self.sample_prob}" if self.sample_prob < 1 else ""
        return f"<Sensitive: shape {self.shape}, {self.norm.value} bound {bounds or 'none'}{sampled}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def _sealed(self, *_: Any, **__: Any) -> NoReturn:
        what = "this value is sealed: it was computed from private data and has not been charged"
        raise SealedValue(f"{what}. Release it with purse.release(box, mechanism).")

    def _fixed(self, name: str, *_: Any) -> NoReturn:
        raise AttributeError(f"{name} of a box cannot be set: its bounds were enforced when it was made.")

    __setattr__ = __delattr__ = _fixed

    __array__ = __float__ = __int__ = __index__ = __complex__ = __bool__ = __len__ = __iter__ = _sealed
    __getitem__ = __contains__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _sealed
    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _sealed
    # Implied by __eq__, but stated because a hash of the value would leak it.
    __hash__ = None  # type: ignore[assignment]


class SensitiveObjective(Sensitive):
    """A sealed convex problem over private data.

    The box holds a function: given a linear perturbation b, a ridge and a tolerance, it returns the
    minimiser of ``sum of losses + ridge/2 |w|^2 + b . w``, up to a gradient of that length.
    `gradient` is the largest norm of one record's gradient at any point: the add/remove bound.

    Guarantees
    ----------
    Each record's loss is a convex function of one linear score, so its second derivative has rank
    one. Sealed like every box.
    """

    __slots__ = ("curvature",)

    curvature: float  # largest second derivative of one record's loss

    def __init__(self, minimise: Any, *, dimension: int, gradient: float, curvature: float) -> None:
        super().__init__(0.0, norm=Norm.GRADIENT, add_remove=gradient, replace_one=2 * gradient)
        self._hold(minimise, (dimension,))
        _set(self, "curvature", ordinary(curvature=curvature))


class SensitiveTrials(Sensitive):
    """A sealed private experiment that may be run several times.

    The box holds a function ``trial(candidate, noise)``, which runs the experiment once with one of
    several public candidates, independently of other runs, and returns a score and a result. Each
    run, with both, is Gaussian-DP with mu `add_remove` or `replace_one` for every candidate.
    `hand_over` receives the result of the best run, once, after the charge.

    Guarantees
    ----------
    The maker of the box enforced the bound: each run is charged to its own filter with that limit.
    Sealed like every box.
    """

    __slots__ = ("candidates", "hand_over")

    candidates: int
    hand_over: Callable[[Any], None]

    def __init__(
        self,
        trial: Callable[[int, Any], tuple[float, Any]],
        *,
        candidates: int,
        add_remove: float | None,
        replace_one: float | None,
        hand_over: Callable[[Any], None],
    ) -> None:
        super().__init__(0.0, norm=Norm.MU, add_remove=add_remove, replace_one=replace_one)
        self._hold(trial, (2,))  # the winning candidate and its score
        _set(self, "candidates", positive_integer(candidates=candidates))
        _set(self, "hand_over", hand_over)
