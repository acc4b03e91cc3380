"""Gaussian noise on a tensor, drawn where the tensor is."""

from dataclasses import dataclass
from typing import Any

import torch

from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Sensitive
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.mechanisms.torch_normals import normals


@dataclass(frozen=True)
class TorchGaussian(Gaussian):
    """Add independent Gaussian noise to every coordinate of a tensor bounded in L2, on its own device.

    Parameters
    ----------
    noise_multiplier : float
        As for `Gaussian`.

    Guarantees
    ----------
    As for `Gaussian`. Noise is in double precision; on the CPU it is the noise source's own, elsewhere the source gives a fresh
    key for each draw, which ChaCha20 expands on the device.
    """

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> Any:
        """Return the value plus noise, as a tensor in double precision."""
        value: torch.Tensor = box._value  # type: ignore[assignment]
        return value.double() + self.noise_std(box, neighbouring) * normals(box.shape, value.device, noise)
