"""The training loop of oracle, schedule, optimizer and purse, and its public record."""

from privypurse.training.checkpoint import Checkpoint
from privypurse.training.facts import Facts
from privypurse.training.fit import facts_for, fit, purse_for
from privypurse.training.loop import Result, train
from privypurse.training.plan import Method, Plan, Recipe
from privypurse.training.prediction import linear_scores, softmax_scores
from privypurse.training.progress import Callback, ProgressBar
from privypurse.training.trace import Step, Trace

__all__ = [
    "Callback",
    "Checkpoint",
    "Facts",
    "Method",
    "Plan",
    "ProgressBar",
    "Recipe",
    "Result",
    "Step",
    "Trace",
    "facts_for",
    "fit",
    "linear_scores",
    "purse_for",
    "softmax_scores",
    "train",
]
