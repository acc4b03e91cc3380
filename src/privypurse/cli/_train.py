"""`privypurse train` and `demo`."""

import pathlib
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import emit, note, note_account, say, shown_progress, warn, warn_if_weak
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import about, percent, rounded_down, rounded_up, short

EXACT = "exact, NOT private unless these records are public"
FEW = 1_000  # records
RARE = 0.2  # share and recall of a class below which a hint names its weight
UNBALANCED = 2 / 3  # with a more frequent class, the AUC is printed beside the accuracy


def train(
    data: options.DataFile,
    target: options.Target,
    epsilon: Annotated[float, options.option("--epsilon", "-e", help="Budget of this run.")],
    schema: options.SchemaFile = None,
    out: Annotated[
        pathlib.Path, typer.Option("--out", "-o", help="Folder for the model.", writable=True, file_okay=False)
    ] = pathlib.Path("model"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")] = False,
    buy_ranges: Annotated[
        bool, typer.Option("--buy-ranges", help="Spend budget on ranges of numbers instead of reading them.")
    ] = False,
    model: Annotated[str | None, options.option("--model", help="logistic, svm; for numbers ridge, huber.")] = None,
    method: options.Method = "auto",
    class_weight: Annotated[
        list[str] | None,
        options.option("--class-weight", help="For rare classes: balanced, or CLASS=NUMBER, also several times. Free."),
    ] = None,
    hold_out: Annotated[
        float, typer.Option("--hold-out", help="Share of records to measure the model on, for 3 % of the run's budget.")
    ] = 0.1,
    test: Annotated[
        pathlib.Path | None, options.option("--test", help="Measure on these records instead, exactly, not covered.")
    ] = None,
    test_public: Annotated[bool, typer.Option("--test-public", help="Declare the test records public.")] = False,
    intervals: Annotated[
        bool, typer.Option("--intervals/--no-intervals", help="Estimate how far noise moves the coefficients.")
    ] = True,
    ledger: options.Ledger = None,
    dataset: options.Dataset = None,
    budget: options.Budget = None,
    delta: options.Delta = None,
    neighbouring: options.Neighbouring = None,
    who: options.Who = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = "utf-8",
    noise: Annotated[
        str, typer.Option("--noise", help="auto, secure (exact arithmetic or not at all) or plain (floating point).")
    ] = "auto",
    simulate: Annotated[int | None, options.option("--simulate", help="Seed of repeatable noise: NOT PRIVATE.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, and say what the run would cost and leave. Spend nothing."),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a private model on a table. Write it with its certificate, trace and report.

    Examples:

        privypurse train people.csv --target income --epsilon 1 --schema people.toml --out model

        privypurse train people.csv --target income --epsilon 1 --schema people.toml --dry-run

        privypurse train people.csv --target income --epsilon 0.5 --budget 3 --buy-ranges

        privypurse train people.csv --target income --epsilon 1 --schema people.toml --class-weight yes=9

        privypurse train adult.csv --target classification --epsilon 1 --schema adult.toml --test adult.test.csv --test-public

    Without --schema the columns are described from the data, which no guarantee covers: the certificate
    says so. `privypurse schema` drafts a description to edit.
    """
    warn_if_weak(epsilon=epsilon, budget=budget)
    if schema is None:
        described = "columns are described from the data, which no guarantee covers"
        warn(f"no --schema: {described}. The certificate will say so.")
    with shown_progress(quiet) as progress:
        # The imports take a second or two.
        progress.stage("starting")
        from privypurse.runs._train import TrainSettings, check_training, train_file

        terms: Any = {"budget": budget, "delta": delta, "neighbouring": neighbouring, "who": who}
        account = options.account_for(
            data, dataset, charged=True, simulated=simulate is not None, ledger=ledger, **terms
        )
        settings = TrainSettings(
            data=data,
            target=target,
            epsilon=epsilon,
            out=out,
            account=account,
            schema=schema,
            buy_ranges=buy_ranges,
            model=model,
            method=method,
            class_weight=_weights(class_weight),
            hold_out=hold_out,
            test=test,
            test_public=test_public,
            intervals=intervals,
            overwrite=overwrite,
            delimiter=options.tab(delimiter),
            encoding=encoding,
            seed=simulate,
            noise=noise,
            command=shlex.join(["privypurse", *sys.argv[1:]]),
        )
        result: Any
        if dry_run:
            result = check_training(settings, progress)
        else:
            result = train_file(settings, progress, lambda purse, is_new: note_account(purse, is_new, budget), _counted)
    if dry_run:
        _print_dry_run(result, out, budget, json)
        return
    for remark in result.remarks:
        warn(remark)
    if json:
        emit(_as_json(result))
    else:
        _print(result)


def _weights(given: list[str] | None) -> dict[str, float] | str | None:
    """Return the weights of classes: a number for each, or "balanced"."""
    if not given or given == ["balanced"]:
        return "balanced" if given else None
    pairs = {name: number for name, _, number in (one.rpartition("=") for one in given)}
    try:
        if len(pairs) < len(given):
            raise ValueError
        return {name: float(number) for name, number in pairs.items()}
    except ValueError as error:
        expected = "expected --class-weight balanced, or a class and a number such as yes=9, each class once"
        raise InvalidArgument(f"{expected}; got {' '.join(given)!r}. Pass for example --class-weight yes=9.") from error


def _print_dry_run(result: Any, out: pathlib.Path, budget: float | None, json: bool) -> None:
    found, uses = result
    if found.new_account and budget is None:
        all_of_it = f"the epsilon {found.budget:g} of this run would be all that may ever be spent"
        warn(f"no --budget: {all_of_it} on data set {found.dataset!r} ({found.ledger}).")
    if json:
        emit({"dry_run": True, "uses": list(uses), "ledger": asdict(found)})
        return
    say("dry run: every check before payment passed; nothing was spent, and nothing is left on the disk")
    say(f"cost:    epsilon {found.epsilon:.6g} at delta {found.delta:g}, {found.neighbouring}: {', '.join(uses)}")
    say(f"leaves:  {found}")
    say(f"model:   {out} (not written)")


def _counted(left_out: Any) -> None:
    if left_out.low > 0:
        warn(left_out.remark)
    else:
        note(str(left_out))


def _as_json(result: Any) -> dict[str, Any]:
    from privypurse.report._words import status

    model, purse = result.pipeline[-1], result.purse
    certificate = model.certificate_
    stated = ("private", "simulation", "epsilon", "delta", "neighbouring")
    account = {"dataset": purse.dataset, "ledger": purse.ledger.location, "epsilon": purse.epsilon}
    left = {"remaining_epsilon": purse.remaining.epsilon, "fraction_left": purse.fraction_left}
    return {
        **{"model": str(result.folder), "report": str(result.folder / "report.html")},
        **{name: getattr(certificate, name) for name in stated},
        "status": status(certificate, result.pipeline[0].schema.is_declared).state.lower(),
        **{"spent_epsilon": certificate.recorded_epsilon, "releases": certificate.releases},
        **{"steps": model.n_iter_, "stop_reason": model.stop_reason_},
        **{"uncovered": list(certificate.uncovered), "remarks": result.remarks},
        "left_out": [{"text": str(one)} | asdict(one) for one in result.left_out],
        "measurements": [asdict(one) for one in result.measurements],
        "budget": account | {"spent_epsilon": purse.spent.epsilon} | left,
    }


def _print(result: Any) -> None:
    from privypurse.purse._certificate import INEXACT
    from privypurse.report._words import status

    model, purse = result.pipeline[-1], result.purse
    certificate = model.certificate_
    if certificate.private:
        gaps = "; noise in floating point, whose gaps are not covered" if INEXACT in certificate.uncovered else ""
        found = status(certificate, result.pipeline[0].schema.is_declared)
        pair = f"({certificate.epsilon:.6g}, {certificate.delta:g})"
        stated = f"{pair}-differentially private, {certificate.neighbouring}{gaps}"
        if found.style == "alarm":
            say(f"{found.badge}; formally {stated}")
        else:
            say(f"{found.state.lower() + ':':<8} {stated}" + (f"; {found.why}" if found.why else ""))
    else:
        say("SIMULATION, NOT PRIVATE: the noise was seeded")
    for measured in result.measurements:
        say(f"worth:   {describe(measured)}")
    for hint in _hints(model, result.measurements):
        note(hint)
    spent = f"epsilon {rounded_up(purse.spent.epsilon)} of {purse.epsilon:g} on data set {purse.dataset!r}"
    left = rounded_down(purse.remaining.epsilon) if purse.fraction_left > 1e-6 else "nothing"
    say(f"spent:   {spent}; left for one more run: {left}")
    if not result.pipeline[0].schema.is_declared:
        what, schema = "what the schema says was read from the data", _relative(result.folder / "schema.toml")
        warn(f"not covered: {what}. Go through {schema}, and pass it as --schema.")
    say(f"model:   {_relative(result.folder)}")
    say(f"report:  {_relative(result.folder / 'report.html')}")


def _hints(model: Any, measurements: Any) -> Iterator[str]:
    """Say what to do about a model that is of little use, from what was released."""
    if (records := model.preparation_.records) < FEW:
        yield f"about {about(records)} records were counted: a model of some use needs a few thousand."
    for one in (measured for measured in measurements if len(measured.classes) == 2):
        shown = {name: [*one.estimated("recall", name), *one.estimated("share", name)] for name in one.classes}
        never = [name for name, both in shown.items() if both and all(found.value < RARE for found in both)]
        if never and model.class_weight is None:
            yield (
                f"the model hardly ever answers {never[0]!r}. `--class-weight balanced` moves the threshold and costs nothing; "
                "its probabilities are of use as they are."
            )


def describe(measured: Any) -> str:
    """Return a measurement, its records and its coverage in one line."""
    shown = percent if measured.metric == "accuracy" else short
    interval = "" if measured.low is None else f" ({shown(measured.low)} to {shown(measured.high)})"
    covered = "paid for" if measured.paid else "public records" if measured.public else EXACT
    covered = "simulated, NOT PRIVATE" if measured.simulated else covered
    if measured.says_little:
        noisy = f"{measured.metric} is too noisy to report at this budget ({measured.on}, {covered})"
        return f"{noisy}. Hold out more records, spend more, or measure on public records"
    more = "".join(f", {_estimated(one)}" for one in _beside(measured))
    others = ""
    for name, value in measured.compared_with:
        ends = "".join(f" ({shown(one.low)} to {shown(one.high)})" for one in measured.estimated(name))
        others += f"; {name}: {shown(value)}{ends}"
    first = measured.note.partition(". ")[0]
    limited = f"; {first[0].lower()}{first[1:]}" if first.startswith("Errors") else ""
    return f"{measured.metric} {shown(measured.value)}{interval}{more} on {measured.on}, {covered}{others}{limited}"


def _beside(measured: Any) -> list[Any]:
    """Return what is printed beside the first figure."""
    # Where one class is frequent, accuracy says little about the others.
    unbalanced = any(value > UNBALANCED for _, value in measured.compared_with)
    return [*measured.estimated("R2"), *(measured.estimated("AUC", "") if unbalanced else [])]


def described_in_full(measured: Any) -> list[str]:
    """Return a line for each class, and what `describe` leaves out."""
    lines = [_estimated(one) for one in measured.estimated("AUC") if one not in _beside(measured)]
    for name in measured.classes:
        of_class = (one for kind in ("share", "recall", "precision") for one in measured.estimated(kind, name))
        lines.append(f"{name!r}: " + ", ".join(map(_estimated, of_class)))
    return lines


def _estimated(one: Any) -> str:
    """Return an estimate and its interval."""
    shown = (lambda value: f"{value:.2f}") if one.kind in ("AUC", "R2") else percent
    name = f"AUC of {one.of!r}" if one.kind == "AUC" and one.of else one.kind.replace("R2", "R²")
    if one.says_little:
        return f"{name} too noisy to report"
    return f"{name} {shown(one.value)} ({shown(one.low)} to {shown(one.high)})"


def _relative(path: pathlib.Path) -> str:
    try:
        return str(path.relative_to(pathlib.Path.cwd()))
    except ValueError:
        return str(path)


def demo(
    out: Annotated[
        pathlib.Path, typer.Option("--out", "-o", help="Folder for all output.", writable=True, file_okay=False)
    ] = pathlib.Path("demo"),
    rows: Annotated[int, typer.Option("--rows", help="Number of people in the synthetic census.")] = 30_000,
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The budget.")] = 1.0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train on a synthetic census: from a CSV file to a private model and its report.

    Examples:

        privypurse demo

        privypurse demo --epsilon 0.1 --rows 100000 --out large
    """
    warn_if_weak(epsilon=epsilon)
    with shown_progress(quiet) as progress:
        progress.stage("starting")
        from privypurse.runs._demo import run_demo

        accuracy, trained = run_demo(out, rows=rows, epsilon=epsilon, progress=progress)
    purse, report = trained.purse, out / "model" / "report.html"
    if json:
        emit({"accuracy": accuracy, "spent_epsilon": purse.spent.epsilon, "report": str(report)})
        return
    text = "private {}, not private {}, always the majority {} (best possible {})"
    say(f"accuracy on new people: {text.format(*map(percent, accuracy.values()))}")
    say(f"spent: epsilon {rounded_up(purse.spent.epsilon)} of {purse.epsilon:g} at delta {purse.delta:g}")
    say(f"report: {report}")
