"""Dynamic-noise paper (Hong, Wang, Wang and Zhou): influence of noise, and schedules from it."""

from privypurse_lab.papers.dynamic_noise.figure_2 import FIGURE_2
from privypurse_lab.papers.dynamic_noise.figure_3 import FIGURE_3
from privypurse_lab.papers.dynamic_noise.panels import ORDER
from privypurse_lab.papers.dynamic_noise.theory import FIGURE_1, TABLE_1
from privypurse_lab.papers.items import NOT_PRIVATE, Paper

PAPER = Paper(
    "dynamic-noise",
    "On Dynamic Noise Influence in Differential Private Learning",
    "Set-up of the paper's appendix D: learning rate 0.1, gradients clipped at 4, 1,000 records, R = sum 1/sigma_t^2 = 0.3927 "
    "(0.1963-zCDP, epsilon 4, delta 1e-8 by the classic conversion), noise sigma_t G/N on the mean gradient, add/remove with a "
    f"public N. As published, influences and numbers of steps come from the private records at no charge: these lines are "
    f"{NOT_PRIVATE} and dashed. Beside them a sound version takes both from other records, taken as public. Where the paper is "
    "silent: components are scaled to deviation 1 each; shorter runs take the end of a longer one's influences; "
    "influences are estimated at 21 of 100 steps.",
    (TABLE_1, FIGURE_1, FIGURE_2, FIGURE_3),
    reserved=ORDER,
)
