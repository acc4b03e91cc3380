"""[PUBLIC] Methods and baselines, one file for each: what a user passes as ``method=``."""

from privypurse.methods.adp_sgd import ADPSGD
from privypurse.methods.auto import Auto
from privypurse.methods.dp_agd import DPAGD
from privypurse.methods.dp_sgd import DPSGD
from privypurse.methods.dynamic import Dynamic
from privypurse.methods.finite_models import FiniteModels
from privypurse.methods.majority import Majority
from privypurse.methods.nesterov import Nesterov
from privypurse.methods.noisy_pgd import NoisyPGD
from privypurse.methods.non_private import NonPrivate
from privypurse.methods.objective_perturbation import ObjPert
from privypurse.methods.output_perturbation import OutPert
from privypurse.methods.priv_gene import PrivGene
from privypurse.methods.pur import PUR, AdaptivePUR, OraclePUR

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
