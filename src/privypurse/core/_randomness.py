"""Sources of noise: the operating system, or a seed, which marks all results as a simulation."""

import functools
import importlib.util
import json
import math
import os
import secrets
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument, SharedAcrossProcesses

Words = NDArray[np.uint64]
Shape = tuple[int, ...]

# Smallest delta for floating-point noise, in which a single number has probability about 2^-52.
LEAST_PLAIN_DELTA = 1e-15
# Numbers below this many steps get further random bits, because they decide the tails.
_COARSE, _FURTHER_WORDS = 2**10, 15
# From this number of words on, a cipher with a new key is faster than the operating system.
_LEAST_EXPANDED = 256
# Pairs of normals computed together without a seed: as many as fit the processor's cache.
_BLOCK = 2**14
_ONE = np.float64(1.0).view(np.uint64)
# sin(x)/x - 1 as a polynomial in x^2, for |x| up to pi/4, within 2^-57 (fdlibm, k_sin.c).
_SINE = (
    -1.66666666666666324348e-01,
    8.33333333332248946124e-03,
    -1.98412698298579493134e-04,
    2.75573137070700676789e-06,
    -2.50507602534068634195e-08,
    1.58969099521155010221e-10,
)

# Sampler names that a purse accepts, and what they add to the text of a source.
SAMPLERS = {
    "plain": "",
    "secure": ", exact arithmetic",
    "discrete": ", exact arithmetic (discrete Gaussian)",
    "opendp": ", exact arithmetic (discrete Gaussian by OpenDP)",
}


_process_token = secrets.token_bytes(16)


def this_process() -> tuple[int, bytes]:
    """Return the process id, which may be reused, and random bytes redrawn in every fork."""
    return os.getpid(), _process_token


def _draw_process_token() -> None:
    global _process_token
    _process_token = secrets.token_bytes(16)


os.register_at_fork(after_in_child=_draw_process_token)


class Shared:
    """Makes copies of an object the object itself: a copied ledger would be a second budget."""

    def __copy__(self, *_: Any) -> Any:
        return self

    __deepcopy__ = __sklearn_clone__ = __copy__


