"""[PUBLIC] What methods are compared with. They run through the same gate, and are passed as ``method=`` like all others."""

from privypurse.baselines.finite_models import FiniteModels
from privypurse.baselines.majority import Majority
from privypurse.baselines.non_private import NonPrivate
from privypurse.baselines.objective_perturbation import ObjPert
from privypurse.baselines.output_perturbation import OutPert
from privypurse.baselines.priv_gene import PrivGene

__all__ = ["FiniteModels", "Majority", "NonPrivate", "ObjPert", "OutPert", "PrivGene"]
