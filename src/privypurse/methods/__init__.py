"""[PUBLIC] Methods: named recipes, one for each paper or idea. What a user passes as ``method=``."""

from privypurse.methods.adp_sgd import ADPSGD
from privypurse.methods.auto import Auto
from privypurse.methods.dp_agd import DPAGD
from privypurse.methods.dp_sgd import DPSGD
from privypurse.methods.dynamic import Dynamic
from privypurse.methods.nesterov import Nesterov
from privypurse.methods.noisy_pgd import NoisyPGD
from privypurse.methods.pur import PUR, AdaptivePUR
from privypurse.methods.pur_oracle import OraclePUR

__all__ = ["ADPSGD", "DPAGD", "DPSGD", "PUR", "AdaptivePUR", "Auto", "Dynamic", "Nesterov", "NoisyPGD", "OraclePUR"]
