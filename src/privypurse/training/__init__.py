"""The training loop of oracle, schedule, optimizer and purse, and its public record."""

from privypurse.training._checkpoint import Checkpoint
from privypurse.training._loop import Result, facts_for, fit, purse_for, train
from privypurse.training._plan import Facts, Plan, Recipe
from privypurse.training._prediction import linear_scores, softmax_scores
from privypurse.training._progress import ProgressBar

__all__ = [
    "Checkpoint",
    "Facts",
    "Plan",
    "ProgressBar",
    "Recipe",
    "Result",
    "facts_for",
    "fit",
    "linear_scores",
    "purse_for",
    "softmax_scores",
    "train",
]
