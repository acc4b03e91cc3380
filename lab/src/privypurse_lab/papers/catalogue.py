"""Names of the papers, imported on use: one of them needs PyTorch."""

import importlib

from privypurse_lab.papers.items import Paper

_MODULES = {
    "pur": "pur",
    "adp-sgd": "adp_sgd",
    "dp-agd": "dp_agd",
    "dynamic-noise": "dynamic_noise",
    "lecture": "lecture",
    "summary": "summary",
}
NAMES = tuple(_MODULES)


def paper_named(name: str) -> Paper:
    """Return a paper by its name on the command line."""
    paper: Paper = importlib.import_module(f"privypurse_lab.papers.{_MODULES[name]}").PAPER
    return paper
