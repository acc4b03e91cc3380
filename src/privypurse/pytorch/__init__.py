"""Private training of deep modules, in the user's own loop or in one call.

Needs ``privypurse[torch]``.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError("privypurse.pytorch needs PyTorch: pip install 'privypurse[torch]'.") from error

from privypurse.pytorch.budgets import AdaptiveClip, open_purse, shape
from privypurse.pytorch.checkpoint import resume, save
from privypurse.pytorch.engine import Engine
from privypurse.pytorch.fitting import DeepNesterov, Fitted, fit
from privypurse.pytorch.oracle import ModuleOracle
from privypurse.pytorch.private_loop import Private, PrivateLoader, make_private

__all__ = [
    "AdaptiveClip",
    "DeepNesterov",
    "Engine",
    "Fitted",
    "ModuleOracle",
    "Private",
    "PrivateLoader",
    "fit",
    "make_private",
    "open_purse",
    "resume",
    "save",
    "shape",
]