class NoiseSource(Shared):
    """Random numbers for noise and for secret sampling.

    Parameters
    ----------
    seed : int or None, default None
        None takes random words from the operating system's cryptographic generator, and more than a
        few from ChaCha20 (RFC 8439) under a key from there, which is used for one call. A seed
        makes the run repeatable and therefore *not private*: the ledger, the certificate and the
        report of everything that used the source are marked as a simulation.
    secure : None, bool or {"discrete", "opendp"}
        How mechanisms draw. True: exact noise on a lattice, so that the last digits of a released
        number reveal nothing; mechanisms without an exact sampler are refused. False: floating
        point. None (default): exact wherever that costs little, floating point elsewhere and in
        simulations; the ledger records which. "discrete": the discrete Gaussian. "opendp": that of
        the OpenDP library. Both need a purse with the zCDP filter.

    Attributes
    ----------
    sampler : {"plain", "secure", "discrete", "opendp"}
        How mechanisms draw from this source.
    secure : bool
        Whether that is exact noise.
    strict : bool
        Whether a mechanism without this sampler is refused; else floating point is used.

    Guarantees
    ----------
    * A copy is the source itself, so that no two sources repeat one stream.
    * Without a seed the process holds no generator state: each call asks the operating system for
      its words or for a 256-bit key, which is dropped before the call returns. So forked, spawned
      and copied processes never draw the same noise, and a memory dump does not hold future noise.
    * Both modes share all code that turns random words into noise, so tests of the seeded
      distribution also cover the real one. Normals are the exception: without a seed they are
      computed in blocks and with a polynomial for the sine, and have tests of their own.
    * A seeded source refuses to be carried into another process (fork or pickle), where it would
      repeat itself. `spawn` gives independent children for parallel work.

    Notes
    -----
    *Tails.* A sampler that leaves out a tail of probability t makes what would be
    (epsilon, delta)-DP, in N draws, (epsilon, delta + (1 + e^epsilon) N t)-DP. Normals from a 64-bit
    word would end at 9.49 standard deviations, with t = 2^-65 for a pair; exponential and Gumbel
    variables from 52 bits at 36.7, with t = 2^-53. So words next to the end are continued by 960
    further bits: normals go up to 37 standard deviations and the others up to 702, with t below
    2^-1000. On a device normals end at 11.6 (``mechanisms/_torch_gaussian.py``).

    *Grid.* Floating-point noise has gaps between representable numbers and about 52 random bits, so
    purses refuse a delta below `LEAST_PLAIN_DELTA` with it. See ``docs/sharp_edges.md``, and
    ``docs/proofs/exact_noise.md`` for exact noise.

    Examples
    --------
    >>> NoiseSource().simulation
    False
    >>> NoiseSource(seed=7).normal((2,)).round(3)
    array([-1.101,  0.551])
    """

    def __init__(self, seed: int | None = None, *, secure: bool | str | None = None) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
            raise InvalidArgument(f"seed must be None or a whole number from 0; got {seed!r}. Pass seed=7 to simulate.")
        named = isinstance(secure, str) and secure in ("discrete", "opendp")
        if not (secure is None or isinstance(secure, bool) or named):
            raise InvalidArgument(f"secure must be None, a bool, 'discrete' or 'opendp'; got {secure!r}. Pass True.")
        if secure == "opendp" and importlib.util.find_spec("opendp") is None:
            what = "noise 'opendp' needs opendp: pip install 'privypurse[opendp]'"
            raise InvalidArgument(f"{what}. Or use 'discrete', with filter='zcdp'.")
        if secure == "opendp" and seed is not None:
            what = f"seed must be None with secure='opendp'; got {seed!r}"
            raise InvalidArgument(f"{what}. Pass secure='discrete' for a simulation.")
        exact = seed is None if secure is None else secure
        self.sampler = exact if isinstance(exact, str) else "secure" if exact else "plain"
        self.secure, self.strict = self.sampler != "plain", secure is not None
        self._generator = None if seed is None else np.random.Philox(np.random.SeedSequence(int(seed)))
        self._process = this_process()

    @classmethod
    def parse(cls, noise: "NoiseSource | str | None") -> "NoiseSource":
        """Return the source, or a private one from a name: "auto" or one of `SAMPLERS`."""
        if isinstance(noise, cls):
            return noise
        if noise is None or noise == "auto":
            return cls()
        if not isinstance(noise, str) or noise not in SAMPLERS:
            what = f"noise must be a NoiseSource, 'auto' or one of {', '.join(map(repr, SAMPLERS))}; got {noise!r}"
            raise InvalidArgument(f"{what}. Omit it for private noise, or pass NoiseSource(seed=7) for a simulation.")
        return cls(secure={"plain": False, "secure": True}.get(noise, noise))

    @property
    def simulation(self) -> bool:
        """Whether the numbers are repeatable, so that nothing drawn from them is private."""
        return self._generator is not None

    def words(self, count: int) -> Words:
        """Draw 64-bit words, uniform and independent."""
        if self._generator is None:
            return np.frombuffer(os.urandom(8 * count), np.uint64) if count < _LEAST_EXPANDED else _expanded(count)
        if this_process() != self._process:
            what = "a seeded noise source was carried into a forked process, where it would repeat the parent's noise"
            raise SharedAcrossProcesses(f"{what}. Call spawn(k) before forking and give each process its own child.")
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)

    def normal(self, shape: Shape) -> FloatArray:
        """Draw standard normals."""
        count = math.prod(shape)
        if self._generator is None and count >= _LEAST_EXPANDED:
            return self._many_normals(count).reshape(shape)
        pairs = (count + 1) // 2
        words = self.words(2 * pairs)
        radius = np.sqrt(-2.0 * np.log(self._fractions(words[:pairs], 64)))
        angle = 2.0 * np.pi * (words[pairs:] * 2.0**-64)
        out = np.empty(2 * pairs)
        out[0::2] = radius * np.cos(angle)
        out[1::2] = radius * np.sin(angle)
        return np.asarray(out[:count].reshape(shape), dtype=np.float64)

    def _many_normals(self, count: int) -> FloatArray:
        """Draw normals in blocks: of each, the first ones of the pairs, then the second ones."""
        out = np.empty(count + count % 2)
        scratch = np.empty((3, _BLOCK))
        for first in range(0, out.size, 2 * _BLOCK):
            part = out[first : first + 2 * _BLOCK].reshape(2, -1)
            pairs = part.shape[1]
            words = self.words(2 * pairs)
            self._exponentials(words[:pairs], scratch[0, :pairs])
            _on_circles(scratch[0, :pairs], words[pairs:], scratch[1:, :pairs], part)
        return out[:count]

    def _exponentials(self, words: Words, out: FloatArray) -> None:
        """Write ``-log u`` for midpoints u of 2^52 steps; where u is small, which are the tails, of finer ones."""
        bits = out.view(np.uint64)
        np.right_shift(words, np.uint64(12), out=bits)
        bits |= _ONE
        out -= 1.0 - 2.0**-53
        small = np.flatnonzero(words < np.uint64(2**34))
        out[small] = self._fractions(words[small], 64)
        np.negative(np.log(out, out=out), out=out)

    def uniform(self, shape: Shape) -> FloatArray:
        """Draw uniforms strictly between 0 and 1 (52 bits)."""
        return self._fractions(self.words(math.prod(shape)) >> np.uint64(12), 52).reshape(shape)

    def exponential(self, shape: Shape) -> FloatArray:
        """Draw standard exponentials."""
        steps = self.words(math.prod(shape)) >> np.uint64(12)
        out = -np.log(self._fractions(steps, 52))
        # Near 1, take the logarithm from the distance to 1, which has finer steps.
        above = np.uint64(2**52 - 1) - steps
        if (near := above < _COARSE).any():
            out[near] = -np.log1p(-self._fractions(above[near], 52))
        return out.reshape(shape)

    def _fractions(self, steps: Words, bits: int) -> FloatArray:
        """Return midpoints of steps of ``2^-bits`` in (0, 1); small ones get further bits."""
        out = steps * 2.0**-bits + 2.0 ** -(bits + 1)
        for place in np.flatnonzero(steps < _COARSE):
            further = int.from_bytes(self.words(_FURTHER_WORDS).tobytes(), "little")
            within = (int(steps[place]) << 64 * _FURTHER_WORDS) + further
            out[place] = (2 * within + 1) / 2 ** (64 * _FURTHER_WORDS + bits + 1)
        return np.asarray(out, dtype=np.float64)

    def gumbel(self, shape: Shape) -> FloatArray:
        """Draw standard Gumbel variables."""
        return -np.log(self.exponential(shape))

    def spawn(self, count: int) -> "list[NoiseSource]":
        """Make independent sources; of a seeded one they depend on seed and position only."""
        if self._generator is None:
            return [NoiseSource(secure=self._as_argument) for _ in range(count)]
        children = []
        for sequence in self._generator.seed_seq.spawn(count):  # type: ignore[attr-defined]
            child = NoiseSource(seed=0, secure=self._as_argument)
            child._generator = np.random.Philox(sequence)
            children.append(child)
        return children

    def state(self) -> dict[str, Any] | None:
        """Return the position of a seeded source in JSON types; None for an unseeded one."""
        if self._generator is None:
            return None
        state: dict[str, Any] = json.loads(json.dumps(self._generator.state, default=lambda part: part.tolist()))
        return state

    def restore(self, state: dict[str, Any] | None) -> None:
        """Return a seeded source to a position saved by `state`."""
        if (state is None) != (self._generator is None):
            what = "state must come from a source of the same kind: one is seeded and the other is not"
            raise InvalidArgument(f"{what}. Use NoiseSource(seed=...) for a simulation, else NoiseSource().")
        if self._generator is not None:
            self._generator.state = state  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        if self.simulation:
            what = "a seeded noise source cannot be pickled: each copy would repeat the same noise"
            raise SharedAcrossProcesses(f"{what}. Pass the seed instead, or children from spawn(k).")
        return functools.partial(NoiseSource, secure=self._as_argument), ()

    @property
    def _as_argument(self) -> bool | str | None:
        return {"plain": False, "secure": True}.get(self.sampler, self.sampler) if self.strict else None

    def __repr__(self) -> str:
        entropy = "seeded (SIMULATION, not private)" if self.simulation else "operating-system entropy"
        return f"<NoiseSource: {entropy}{SAMPLERS[self.sampler]}>"


