"""`privypurse plan` and `compare`: which method and budget to use."""

import json as json_module
import pathlib
from dataclasses import asdict
from typing import Annotated, Any

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import (
    PAGE,
    budget_of,
    emit,
    note,
    note_account,
    say,
    shown_progress,
    span,
    sparkline,
    stderr,
    table,
    warn_if_weak,
)
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted, percent, rounded_up, short


def plan(
    records: Annotated[int, options.option("--records", "-n", help="Number of records, public or approximate.")],
    epsilon: Annotated[float, options.option("--epsilon", "-e", help="Budget of the training.")],
    features: Annotated[
        int | None, options.option("--features", "-d", help="Number of encoded columns, the constant included.")
    ] = None,
    schema: Annotated[
        pathlib.Path | None,
        options.option("--schema", "-s", help="Count those of this schema instead.", complete=options.complete_schema),
    ] = None,
    ledger: options.LedgerHere = None,
    dataset: Annotated[
        str | None,
        options.dataset(help="Also say what the run leaves of this data set's budget, with the delta of its ledger."),
    ] = None,
    delta: options.Delta = None,
    neighbouring: options.Neighbouring = None,
    method: options.Method = "auto",
    compare: Annotated[bool, typer.Option("--compare", help="Plan with every method.")] = False,
    classes: Annotated[int, typer.Option("--classes", help="Number of classes.")] = 2,
    rehearse: Annotated[
        bool, typer.Option("--rehearse/--no-rehearse", help="Train on synthetic tables to estimate the accuracy.")
    ] = True,
    plot: Annotated[pathlib.Path | None, options.output("--plot", help="Page to write.", metavar=PAGE)] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Plan a method from public numbers, without data: steps, noise, spending and accuracy.

    Examples:

        privypurse plan --records 40000 --features 124 --epsilon 0.1 --delta 1e-8

        privypurse plan --records 40000 --features 124 --epsilon 0.1 --delta 1e-8 --compare

        privypurse plan -n 40000 -d 124 -e 1 --method dp-agd --json

        privypurse plan -n 40000 -d 124 -e 1 --ledger budget.db --dataset "survey 2026"

    The loss is logistic, or softmax for several classes, with rows of norm at most 1 and
    derivatives clipped at 1/2. Noise is added to sums of clipped gradients. `train` spends about a
    fifth of the budget before that, on facts about the table. With --dataset a run that does not fit
    in what is left is refused, as `train` would.
    """
    from privypurse.runs._rehearse import METHODS, PlanSettings, plan_for, rehearse_accuracy

    warn_if_weak(epsilon=epsilon)
    columns, classes = _columns(features, schema, classes)
    leaves = _forecast(ledger, dataset, epsilon, delta=delta, neighbouring=neighbouring)
    given: Any = {"delta": delta, "neighbouring": neighbouring}
    given |= {} if leaves is None else {"delta": leaves.delta, "neighbouring": leaves.neighbouring}
    terms = {name: value for name, value in given.items() if value is not None}
    settings = PlanSettings(records=records, features=columns, classes=classes, epsilon=epsilon, **terms)
    names = METHODS if compare else (method,)
    plans = {name: plan_for(name, settings) for name in names}
    rehearsed: dict[str, Any] = dict.fromkeys(names)
    if rehearse:
        with shown_progress(quiet) as progress:
            for name in names:
                progress.stage(f"rehearsing {name} on synthetic tables", 5)
                rehearsed[name] = rehearse_accuracy(name, settings, progress)
    if plot is not None:
        from privypurse.report._comparisons import render_plans
        from privypurse.runs.folder import replace_file

        replace_file(plot, render_plans(list(plans.values()), _facts_line(settings)))
    if json:
        found = {name: None if one is None else asdict(one) for name, one in rehearsed.items()}
        shown = {name: json_module.loads(plans[name].to_json()) | {"rehearsal": found[name]} for name in names}
        emit(({"plans": shown} if compare else shown[method]) | ({"ledger": asdict(leaves)} if leaves else {}))
    elif compare:
        _print_all(plans, rehearsed, settings)
    else:
        _print_one(plans[method], rehearsed[method], settings)
    if leaves is not None and not json:
        say(f"leaves: {leaves}")
    if plot is not None and not json:
        say(f"plot: {plot}")


def _forecast(ledger: pathlib.Path | None, dataset: str | None, epsilon: float, **terms: Any) -> Any:
    """Return what the run would leave of a data set's budget; None if no data set is named."""
    from privypurse.cli._ledger import accounts_on, open_ledger
    from privypurse.runs._account import Account, forecast

    if dataset is None:
        if ledger is not None:
            raise InvalidArgument(f"expected --dataset with --ledger {str(ledger)!r}, got none. Pass a name on it.")
        return None
    account = Account(ledger=ledger, dataset=dataset, **terms)
    (purse,) = accounts_on(open_ledger(ledger), dataset)
    account.check_terms(purse)
    return forecast(account, purse, epsilon, is_new=False)


def _columns(features: int | None, schema: pathlib.Path | None, classes: int) -> tuple[int, int]:
    """Return the number of encoded columns, the constant included, and of classes."""
    from privypurse.tables._schema import ClassTarget, read_schema

    if (features is None) == (schema is None):
        raise InvalidArgument("expected one of features and schema, got both or none. Pass for example --features 124.")
    if schema is None:
        return features or 0, classes
    described = read_schema(schema)
    if described.to_bend:
        curves = f"`train` releases knots of curves for {counted(len(described.to_bend), 'column')} of numbers first"
        note(f"{curves}, and so has more columns than are planned here")
    if described.target is not None and not isinstance(described.target, ClassTarget):
        note("the target is a number: this is the plan for two classes, which differs from that of a regression")
    found = len(described.target.classes) if isinstance(described.target, ClassTarget) else classes
    return len(described.features) + 1, found


def _facts_line(settings: Any) -> str:
    budget = f"epsilon {settings.epsilon:g}, delta {settings.delta:g}, {settings.neighbouring}"
    return f"{counted(settings.records, 'record')}, {counted(settings.features, 'column')}, {budget}"


def _loss(rehearsed: Any) -> str:
    return "" if rehearsed is None else f"{100 * rehearsed.loss:.1f} ± {100 * rehearsed.loss_std:.1f}"


def _print_one(plan: Any, rehearsed: Any, settings: Any) -> None:
    say(f"{plan.method}: {_facts_line(settings)}")
    sampled = f", each on a sample of {percent(plan.sample_prob)}" if plan.sample_prob < 1 else ""
    say(f"  steps       {plan.steps}{sampled}")
    say(f"  clip norm   {short(plan.clip_norm)}")
    for name, values in (("step size", plan.step_sizes), ("noise std", plan.noise_std), ("mu", plan.mu)):
        if values:
            say(f"  {name:<11} {span(values)}")
    if plan.selection_epsilon:
        say(f"  selections  {len(plan.selection_epsilon)}, epsilon {short(plan.selection_epsilon[0])} each at first")
    if plan.noise_std:
        spending = [one**2 for one in plan.mu]
        say(f"  noise       {sparkline(plan.noise_std)}")
        say(f"  spending    {sparkline(spending)}")
        picked = sorted({0, plan.steps // 4, plan.steps // 2, 3 * plan.steps // 4, plan.steps - 1})
        total = sum(spending)
        rows = []
        for index in (index for index in picked if index < len(plan.noise_std)):
            size = short(plan.step_sizes[index]) if index < len(plan.step_sizes) else "chosen"
            share = percent(sum(spending[: index + 1]) / total)
            rows.append([str(index + 1), size, short(plan.noise_std[index]), short(plan.mu[index]), share])
        table(("step", "step size", "noise std", "mu", "share of the spending so far"), rows)
    if plan.bound is not None:
        say(f"  theory      {plan.bound.quantity}: at most {short(plan.bound.value)}")
    if 1 / settings.facts.noise_floor < 10:
        note("  at this budget the noise of a gradient is about as long as the gradient: little can be learnt")
    for remark in plan.notes:
        note(f"  {remark}")
    if rehearsed is not None:
        others = f"without privacy {percent(rehearsed.non_private)}, majority {percent(rehearsed.majority)}"
        say(f"  rehearsal   on synthetic tables: accuracy {percent(rehearsed.private)}, {others}")
        say(f"              loss of {_loss(rehearsed)} points over 5 seeds; your table is another one")


def _print_all(plans: dict[str, Any], rehearsed: dict[str, Any], settings: Any) -> None:
    rows = []
    for name, plan in plans.items():
        noise = span(plan.noise_std) if plan.noise_std else ""
        rows.append([name, str(plan.steps), noise, sparkline(plan.noise_std, 16), _loss(rehearsed[name])])
    columns = ("method", "steps", "noise std, first to last", "over steps", "accuracy lost, points")
    table(columns, rows, title=_facts_line(settings))
    if any(rehearsed.values()):
        say("accuracy lost: against training without privacy, on synthetic tables, mean ± spread over 5 seeds")


def compare(
    data: options.DataFile,
    target: options.Target,
    schema: options.SchemaFile = None,
    methods: Annotated[
        str, typer.Option("--methods", help="Separated by commas.", autocompletion=options.complete_methods)
    ] = "auto,nesterov,dp-agd,adp-sgd",
    epsilons: Annotated[str, typer.Option("--epsilons", help="Separated by commas.")] = "0.1,0.5,1,2",
    repeats: Annotated[int, typer.Option("--repeats", help="Number of splits and seeds of the simulation.")] = 3,
    pay: Annotated[bool, typer.Option("--pay", help="Make a private comparison, charged to the budget.")] = False,
    plot: Annotated[pathlib.Path | None, options.output("--plot", help="Page to write.", metavar=PAGE)] = None,
    overwrite: options.Overwrite = False,
    ledger: options.Ledger = None,
    dataset: options.Dataset = None,
    budget: options.Budget = None,
    delta: options.Delta = None,
    neighbouring: options.Neighbouring = None,
    who: options.Who = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = "utf-8",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods and budgets on a table.

    Examples:

        privypurse compare public.csv --target income --schema people.toml

        privypurse compare people.csv --target income --schema people.toml --methods auto,dp-agd
        --epsilons 0.5 --pay --budget 3

    By default the comparison is an exact simulation, NOT PRIVATE, for public data. With --pay each
    fit spends its epsilon from the budget of the data set, and the guarantee covers the output.
    """
    from privypurse.runs import _compare as job
    from privypurse.runs._account import put_on_record
    from privypurse.runs._rows import describe_columns
    from privypurse.runs.folder import replace_file
    from privypurse.tables._files import TableFile

    names = _parts(methods)
    try:
        budgets = list(map(float, _parts(epsilons)))
    except ValueError as error:
        message = f"expected numbers separated by commas in epsilons, got {epsilons!r}. Pass for example 0.1,1."
        raise typer.BadParameter(message) from error
    job.check_choices(names, budgets, repeats)
    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    file.require([target])
    if pay:
        warn_if_weak(epsilons=max(budgets), budget=budget)
    else:
        stderr.print(job.NOT_PRIVATE, style="bold red", markup=False)
    purse: Any = None
    with shown_progress(quiet) as progress:
        described = describe_columns(file, target, schema, progress)
        terms: Any = {"budget": budget, "delta": delta, "neighbouring": neighbouring, "who": who}
        account = options.account_for(data, dataset, charged=pay, ledger=ledger, **terms)
        if pay:

            def purse_to_charge() -> Any:
                nonlocal purse
                purse, is_new = account.open(None)
                note_account(purse, is_new, budget)
                return purse

            result = job.compare_paid(file, described, names, budgets, purse_to_charge, progress)
        else:
            what = f"a comparison of methods on the records of {data.name}, and how many are left out, measured exactly"
            put_on_record([account], what)
            result = job.compare_not_private(file, described, names, budgets, repeats, progress)
    if plot is not None:
        from privypurse.report._comparisons import render_comparison

        replace_file(plot, render_comparison(result, f"{target}, from {data.name}"))
    if json:
        emit(asdict(result) | {"budget": budget_of(purse)})
    else:
        _print_comparison(result, names, budgets)
        if purse is not None:
            say(f"spent: epsilon {rounded_up(purse.spent.epsilon)} of {purse.epsilon:g} on data set {purse.dataset!r}")
        if plot is not None:
            say(f"plot: {plot}")


def _print_comparison(result: Any, names: list[str], budgets: list[float]) -> None:
    shown = percent if result.metric == "accuracy" else short
    found = {(entry.method, entry.epsilon): entry for entry in result.entries}
    rows = []
    for name in dict.fromkeys(entry.method for entry in result.entries):
        plain = found.get((name, None))
        cells = [plain or found.get((name, epsilon)) for epsilon in budgets]
        rows.append([name, *("" if cell is None else f"{shown(cell.value)} ± {shown(cell.spread)}" for cell in cells)])
    overlap = "half of a 95 % interval; where intervals overlap, no difference was shown"
    spread = overlap if result.private else f"spread over {counted(result.repetitions, 'split')} and as many seeds"
    table((f"{result.metric} at epsilon", *(f"{epsilon:g}" for epsilon in budgets)), rows)
    say(f"after ±: {spread}. {result.note}")


def _parts(listed: str) -> list[str]:
    return [part.strip() for part in listed.split(",") if part.strip()]
