"""[PUBLIC] Methods and baselines: what a user passes as ``method=``."""

from privypurse.methods._adp_sgd import ADPSGD
from privypurse.methods._auto import Auto
from privypurse.methods._dp_agd import DPAGD
from privypurse.methods._dp_sgd import DPSGD
from privypurse.methods._minimisers import NonPrivate, ObjPert, OutPert
from privypurse.methods._nesterov import Nesterov
from privypurse.methods._noisy_pgd import NoisyPGD
from privypurse.methods._pur import PUR, AdaptivePUR, OraclePUR
from privypurse.methods._selections import FiniteModels, Majority, PrivGene
from privypurse.methods.dynamic import Dynamic

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