def _expanded(count: int) -> Words:
    """Return words of ChaCha20's key stream under a key from the operating system, which is dropped."""
    out = np.zeros(count, dtype=np.uint64)
    stream = out.view(np.uint8).data
    Cipher(algorithms.ChaCha20(os.urandom(32), bytes(16)), mode=None).encryptor().update_into(stream, stream)
    return out


def _on_circles(squares: FloatArray, turns: Words, scratch: FloatArray, out: FloatArray) -> None:
    """Write the coordinates of points at ``sqrt(2 squares)`` from zero, in directions from words.

    The direction is ``pi/4 + x``, with x in [-pi/4, pi/4) from the word as a signed integer. Its
    coordinates are ``(cos x - sin x)/sqrt(2)`` and ``(cos x + sin x)/sqrt(2)``; the last two bits of
    the word are their signs. So the 2^64 words are evenly spread over the whole circle.
    """
    (x, term), (sine, cosine) = scratch, out
    np.multiply(turns.view(np.int64), 2.0**-63 * math.pi / 4, out=x)
    np.multiply(x, x, out=term)
    np.multiply(term, _SINE[-1], out=sine)
    for coefficient in _SINE[-2::-1]:
        sine += coefficient
        sine *= term
    sine += 1.0
    x *= np.sqrt(squares, out=cosine)
    sine *= x
    np.subtract(squares, np.multiply(sine, sine, out=term), out=term)
    np.sqrt(term, out=x)
    np.add(x, sine, out=cosine)
    np.subtract(x, sine, out=sine)
    signs, last = out.view(np.uint64), scratch.view(np.uint64)[0]
    signs[0] ^= np.left_shift(turns, np.uint64(63), out=last)
    np.right_shift(turns, np.uint64(1), out=last)
    last <<= np.uint64(63)
    signs[1] ^= last
