"""Private training of deep modules, in the user's own loop or in one call.

Needs ``privypurse[torch]``.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError("privypurse.pytorch needs PyTorch: pip install 'privypurse[torch]'.") from error

from privypurse.pytorch._checkpoint import resume, save
from privypurse.pytorch._clip_norms import AdaptiveClip
from privypurse.pytorch._fitting import DeepNesterov, Fitted, fit
from privypurse.pytorch._fixing import fix
from privypurse.pytorch._opening import open_purse
from privypurse.pytorch._private_loop import Private, make_private

__all__ = [
    "AdaptiveClip",
    "DeepNesterov",
    "Fitted",
    "Private",
    "fit",
    "fix",
    "make_private",
    "open_purse",
    "resume",
    "save",
]
