"""Gaussian noise on a tensor, drawn on its device.

A GPU's generator is not cryptographic, and the operating system's entropy is only as fast as the
CPU. Here the operating system gives 32 bytes for each draw, and the stream cipher ChaCha20 (RFC
8439) expands them on the device, in one kernel, into as many random words as there are parameters.
"""

import functools
import math
import threading
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Sensitive
from privypurse.mechanisms._exact_gaussian import LARGEST_UNITS, Lattice, exact_gaussian
from privypurse.mechanisms._gaussian import Gaussian

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_MASK = 0xFFFFFFFF
_QUARTERS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
# One block of the cipher is 16 words of 32 bits: 8 normals, in pairs from 128 bits each.
_NORMALS_PER_BLOCK = 8


class SensitiveTensor(Sensitive):
    """A sealed sum of private values on a device such as a GPU; `bounds` are as for `Sensitive`.

    The maker bounded every record's contribution, so the sum is finite. It is not checked here,
    which would wait for the device.
    """

    __slots__ = ()

    def __init__(self, value: Tensor, **bounds: Any) -> None:
        super().__init__(0.0, **bounds)
        self._hold(value, tuple(value.shape))


def normals(shape: tuple[int, ...], device: torch.device, noise: NoiseSource) -> Tensor:
    """Draw standard normals in double precision on a device other than the CPU, with a key of `noise`."""
    count = math.prod(shape)
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    drawer = _drawer(device, -(-count // _NORMALS_PER_BLOCK), stream)
    if drawer is None:
        return torch.from_numpy(noise.normal(shape)).to(device)
    key = torch.from_numpy(noise.words(4).view("uint32").astype("int64"))
    return drawer(key)[:count].reshape(shape)


class _Drawer:
    """Turns keys into normals on one device and stream, by replaying a recorded CUDA graph.

    A key is used for one draw: threads take turns, and a copy is returned.
    """

    def __init__(self, device: torch.device, blocks: int) -> None:
        self._lock = threading.Lock()
        self._key = torch.zeros(8, dtype=torch.int64, device=device)
        self._blocks = torch.arange(blocks, device=device)
        self._function = torch.compile(to_normals, dynamic=True)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._out = self._function(self._key, self._blocks).flatten()
        if device.type == "cuda":
            aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(aside):
                self._function(self._key, self._blocks)
            torch.cuda.current_stream(device).wait_stream(aside)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._out = self._function(self._key, self._blocks).flatten()

    def __call__(self, key: Tensor) -> Tensor:
        """Return the normals of a key."""
        with self._lock:
            # Pinned, so that the copy is asynchronous; still ordered on the stream.
            self._key.copy_(key.pin_memory() if self._graph is not None else key, non_blocking=True)
            if self._graph is None:
                return self._function(self._key, self._blocks).flatten()
            self._graph.replay()
            return self._out.clone()


def keystream(key: Tensor, blocks: Tensor, nonce: tuple[int, int, int] = (0, 0, 0)) -> list[Tensor]:
    """Return ChaCha20's sixteen words for each block counter, as integers below 2^32.

    Counters above 2^32 continue into the first word of the nonce, which is zero: each draw has a key.
    """
    start = [torch.full_like(blocks, word) for word in _CONSTANTS]
    start += [key[k].expand_as(blocks) for k in range(8)]
    start += [blocks & _MASK, (blocks >> 32) ^ nonce[0], *(torch.full_like(blocks, word) for word in nonce[1:])]
    state = list(start)
    for _ in range(10):
        for a, b, c, d in (*_QUARTERS, *_DIAGONALS):
            for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                state[x] = (state[x] + state[y]) & _MASK
                mixed = state[z] ^ state[x]
                state[z] = ((mixed << turn) | (mixed >> (32 - turn))) & _MASK
    return [(word + first) & _MASK for word, first in zip(state, start, strict=True)]


def to_normals(key: Tensor, blocks: Tensor) -> Tensor:
    """Return eight normals for each block, by Box-Muller in double precision.

    The radius has 64 bits of its own. Near zero, where the tail is decided, the last 32 bits of the
    angle continue them. So no pair is longer than ``sqrt(194 ln 2)``, 11.6 standard deviations.
    That leaves out a probability of 2^-97 for each pair, 6.3e-30, and adds
    ``(1 + e^epsilon) N 2^-98`` to the delta of N numbers: 1e-14 for epsilon 8 and 10^12 of them.
    """
    words = keystream(key, blocks)
    out = []
    for k in range(0, 16, 4):
        high, low, turn, finer = (word.double() for word in words[k : k + 4])
        uniform = high * 2.0**-32 + (low * 2.0**-64 + (finer * 2.0**-96 + 2.0**-97))
        angle = 2 * math.pi * (turn * 2.0**-32 + finer * 2.0**-64)
        radius = torch.sqrt(-2.0 * torch.log(uniform))
        out += [radius * torch.cos(angle), radius * torch.sin(angle)]
    return torch.stack(out, dim=-1)


@functools.lru_cache(maxsize=16)
def _drawer(device: torch.device, blocks: int, stream: int) -> _Drawer | None:
    """Return a drawer of this many blocks, or None where compiling fails (use the CPU)."""
    try:
        return _Drawer(device, blocks)
    except Exception as error:
        what = f"noise could not be compiled for the device ({type(error).__name__}): it is drawn on the CPU"
        warnings.warn(f"{what}, which is slower.", RuntimeWarning, stacklevel=4)
        return None


@dataclass(frozen=True)
class TorchGaussian(Gaussian):
    """Add independent Gaussian noise to a tensor bounded in L2, on its device, as `Gaussian` does.

    Noise is in double precision. On the CPU it is the noise source's own; elsewhere the source gives
    a fresh key for each draw, which ChaCha20 expands on the device. Exact noise is drawn on the CPU
    and added on the device in integers.
    """

    # On a device, exact noise would dominate the time of a step, so purses must require it.
    exact_by_default: ClassVar[bool] = False

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> Lattice | None:
        """Return the lattice as `Gaussian` does; `draw` below is exact on it too."""
        return super().check_noise(box, neighbouring, noise)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> Any:
        value: torch.Tensor = box._value  # type: ignore[assignment]
        if noise.secure:
            lattice = super().check_noise(box, neighbouring, noise)
            assert lattice is not None
            units = exact_gaussian(value.numel(), lattice.std, noise.sampler != "secure", noise)
            drawn = torch.from_numpy(units).to(value.device)
            # As `Lattice.points` and `Lattice.add_noise`; a power of two scales exactly.
            largest = LARGEST_UNITS * lattice.unit
            points = (value.double().clamp(-largest, largest) / lattice.unit).round().to(torch.int64)
            noisy = (points + drawn.reshape(value.shape)).clamp(-LARGEST_UNITS, LARGEST_UNITS)
            return noisy.double() * lattice.unit
        on_cpu = value.device.type == "cpu"
        drawn = torch.from_numpy(noise.normal(box.shape)) if on_cpu else normals(box.shape, value.device, noise)
        return drawn.mul_(self.noise_std(box, neighbouring)).add_(value)
