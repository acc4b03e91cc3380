"""Which papers there are. Each is read when it is asked for: one of them needs PyTorch, all of them take a moment."""

import importlib

from privypurse.papers.items import Paper

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
    """Return a paper by the name it has on the command line."""
    paper: Paper = importlib.import_module(f"privypurse.papers.{_MODULES[name]}").PAPER
    return paper
