"""Content of a report. All of it is public: paid for, declared, or named as not covered."""

from dataclasses import dataclass
from typing import Any

from privypurse.purse._certificate import Certificate
from privypurse.training._trace import Trace


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement of a model.

    Parameters
    ----------
    metric : str
        Name, such as "accuracy" or "mean absolute error".
    value : float
        Estimate.
    low, high : float or None
        95 % confidence interval, for noise and sampling.
    on : str
        The records, such as "records set aside" or "adult.test.csv".
    paid : bool
        Whether it was released through the purse. If not, its records are public or not covered.
    public : bool
        Whether those records were declared public.
    simulated : bool
        Whether the noise was seeded, so that nothing is private.
    epsilon : float or None
        Cost, if paid.
    payer : str
        Data set that was charged, if not that of the training.
    says_little : bool
        Whether the interval is too wide to report the value.
    share : float or None
        Share of the run's budget. Shares add up, epsilons do not.
    when : str
        ISO time.
    compared_with : tuple of (str, float)
        Baselines, such as ("always the most frequent class", 0.76).
    details : tuple of (str, float)
        More of the same release, such as ("recall for '>50K'", 0.61).
    """

    metric: str
    value: float
    on: str
    paid: bool
    public: bool = False
    simulated: bool = False
    low: float | None = None
    high: float | None = None
    epsilon: float | None = None
    payer: str = ""
    says_little: bool = False
    share: float | None = None
    when: str = ""
    compared_with: tuple[tuple[str, float], ...] = ()
    details: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """One coefficient of the model.

    Parameters
    ----------
    name : str
        Name of the encoded column, such as "age" or "education = Bachelors", or "intercept".
    output : str
        Its class; empty if there is one set of coefficients only.
    value : float
        Coefficient of the column scaled as in training.
    low, high : float or None
        Nominal 95 % interval for its mean over trainings on the same records with fresh noise. None
        if not estimated.
    """

    name: str
    value: float
    output: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """Content of a report.

    Parameters
    ----------
    title : str
        Such as "income, from adult.train.csv".
    task : str
        One sentence on what the model predicts.
    certificate : Certificate
        The guarantee, and what it does not cover.
    trace : Trace
        The steps.
    step_sizes : tuple of float
        Step size of each update, planned or chosen by a line search; may be empty.
    method : str
        Name of the method.
    folder : str
        Path of the model, as passed to the run.
    budget : dict or None
        The data set on its ledger: "dataset", "ledger" (file name), "epsilon" (limit), "delta",
        "spent_epsilon", "fraction_left", "runs" (list of {"when", "who", "what", "releases"}).
    prepared : tuple of (str, str)
        Facts released or declared before training, such as ("records", "32,540 (noisy release)").
    measurements : tuple of Measurement
        Measurements of the model; may be empty.
    coefficients : tuple of Coefficient
        The model.
    coefficients_note : str
        How the intervals were made.
    settings : tuple of (str, str)
        Settings to reproduce the run: the command, versions, options.
    schema : str
        The schema, as TOML.
    schema_declared : bool
        Whether all of it was declared public or paid for.
    """

    title: str
    task: str
    certificate: Certificate
    trace: Trace
    method: str
    step_sizes: tuple[float, ...] = ()
    folder: str = "MODEL"
    budget: dict[str, Any] | None = None
    prepared: tuple[tuple[str, str], ...] = ()
    measurements: tuple[Measurement, ...] = ()
    coefficients: tuple[Coefficient, ...] = ()
    coefficients_note: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    schema: str = ""
    schema_declared: bool = True


@dataclass(frozen=True)
class Entry:
    """One line of a comparison: method, epsilon (None if not private), mean and spread.

    The spread is the standard deviation over repetitions; after one repetition, half the width of a
    95 % interval.
    """

    method: str
    epsilon: float | None
    value: float
    spread: float


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison of methods and budgets."""

    metric: str
    private: bool
    note: str
    repetitions: int
    entries: tuple[Entry, ...]
