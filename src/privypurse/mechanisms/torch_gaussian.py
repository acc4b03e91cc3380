"""Gaussian noise on a tensor, drawn where the tensor is."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Sensitive
from privypurse.mechanisms.exact_gaussian import exact_gaussian
from privypurse.mechanisms.exact_lattice import LARGEST_UNITS
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
    key for each draw, which ChaCha20 expands on the device. Exact noise is drawn on the CPU, and added on the device in whole
    numbers.
    """

    # On a device, exact noise would be most of the time of a step: it is drawn where it is asked for.
    exact_by_default: ClassVar[bool] = False

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> None:
        """Refuse, before payment, what exact noise cannot be drawn for."""
        super().check_noise(box, neighbouring, noise)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> Any:
        """Return the value plus noise, as a tensor in double precision."""
        value: torch.Tensor = box._value  # type: ignore[assignment]
        if noise.secure:
            lattice = self._lattice(box, neighbouring, noise)
            drawn = torch.from_numpy(exact_gaussian(value.numel(), lattice.std, noise)).to(value.device)
            # As `Lattice.points` and `Lattice.add_noise`; a power of two scales exactly, and double precision rounds to even.
            largest = LARGEST_UNITS * lattice.unit
            points = (value.double().clamp(-largest, largest) / lattice.unit).round().to(torch.int64)
            noisy = (points + drawn.reshape(value.shape)).clamp(-LARGEST_UNITS, LARGEST_UNITS)
            return noisy.double() * lattice.unit
        return value.double() + self.noise_std(box, neighbouring) * normals(box.shape, value.device, noise)
