"""Where noise comes from: the operating system, or a seed that marks everything it touches as a simulation."""

import importlib.util
import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core.checks import FloatArray
from privypurse.core.errors import InvalidArgument, SharedAcrossProcesses

Words = NDArray[np.uint64]
Shape = tuple[int, ...]

# How mechanisms turn random words into noise, by the name that a purse takes, and what certificates add.
SAMPLERS = {
    "plain": "",
    "secure": ", exact arithmetic",
    "discrete": ", exact arithmetic (discrete Gaussian)",
    "opendp": ", exact arithmetic (discrete Gaussian by OpenDP)",
}


class NoiseSource:
    """Random numbers for noise and for secret sampling.

    Parameters
    ----------
    seed : int or None, default None
        None takes every random word from the operating system's cryptographic generator. A seed makes the
        run repeatable and therefore *not private*: the source says ``simulation``, and so do the ledger, the
        certificate and the report of everything that used it.
    secure : None, bool or {"discrete", "opendp"}
        How mechanisms draw from this source. True: on a lattice, with a law that is exactly the stated one, so that the last
        digits of a released number cannot tell what it was made from; what has no exact way is refused. False: in floating point,
        the usual way. None, the default: exactly wherever that costs little, in floating point elsewhere and in simulations; the
        ledger keeps which it was. "discrete" takes the discrete Gaussian, and "opendp" that of the OpenDP library, both for
        purses with the zCDP filter.

    Guarantees
    ----------
    * Without a seed there is no generator state in the process: each call asks the operating system, so forked,
      spawned and copied processes never draw the same noise, and a memory dump does not hold future noise.
    * Both modes share every line of code that turns random words into noise; tests of the seeded distribution
      therefore speak for the real one.
    * A seeded source refuses to be carried into another process (fork or pickle), where it would repeat itself;
      `spawn` gives independent children for parallel work.

    Notes
    -----
    Normals come from the Box-Muller transform of 64-bit words: the tails reach 9.4 standard deviations, which leaves
    out a probability of 5e-21. Floating-point noise has the usual gaps between representable numbers; see
    ``docs/sharp_edges.md``, and ``docs/proofs/exact_noise.md`` for the way without.

    Examples
    --------
    >>> NoiseSource().simulation
    False
    >>> NoiseSource(seed=7).normal((2,)).round(3)
    array([-1.101,  0.551])
    """

    def __init__(self, seed: int | None = None, *, secure: bool | str | None = None) -> None:
        if seed is not None and (
            isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer) or seed < 0
        ):
            raise InvalidArgument(
                f"seed must be None or a whole number of 0 or more; got {seed!r}. "
                "Pass seed=None for private noise, seed=7 for a repeatable simulation."
            )
        named = isinstance(secure, str) and secure in ("discrete", "opendp")
        if not (secure is None or isinstance(secure, bool) or named):
            raise InvalidArgument(
                f"secure must be None, False, True, 'discrete' or 'opendp'; got {secure!r}. Pass secure=True for exact noise."
            )
        if secure == "opendp" and importlib.util.find_spec("opendp") is None:
            raise InvalidArgument(
                "noise 'opendp' needs the package opendp, which is not installed. Install it with: pip install "
                "'privypurse[opendp]', or use 'discrete' for the same law from this library, in a purse with filter='zcdp'."
            )
        if secure == "opendp" and seed is not None:
            raise InvalidArgument(
                f"seed must be None with secure='opendp', which has random numbers of its own; got {seed!r}. "
                "Pass secure='discrete' for a simulation of the same law."
            )
        self._strict = secure is not None
        exact = seed is None if secure is None else secure
        self._sampler = exact if isinstance(exact, str) else "secure" if exact else "plain"
        self._generator = None if seed is None else np.random.Philox(np.random.SeedSequence(int(seed)))
        self._pid = os.getpid()

    @classmethod
    def parse(cls, noise: "NoiseSource | str | None") -> "NoiseSource":
        """Return the source itself, or a private one from a name: "auto" (as None) or one of `SAMPLERS`."""
        if isinstance(noise, cls):
            return noise
        if noise is None or noise == "auto":
            return cls()
        if not isinstance(noise, str) or noise not in SAMPLERS:
            raise InvalidArgument(
                f"noise must be a NoiseSource, 'auto' or one of {', '.join(map(repr, SAMPLERS))}; got {noise!r}. Leave it out "
                "for private noise, or pass noise=NoiseSource(seed=7) for a simulation."
            )
        return cls(secure={"plain": False, "secure": True}.get(noise, noise))

    @property
    def secure(self) -> bool:
        """Whether mechanisms draw from this source in exact arithmetic."""
        return self._sampler != "plain"

    @property
    def strict(self) -> bool:
        """Whether what cannot be drawn in the way of this source is refused; if not, it is drawn in floating point."""
        return self._strict

    @property
    def sampler(self) -> str:
        """How mechanisms draw from this source: "plain", "secure", "discrete" or "opendp"."""
        return self._sampler

    @property
    def simulation(self) -> bool:
        """Whether the numbers are repeatable, so that nothing drawn from here is private."""
        return self._generator is not None

    @property
    def description(self) -> str:
        """One line for certificates."""
        entropy = "seeded (SIMULATION, not private)" if self.simulation else "operating-system entropy"
        return entropy + SAMPLERS[self._sampler]

    def words(self, count: int) -> Words:
        """Draw 64-bit words, uniform and independent."""
        if self._generator is None:
            return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        if os.getpid() != self._pid:
            raise SharedAcrossProcesses(
                "a seeded noise source was carried into a forked process, where it would repeat the parent's noise. "
                "Call spawn(k) before forking and give each process its own child."
            )
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)

    def normal(self, shape: Shape) -> FloatArray:
        """Draw standard normals."""
        count = math.prod(shape)
        pairs = (count + 1) // 2
        uniform = self.words(2 * pairs) * 2.0**-64
        # (0, 1] with 64 bits near zero, where the tail of the normal is decided.
        radius = np.sqrt(-2.0 * np.log(uniform[:pairs] + 2.0**-65))
        angle = 2.0 * np.pi * uniform[pairs:]
        out = np.empty(2 * pairs)
        out[0::2] = radius * np.cos(angle)
        out[1::2] = radius * np.sin(angle)
        return np.asarray(out[:count].reshape(shape), dtype=np.float64)

    def uniform(self, shape: Shape) -> FloatArray:
        """Draw uniforms strictly between 0 and 1 (52 bits)."""
        count = math.prod(shape)
        bits = self.words(count) >> np.uint64(12)
        return np.asarray((bits + 0.5) * 2.0**-52, dtype=np.float64).reshape(shape)

    def exponential(self, shape: Shape) -> FloatArray:
        """Draw standard exponentials."""
        return -np.log(self.uniform(shape))

    def gumbel(self, shape: Shape) -> FloatArray:
        """Draw standard Gumbel variables."""
        return -np.log(self.exponential(shape))

    def spawn(self, count: int) -> "list[NoiseSource]":
        """Make independent sources for parallel work.

        Children of a seeded source depend only on its seed and on how many were spawned before, not on what
        was drawn.
        """
        if self._generator is None:
            return [NoiseSource(secure=self._as_argument) for _ in range(count)]
        children = []
        for sequence in self._generator.seed_seq.spawn(count):  # type: ignore[attr-defined]
            child = NoiseSource(seed=0, secure=self._as_argument)
            child._generator = np.random.Philox(sequence)
            children.append(child)
        return children

    def state(self) -> dict[str, Any] | None:
        """Return the position of a seeded source, in JSON types; None for operating-system entropy."""
        return None if self._generator is None else _plain(self._generator.state)

    def restore(self, state: dict[str, Any] | None) -> None:
        """Return a seeded source to a position from `state`."""
        if (state is None) != (self._generator is None):
            raise InvalidArgument(
                "state must come from a source of the same kind; one is seeded and the other is not. "
                "Build the source as the saved run did: NoiseSource(seed=...) for a simulation, NoiseSource() otherwise."
            )
        if self._generator is not None and state is not None:
            inner = {name: np.asarray(value, dtype=np.uint64) for name, value in state["state"].items()}
            buffer = np.asarray(state["buffer"], dtype=np.uint64)
            self._generator.state = {**state, "state": inner, "buffer": buffer}  # type: ignore[typeddict-item]

    def __copy__(self) -> "NoiseSource":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "NoiseSource":
        # A copied seeded source would repeat its noise; sharing keeps one stream.
        return self

    def __reduce__(self) -> Any:
        if self.simulation:
            raise SharedAcrossProcesses(
                "a seeded noise source cannot be pickled: each copy would repeat the same noise. "
                "Pass the seed instead, or children from spawn(k)."
            )
        return (_rebuild, (self._as_argument,))

    @property
    def _as_argument(self) -> bool | str | None:
        return {"plain": False, "secure": True}.get(self._sampler, self._sampler) if self._strict else None

    def __repr__(self) -> str:
        return f"<NoiseSource: {self.description}>"


def _rebuild(secure: bool | str | None) -> NoiseSource:
    return NoiseSource(secure=secure)


def _plain(value: Any) -> Any:
    """Turn numpy arrays and integers inside nested dicts into lists and ints."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray):
        return [int(item) for item in value]
    return int(value) if isinstance(value, np.integer) else value
