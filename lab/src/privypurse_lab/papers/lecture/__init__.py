"""Lecture on private gradient descent: its theorem, lemma on sampling and accounting."""

from privypurse_lab.papers.items import Paper
from privypurse_lab.papers.lecture.composition import FIGURE_3
from privypurse_lab.papers.lecture.descent import FIGURE_1
from privypurse_lab.papers.lecture.sampling import FIGURE_2

PAPER = Paper(
    "lecture",
    "Lecture notes: private gradient descent",
    "The notes have no numbered figures and no experiments. Here their statements are drawn and held against exact numbers: "
    "the theorem on noisy projected descent against runs of `privypurse.methods.NoisyPGD` on made data, the lemma on "
    "sampling and the ways to count many steps against exact accounting. No data set is needed.",
    (FIGURE_1, FIGURE_2, FIGURE_3),
    reserved=("even",),
)
