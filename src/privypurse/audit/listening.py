"""[RAW DATA] [OPENS THE BOX] Listening at the gate: what was in each box, what left, and whether it was paid for first.

A run is heard once with real noise. It is then *replayed* on a neighbouring table: every release goes the same way through the
same code, but the answers are those that were heard. If the run keeps to the rules, the replay cannot tell the difference: it
asks the same questions, at the same noise, and ends with the same model, and the boxes it makes differ by one record. The pairs
of boxes are what all audits of the training loop are made of.

This runs outside of any guarantee: it is for made-up data, or for people who may see the data anyway.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privypurse.core.checks import FloatArray
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.sensitive import Norm, Sensitive, SensitiveObjective, SensitiveTrials
from privypurse.mechanisms.base import Mechanism
from privypurse.mechanisms.perturbed_minimiser import TOLERANCE, OutputPerturbation
from privypurse.purse.choices import draws_exactly
from privypurse.purse.purse import Purse


@dataclass(frozen=True, eq=False)
class Heard:
    """One release, with what was in the box.

    Parameters
    ----------
    what : str
        What the run says that it is for.
    box : Sensitive
        The box: its bounds are read from it.
    inside : ndarray or None
        What was in it; None for an objective or an experiment, which is no number.
    mechanism : Mechanism
        How it was made private.
    neighbouring : Neighbouring
        The purse's relation.
    answer : ndarray
        What left.
    paid_first : bool
        Whether the charge was on the ledger when the box was opened.
    handed : object
        What left besides numbers: the model of the best trial of a search.
    trial : Transcript or None
        Of a search: everything that was heard of the best trial. All of it may leave, by what is claimed of the search.
    trials : tuple of Transcript
        Of a search: everything that was heard of all trials, which must not leave.
    """

    what: str
    box: Sensitive
    inside: FloatArray | None
    mechanism: Mechanism
    neighbouring: Neighbouring
    answer: FloatArray
    paid_first: bool
    handed: Any = None
    trial: "Transcript | None" = None
    trials: "tuple[Transcript, ...]" = ()

    @property
    def terms(self) -> tuple[Any, ...]:
        """All that may not depend on one record: the purpose, the mechanism, the bound, the shape, the sampling rate."""
        box = self.box
        bounds = tuple(box.bound(relation, box.norm) if box.has_bound(relation) else None for relation in Neighbouring)
        return (
            self.what,
            type(self.mechanism).__name__,
            repr(self.mechanism),
            box.norm,
            bounds,
            box.shape,
            box.sample_prob,
        )


@dataclass(eq=False)
class Transcript:
    """Everything that was heard of one run.

    Attributes
    ----------
    releases : list of Heard
        In order. Releases that a mechanism makes inside of a release, in trials of a search, are not among them: they are
        private until the best trial is handed over, and are then that release's ``trial``.
    result : ndarray
        What the run returned, as one vector.
    charged : int
        How many releases are on the ledger.
    failure : str
        The error that ended the run, if one did.
    noise_state : dict or None
        Of a trial: where its noise stood when it began, if it has a seed.
    """

    releases: list[Heard] = field(default_factory=list)
    result: FloatArray = field(default_factory=lambda: np.empty(0))
    charged: int = 0
    failure: str = ""
    noise_state: dict[str, Any] | None = None


class Diverged(Exception):
    """A replay asked for something that the run which was heard did not ask for."""


Run = Callable[[Any, Purse], Any]


def record(run: Run, data: Any, purse: Purse) -> Transcript:
    """Run with real noise, and listen.

    Parameters
    ----------
    run : callable
        ``run(data, purse)`` trains and returns the model: a number, an array, or a list of these.
    data
        Whatever the run takes.
    purse : Purse
        Who pays.
    """
    transcript = Transcript()
    _listen(run, data, purse, transcript, Watched)
    return transcript


def replay(run: Run, data: Any, purse: Purse, heard: Transcript) -> Transcript:
    """Run on other data with the answers of a run that was heard; stops at the first difference that is not the data's.

    The randomness is spent all the same, so that samples drawn from a source with the same seed are the same.
    """
    transcript, answers = Transcript(), iter(heard.releases)
    _listen(run, data, purse, transcript, lambda mechanism, owner: Repeating(mechanism, owner, answers))
    return transcript


class Watched:
    """A mechanism that remembers what it was given to open, and whether that was paid for."""

    def __init__(self, mechanism: Mechanism, purse: Purse) -> None:
        self.mechanism, self._purse = mechanism, purse
        self._before = purse.totals.releases
        self.inside: FloatArray | None = None
        self.paid_first = False
        self.handed: Any = None
        self.trial: Transcript | None = None
        self.trials: tuple[Transcript, ...] = ()

    def __getattr__(self, name: str) -> Any:
        # Prices and other properties are the mechanism's own.
        return getattr(self.mechanism, name)

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: Any) -> None:
        """Refuse exact noise where the mechanism does not draw it."""
        if not draws_exactly(type(self.mechanism)):
            raise InvalidArgument(f"{type(self.mechanism).__name__} does not say that it can draw exact noise.")
        self.mechanism.check_noise(box, neighbouring, noise)  # type: ignore[attr-defined]

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: Any) -> Any:
        """Look into the box, and let the mechanism do the rest."""
        self.paid_first = self._purse.totals.releases > self._before
        self.inside = opened(box, self.mechanism)
        with _quiet(), self._listening_to_trials(box):
            return self.mechanism.draw(box, neighbouring, noise)

    @contextlib.contextmanager
    def _listening_to_trials(self, box: Sensitive) -> Iterator[None]:
        """Keep what is heard of the trial that is handed over, and pass on what this run is to go on with."""
        if not isinstance(box, SensitiveTrials):
            yield
            return
        trial: Any = box._value
        hand_over, heard = box.hand_over, list[Transcript]()

        def listened(candidate: int, noise: Any) -> Any:
            transcript = Transcript(noise_state=noise.state())
            with _hearing(transcript, Watched):
                score, outcome = trial(candidate, noise)
            transcript.result = flat(score)
            heard.append(transcript)
            return score, (outcome, transcript)

        def passed(result: Any) -> None:
            self.handed, self.trial = (None, None) if result is None else result
            self.trials = tuple(heard)
            self._pass_on(self.handed, hand_over)

        box._value, box._hand_over = listened, passed  # type: ignore[assignment]
        try:
            yield
        finally:
            box._value, box._hand_over = trial, hand_over

    def _pass_on(self, result: Any, hand_over: Callable[[Any], None]) -> None:
        hand_over(result)


class Repeating(Watched):
    """A mechanism that gives the answer that was heard."""

    def __init__(self, mechanism: Mechanism, purse: Purse, answers: Iterator[Heard]) -> None:
        super().__init__(mechanism, purse)
        self._answers = answers

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: Any) -> None:
        """Refuse what the mechanism refuses: a class that draws anew must say anew what it can."""
        super().check_noise(box, neighbouring, noise)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: Any) -> Any:
        """Draw noise, and return what was heard in its place."""
        heard = next(self._answers, None)
        trial: Any = box._value
        hand_over = box.hand_over if isinstance(box, SensitiveTrials) else None
        answer = super().draw(box, neighbouring, noise)
        if heard is None:
            raise Diverged("there is one release more than on the neighbouring table")
        if hand_over is not None:
            # The run goes on with what the trial makes of the answers that were heard: a trial that keeps to the rules makes
            # the same model of them.
            self.trial, self.handed = None, heard.handed
            if heard.trial is not None:
                self.trial, self.handed = _replayed_trial(trial, heard.trial, int(heard.answer[0]), noise)
            hand_over(self.handed)
        if getattr(answer, "shape", None) != heard.answer.shape:
            raise Diverged(f"a release has another shape than on the neighbouring table: {heard.what}")
        return heard.answer.copy() if isinstance(answer, np.ndarray) else _like(answer, heard.answer)

    def _pass_on(self, result: Any, hand_over: Callable[[Any], None]) -> None:
        """Wait: what the real draw chose is not what was heard."""


def opened(box: Sensitive, mechanism: Mechanism) -> FloatArray | None:
    """Look into a box; None where there is no number in it."""
    if isinstance(box, SensitiveObjective) and isinstance(mechanism, OutputPerturbation):
        minimise: Any = box._value
        return np.asarray(minimise(np.zeros(box.shape), mechanism.ridge, TOLERANCE))
    if isinstance(box, SensitiveObjective | SensitiveTrials) or box.norm in (Norm.GRADIENT, Norm.MU):
        return None
    value: Any = box._value
    return np.array(value.detach().cpu().numpy() if hasattr(value, "detach") else value, dtype=np.float64)


def _replayed_trial(
    trial: Callable[[int, Any], Any], heard: Transcript, candidate: int, noise: Any
) -> tuple[Transcript, Any]:
    """Run the trial that was handed over again, on this run's table with that one's candidate, answers and randomness."""
    transcript, answers, stood, outcome = Transcript(), iter(heard.releases), noise.state(), None
    if heard.noise_state is not None:
        noise.restore(heard.noise_state)
    try:
        with _hearing(transcript, lambda mechanism, owner: Repeating(mechanism, owner, answers)):
            score, outcome = trial(candidate, noise)
        transcript.result = flat(score)
    except Exception as error:
        transcript.failure = f"{type(error).__name__}: {error}"
    finally:
        if stood is not None:
            noise.restore(stood)
    return transcript, outcome


_listening: list[Callable[..., Any]] = []


@contextlib.contextmanager
def _hearing(transcript: Transcript, watch: Callable[..., Watched]) -> Iterator[None]:
    """Write down every release that is made, but for those that a mechanism makes by itself."""
    patched = Purse.release
    original = getattr(patched, "heard_gate", patched)  # within a trial: once is enough

    def release(self: Purse, box: Sensitive, mechanism: Mechanism, *, what: str = "release") -> Any:
        if not _listening:  # within a mechanism
            return original(self, box, mechanism, what=what)
        watched = watch(mechanism, self)
        answer: Any = None
        try:
            answer = original(self, box, watched, what=what)
        finally:
            if watched.inside is not None or answer is not None:
                kept = np.array(answer.detach().cpu().numpy() if hasattr(answer, "detach") else answer)
                transcript.releases.append(
                    Heard(
                        what,
                        box,
                        watched.inside,
                        mechanism,
                        self.neighbouring,
                        kept,
                        watched.paid_first,
                        watched.handed,
                        watched.trial,
                        watched.trials,
                    )
                )
        transcript.charged += int(watched.paid_first)
        return answer

    release.heard_gate = original  # type: ignore[attr-defined]
    Purse.release = release  # type: ignore[method-assign]
    _listening.append(release)
    try:
        yield
    finally:
        _listening.pop()
        Purse.release = patched  # type: ignore[method-assign]


def _listen(run: Run, data: Any, purse: Purse, transcript: Transcript, watch: Callable[..., Watched]) -> None:
    before = purse.totals.releases
    try:
        with _hearing(transcript, watch):
            transcript.result = flat(run(data, purse))
    except Exception as error:
        transcript.failure = f"{type(error).__name__}: {error}"
    finally:
        transcript.charged = purse.totals.releases - before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Do not listen to what a mechanism does by itself."""
    held = list(_listening)
    _listening.clear()
    try:
        yield
    finally:
        _listening.extend(held)


def flat(result: Any) -> FloatArray:
    """Write whatever a run returned as one vector."""
    if isinstance(result, Sequence) and not isinstance(result, str):
        return np.concatenate([flat(part) for part in result]) if result else np.empty(0)
    value = result.detach().cpu().numpy() if hasattr(result, "detach") else result
    return np.ravel(np.asarray(value, dtype=np.float64))


def _like(answer: Any, heard: FloatArray) -> Any:
    """Turn an array into a tensor of the kind and on the device of another."""
    return answer.new_tensor(heard)
