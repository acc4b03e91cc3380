"""Content of a report. All of it is public: paid for, declared, or named as not covered."""

from dataclasses import dataclass
from typing import Any

from privypurse.purse._certificate import Certificate
from privypurse.training._trace import Trace

WIDE = 0.5


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure and its 95 % interval, which covers noise and sampling."""

    kind: str  # one of "AUC", "R2", "recall", "precision", "share", "calibration", "lead", or a baseline
    value: float
    low: float
    high: float
    of: str = ""  # its class; of a lead: the baseline
    cell: tuple[float, float] | None = None  # of a calibration: the range of predicted probabilities

    @property
    def says_little(self) -> bool:
        """Whether the interval of a share is too wide to report the value."""
        return self.high - self.low > WIDE


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement of a model. Unless `paid`, its records are public or it is not covered."""

    metric: str  # such as "accuracy" or "mean absolute error"
    value: float
    on: str  # the records, such as "records set aside" or "adult.test.csv"
    paid: bool  # whether it was released through the purse
    public: bool = False  # whether its records were declared public
    simulated: bool = False  # whether the noise was seeded, so that nothing is private
    low: float | None = None  # 95 % confidence interval, for noise and sampling
    high: float | None = None
    epsilon: float | None = None  # cost, if paid
    payer: str = ""  # data set that was charged, if not that of the training
    says_little: bool = False  # whether the interval is too wide to report the value
    share: float | None = None  # of the run's budget; shares add up, epsilons do not
    when: str = ""  # ISO time
    compared_with: tuple[tuple[str, float], ...] = ()  # such as ("always the most frequent class", 0.76)
    details: tuple[tuple[str, float], ...] = ()  # of earlier versions, such as ("recall for '>50K'", 0.61)
    estimates: tuple[Estimate, ...] = ()  # from the same records: all that has an interval of its own
    classes: tuple[str, ...] = ()  # the declared ones, sorted
    confusion: tuple[tuple[float, ...], ...] = ()  # records of each class (row) by predicted class
    note: str = ""  # how to read it
    limit: float | None = None  # of a regression: larger errors, and distances from the median, count as this

    def estimated(self, kind: str, of: str | None = None) -> list[Estimate]:
        """Return the estimates of a kind, and of a class if one is named."""
        return [one for one in self.estimates if one.kind == kind and of in (None, one.of)]


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """One coefficient of the model, for a column scaled as in training."""

    name: str  # of the encoded column, such as "education = Bachelors", or "intercept"
    value: float
    output: str = ""  # its class; empty if there is one set of coefficients only
    low: float | None = None  # nominal 95 % interval for its mean over trainings with fresh noise
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Term:
    """The coefficients that make up the curve or the categories of a column."""

    name: str
    first: int  # place among the coefficients of an output
    count: int
    at: tuple[float, ...] = ()  # the knots of a curve, or the ends of a line; empty for categories
    dates: bool = False  # whether knots are seconds since 1970
    shares: tuple[float, ...] = ()  # released, of the records at each


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """Content of a report."""

    title: str  # such as "income, from adult.train.csv"
    task: str  # one sentence on what the model predicts
    certificate: Certificate
    trace: Trace
    method: str
    budget: dict[str, Any]  # the data set on its ledger, from `describe_budget`
    prepared: tuple[tuple[str, str], ...]  # before training, such as ("records", "32,540 (noisy release)")
    coefficients: tuple[Coefficient, ...]
    settings: tuple[tuple[str, str], ...]  # to reproduce the run: command, versions, options
    schema: str  # as TOML
    terms: tuple[Term, ...] = ()  # of the columns of a file
    step_sizes: tuple[float, ...] = ()  # of each update, planned or chosen by a line search
    folder: str = ""  # path of the model, as passed to the run; nothing for a model in memory
    measurements: tuple[Measurement, ...] = ()
    coefficients_note: str = ""  # how the intervals were made
    schema_declared: bool = True  # whether all of the schema was declared public or paid for


@dataclass(frozen=True)
class Entry:
    """One line of a comparison."""

    method: str
    epsilon: float | None  # None: not private
    value: float  # mean over repetitions
    spread: float  # standard deviation over repetitions, or half the width of a 95 % interval of one


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison of methods and budgets."""

    metric: str
    private: bool
    note: str
    repetitions: int
    entries: tuple[Entry, ...]
