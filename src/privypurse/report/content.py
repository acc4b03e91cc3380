"""What a report is made from. All of it is public already: paid for, declared, or named as not covered."""

from dataclasses import dataclass
from typing import Any

from privypurse.purse.certificate import Certificate
from privypurse.training.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement of what the model is worth.

    Parameters
    ----------
    metric : str
        What was measured, such as "accuracy" or "mean absolute error".
    value : float
        What came out.
    low, high : float or None
        The interval that it lies in with 95 % confidence, noise of the measurement and finite sample included.
    on : str
        What it was measured on, such as "a tenth of the records, set aside" or "adult.test.csv".
    paid : bool
        Whether it was released through the purse. If not, the records it was measured on are either public or not covered.
    public : bool
        Whether a person declared those records public.
    simulated : bool
        Whether the noise of the payment was seeded, so that it protects nobody.
    epsilon : float or None
        What it cost, where it was paid for.
    payer : str
        The data set whose budget paid, where that is another one than the training's.
    says_little : bool
        Whether the interval is so wide that the value tells next to nothing.
    share : float or None
        Which share of the run's budget it took; shares add up, epsilons do not.
    when : str
        ISO time.
    compared_with : tuple of (str, float)
        The same metric of something else, such as ("always the most frequent class", 0.76).
    details : tuple of (str, float)
        More of the same release, such as ("found among '>50K'", 0.61).
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
        Name of the encoded column, such as "age" or "education = Bachelors"; "intercept" for the constant.
    output : str
        The class it speaks for; empty where there is one set of coefficients only.
    value : float
        Of the column scaled as in training.
    low, high : float or None
        Where it would lie in 95 of 100 runs on the same data: how far the noise moves it. None where it was not rehearsed.
    """

    name: str
    value: float
    output: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """Everything on a report.

    Parameters
    ----------
    title : str
        Such as "income, from adult.train.csv".
    task : str
        One plain sentence on what the model does.
    certificate : Certificate
        What this training guarantees, and what it does not cover.
    trace : Trace
        The steps.
    step_sizes : tuple of float
        Step size of each update as planned, or as chosen by a line search; empty where there are none.
    method : str
        Who planned.
    budget : dict or None
        The whole data set on its ledger: "dataset", "ledger" (file name), "epsilon" (limit), "delta", "spent_epsilon",
        "fraction_left", "runs" (list of {"when", "who", "what", "releases"}).
    prepared : tuple of (str, str)
        What was bought before training or declared: ("records", "32,540 (bought, give or take 60)").
    measurements : tuple of Measurement
        What it is worth; empty where nobody measured.
    coefficients : tuple of Coefficient
        The model.
    coefficients_note : str
        How the intervals were made.
    settings : tuple of (str, str)
        Settings to reproduce the run: the command, versions, options.
    schema : str
        The description of the columns, as TOML.
    schema_declared : bool
        Whether a person declared the whole of it public (or paid for it).
    """

    title: str
    task: str
    certificate: Certificate
    trace: Trace
    method: str
    step_sizes: tuple[float, ...] = ()
    budget: dict[str, Any] | None = None
    prepared: tuple[tuple[str, str], ...] = ()
    measurements: tuple[Measurement, ...] = ()
    coefficients: tuple[Coefficient, ...] = ()
    coefficients_note: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    schema: str = ""
    schema_declared: bool = True
