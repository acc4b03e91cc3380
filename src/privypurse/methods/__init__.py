"""[PUBLIC] Methods and baselines, one file for each: what a user passes as ``method=``."""

from privypurse.methods.adp_sgd import ADPSGD
from privypurse.methods.auto import Auto
from privypurse.methods.dp_agd import DPAGD
from privypurse.methods.dp_sgd import DPSGD
from privypurse.methods.dynamic import Dynamic
from privypurse.methods.minimisers import NonPrivate, ObjPert, OutPert
from privypurse.methods.nesterov import Nesterov
from privypurse.methods.noisy_pgd import NoisyPGD
from privypurse.methods.pur import PUR, AdaptivePUR, OraclePUR
from privypurse.methods.selections import FiniteModels, Majority, PrivGene

__all__ = [
    "ADPSGD",
    "DPAGD",
    "DPSGD",
    "PUR",
    "AdaptivePUR",
    "Auto",
    "Dynamic",
    "FiniteModels",
    "Majority",
    "Nesterov",
    "NoisyPGD",
    "NonPrivate",
    "ObjPert",
    "OraclePUR",
    "OutPert",
    "PrivGene",
]
