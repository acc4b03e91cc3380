"""`privypurse plan`."""

import json as json_module
import pathlib
from dataclasses import asdict
from typing import Annotated, Any

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import emit, note, say, span, sparkline, table
from privypurse.cli._progress import shown_progress
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import percent, short


def plan(
    records: Annotated[int, options.option("--records", "-n", help="Number of records, public or approximate.")],
    epsilon: Annotated[float, options.option("--epsilon", "-e", help="Budget of the training.")],
    features: Annotated[
        int | None, options.option("--features", "-d", help="Number of encoded columns, the constant included.")
    ] = None,
    schema: Annotated[
        pathlib.Path | None, options.option("--schema", "-s", help="Count the columns of this schema instead.")
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="Far below one over the number of records.")] = 1e-6,
    neighbouring: Annotated[str, typer.Option("--neighbouring", help="add-remove or replace-one.")] = "add-remove",
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="auto, nesterov, noisy-pgd, dp-sgd, pur-nonconvex, pur-convex, pur-strongly-convex, dynamic, dp-agd or adp-sgd.",
        ),
    ] = "auto",
    compare: Annotated[bool, typer.Option("--compare", help="Plan with every method.")] = False,
    classes: Annotated[int, typer.Option("--classes", help="Number of classes.")] = 2,
    rehearse: Annotated[
        bool, typer.Option("--rehearse/--no-rehearse", help="Train on synthetic tables to estimate the accuracy.")
    ] = True,
    plot: Annotated[pathlib.Path | None, options.output("--plot", help="HTML page to write.")] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Plan a method from public numbers, without data: steps, noise, spending and accuracy.

    Examples:

        privypurse plan --records 40000 --features 124 --epsilon 0.1 --delta 1e-8

        privypurse plan --records 40000 --features 124 --epsilon 0.1 --delta 1e-8 --compare

        privypurse plan -n 40000 -d 124 -e 1 --method dp-agd --json

    The loss is logistic, or softmax for several classes, with rows of norm at most 1 and
    derivatives clipped at 1/2. Noise is added to sums of clipped gradients. `train` spends about a
    fifth of the budget before that, on facts about the table.
    """
    from privypurse.runs._plan import METHODS, PlanSettings, plan_for, rehearse_accuracy

    columns, classes = _columns(features, schema, classes)
    settings = PlanSettings(
        records=records, features=columns, epsilon=epsilon, delta=delta, neighbouring=neighbouring, classes=classes
    )
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
        shown = {name: _as_json(plans[name], rehearsed[name]) for name in names}
        emit({"plans": shown} if compare else shown[method])
    elif compare:
        _print_all(plans, rehearsed, settings)
    else:
        _print_one(plans[method], rehearsed[method], settings)
    if plot is not None and not json:
        say(f"plot: {plot}")


def _columns(features: int | None, schema: pathlib.Path | None, classes: int) -> tuple[int, int]:
    """Return the number of encoded columns, the constant included, and of classes."""
    from privypurse.tables.schema import ClassTarget, read_schema

    if (features is None) == (schema is None):
        raise InvalidArgument(
            "expected one of features and schema, got both or none. Pass --features 124 or --schema people.toml."
        )
    if schema is None:
        return features or 0, classes
    described = read_schema(schema)
    found = len(described.target.classes) if isinstance(described.target, ClassTarget) else classes
    return len(described.features) + 1, found


def _facts_line(settings: Any) -> str:
    return (
        f"{settings.records:,} records, {settings.features} columns, epsilon {settings.epsilon:g}, delta {settings.delta:g}, "
        f"{settings.neighbouring}"
    )


def _as_json(plan: Any, rehearsed: Any) -> dict[str, Any]:
    fields: dict[str, Any] = json_module.loads(plan.to_json())
    return fields | {"rehearsal": None if rehearsed is None else asdict(rehearsed)}


def _loss(rehearsed: Any) -> str:
    return "" if rehearsed is None else f"{100 * rehearsed.loss:.1f} ± {100 * rehearsed.loss_std:.1f}"


def _print_one(plan: Any, rehearsed: Any, settings: Any) -> None:
    say(f"{plan.method}: {_facts_line(settings)}")
    sampled = f", each on a sample of {percent(plan.sample_prob)}" if plan.sample_prob < 1 else ""
    say(f"  steps       {plan.steps}{sampled}")
    say(f"  clip norm   {short(plan.clip_norm)}")
    spending = [one**2 for one in plan.mu]
    for name, values in (("step size", plan.step_sizes), ("noise std", plan.noise_std), ("mu", plan.mu)):
        if values:
            say(f"  {name:<11} {span(values)}")
    if plan.selection_epsilon:
        say(f"  selections  {len(plan.selection_epsilon)}, epsilon {short(plan.selection_epsilon[0])} each at first")
    if plan.noise_std:
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
        say(
            f"  rehearsal   on synthetic tables: accuracy {percent(rehearsed.private)}, without privacy "
            f"{percent(rehearsed.non_private)}, majority {percent(rehearsed.majority)}"
        )
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
