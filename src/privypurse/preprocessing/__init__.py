"""Features of images that need no privacy budget. Needs ``privypurse[torch]``."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError("privypurse.preprocessing needs PyTorch: pip install 'privypurse[torch]'.") from error

from privypurse.preprocessing._scattering import Scattering2D

__all__ = ["Scattering2D"]
