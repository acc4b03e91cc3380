"""PUR (adaptive hyperparameter selection for private gradient descent): figures and tables."""

from privypurse_lab.papers.items import Paper
from privypurse_lab.papers.pur.figures import FIGURE_1, FIGURE_2
from privypurse_lab.papers.pur.paths import RESERVED
from privypurse_lab.papers.pur.rates import TABLE_1, TABLE_2
from privypurse_lab.papers.pur.readings import READINGS_TABLE
from privypurse_lab.papers.pur.table3 import TABLE_3

PAPER = Paper(
    "pur",
    "Adaptive Hyperparameter Selection for Differentially Private Gradient Descent",
    "Anonymous authors, under double-blind review. Logistic regression without a constant column, features standardised by the "
    "data and Z their longest row (both read from the data, uncharged, as in the paper: private only if they are taken as "
    "public, NOT PRIVATE as a whole), steps of 1/(2M) with M = lambda + Z^2/4, replace-one, zCDP composition, epsilon = rho + "
    "2 sqrt(rho ln(1/delta)), delta = 1/N. A curve is one long run with a purse of epsilon 20; noise levels are on the mean "
    "gradient. Not stated in the paper and chosen here: R = 10, F(0) - F* <= log 2, a start at zero (table readings tries "
    "others), the seed of the synthetic data. sigma_t = 4MR/(sqrt(d) "
    "t) is read for the printed 4MR/sqrt(dt), by its own proof.",
    (FIGURE_1, FIGURE_2, TABLE_1, TABLE_2, TABLE_3, READINGS_TABLE),
    reserved=RESERVED,
)
