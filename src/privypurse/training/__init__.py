"""The loop in which oracle, schedule, optimizer and purse meet, and the public record it leaves."""

from privypurse.training.checkpoint import Checkpoint
from privypurse.training.fit import facts_for, fit, open_purse
from privypurse.training.loop import Result, train
from privypurse.training.prediction import linear_scores, softmax_scores
from privypurse.training.progress import Callback, ProgressBar
from privypurse.training.trace import Step, Trace

__all__ = [
    "Callback",
    "Checkpoint",
    "ProgressBar",
    "Result",
    "Step",
    "Trace",
    "facts_for",
    "fit",
    "linear_scores",
    "open_purse",
    "softmax_scores",
    "train",
]
