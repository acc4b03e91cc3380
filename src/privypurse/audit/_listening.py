"""[RAW DATA] [OPENS THE BOX] Records all releases of a run: contents of boxes, answers and charges.

A run is recorded once with real noise. It is then *replayed* on a neighbouring table: each release
runs the same code, but returns the recorded answer. A run that keeps to the rules makes the same
queries with the same noise levels and returns the same model; only its boxes differ, by one record.
Audits of the training loop use these pairs of boxes.

This runs outside of any guarantee: use synthetic data, or data that the user may see anyway.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._sensitive import Norm, Sensitive, SensitiveObjective, SensitiveTrials
from privypurse.core.queries import Released
from privypurse.mechanisms._base import Mechanism
from privypurse.mechanisms._perturbed_minimiser import TOLERANCE, OutputPerturbation
from privypurse.purse._purse import Purse, draws_exactly


@dataclass(frozen=True, eq=False)
class Heard:
    """One release and the content of its box."""

    what: str
    box: Sensitive  # for its bounds
    inside: FloatArray | None  # its content; None for an objective or an experiment, which is no number
    mechanism: Mechanism
    neighbouring: Neighbouring
    answer: FloatArray
    paid_first: bool  # the charge was on the ledger before the box was opened
    handed: Any = None  # of a search: model of the best trial
    trial: "Transcript | None" = None  # of a search: transcript of the best trial, all of which may be released
    trials: "tuple[Transcript, ...]" = ()  # of a search: transcripts of all trials, which must not be released

    @property
    def terms(self) -> tuple[Any, ...]:
        """Public terms: purpose, mechanism, bounds, shape, sampling rate."""
        box = self.box
        mechanism = (type(self.mechanism).__name__, repr(self.mechanism))
        return (self.what, *mechanism, box.norm, (box.add_remove, box.replace_one), box.shape, box.sample_prob)


@dataclass(eq=False)
class Transcript:
    """Record of one run."""

    releases: list[Heard] = field(default_factory=list)  # without those of trials in a search, which are private
    result: FloatArray = field(default_factory=lambda: np.empty(0))  # as one vector
    charged: int = 0  # number of releases on the ledger
    failure: str = ""  # error that ended the run
    noise_state: dict[str, Any] | None = None  # of a trial: state of a seeded noise source at its start


class Diverged(Exception):
    """A replay asked for something that the recorded run did not."""


# ``run(data, purse)`` trains and returns the model: a number, an array, or a list of these.
Run = Callable[[Any, Purse], Any]


def record(run: Run, data: Any, purse: Purse) -> Transcript:
    """Run with real noise and record the releases."""
    return _listen(run, data, purse, Ear(Transcript()))


def replay(run: Run, data: Any, purse: Purse, heard: Transcript) -> Transcript:
    """Run on other data with the recorded answers of a run, up to the first divergence.

    Noise is drawn all the same, so that samples from a source with the same seed are equal.
    """
    return _listen(run, data, purse, Ear.repeating(heard))


class Watched:
    """Mechanism that records the content of its box and whether it was charged first."""

    passes_on = True  # the result of a search

    def __init__(self, mechanism: Mechanism, purse: Purse) -> None:
        self.mechanism, self._purse = mechanism, purse
        self._before = purse.totals.releases
        self.inside: FloatArray | None = None
        self.paid_first = False
        self.handed: Any = None
        self.trial: Transcript | None = None
        self.trials: tuple[Transcript, ...] = ()

    def __getattr__(self, name: str) -> Any:
        # Charges and other properties are those of the mechanism.
        return getattr(self.mechanism, name)

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: Any) -> None:
        """Raise InvalidArgument if the mechanism does not draw exact noise."""
        if not draws_exactly(type(self.mechanism)):
            raise InvalidArgument(f"{type(self.mechanism).__name__} does not declare exact noise. Define check_noise.")
        self.mechanism.check_noise(box, neighbouring, noise)  # type: ignore[attr-defined]

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: Any) -> Any:
        """Record the content of the box and draw."""
        self.paid_first = self._purse.totals.releases > self._before
        self.inside = opened(box, self.mechanism)
        with Purse.observed_by(None):
            heard = self._listening_to(box) if isinstance(box, SensitiveTrials) else box
            return self.mechanism.draw(heard, neighbouring, noise)

    def _listening_to(self, box: SensitiveTrials) -> SensitiveTrials:
        """Return a box whose trials are all recorded, and which passes the best one on."""
        trial: Any = box._value
        hand_over, heard = box.hand_over, list[Transcript]()

        def listened(candidate: int, noise: Any) -> Any:
            transcript = Transcript(noise_state=noise.state())
            with Purse.observed_by(Ear(transcript)):
                score, outcome = trial(candidate, noise)
            transcript.result = flat(score)
            heard.append(transcript)
            return score, (outcome, transcript)

        def passed(result: Any) -> None:
            self.handed, self.trial = (None, None) if result is None else result
            self.trials = tuple(heard)
            if self.passes_on:
                hand_over(self.handed)

        bounds = {"add_remove": box.add_remove, "replace_one": box.replace_one}
        return SensitiveTrials(listened, candidates=box.candidates, hand_over=passed, **bounds)


class Repeating(Watched):
    """Mechanism that returns recorded answers."""

    passes_on = False  # the result of the actual draw is not the recorded one

    def __init__(self, mechanism: Mechanism, purse: Purse, answers: Iterator[Heard]) -> None:
        super().__init__(mechanism, purse)
        self._answers = answers

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: Any) -> None:
        """As for `Watched`: a class that overrides `draw` must define it too."""
        super().check_noise(box, neighbouring, noise)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: Any) -> Any:
        """Draw noise, and return the recorded answer instead."""
        heard = next(self._answers, None)
        trial: Any = box._value
        hand_over = box.hand_over if isinstance(box, SensitiveTrials) else None
        answer = super().draw(box, neighbouring, noise)
        if heard is None:
            raise Diverged("there is one release more than on the neighbouring table")
        if hand_over is not None:
            # Continue with the trial replayed on the recorded answers: the same model, unless the
            # trial depends on the records otherwise.
            self.trial, self.handed = None, heard.handed
            if heard.trial is not None:
                self.trial, self.handed = _replayed_trial(trial, heard.trial, int(heard.answer[0]), noise)
            hand_over(self.handed)
        if getattr(answer, "shape", None) != heard.answer.shape:
            raise Diverged(f"a release has another shape than on the neighbouring table: {heard.what}")
        return heard.answer.copy() if isinstance(answer, np.ndarray) else answer.new_tensor(heard.answer)


def opened(box: Sensitive, mechanism: Mechanism) -> FloatArray | None:
    """Return the content of a box, None if it is not a number."""
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
    """Replay the best trial on this table with the recorded candidate, answers and noise."""
    ear, stood, outcome = Ear.repeating(heard), noise.state(), None
    if heard.noise_state is not None:
        noise.restore(heard.noise_state)
    try:
        with Purse.observed_by(ear):
            score, outcome = trial(candidate, noise)
        ear.transcript.result = flat(score)
    except Exception as error:
        ear.transcript.failure = f"{type(error).__name__}: {error}"
    finally:
        if stood is not None:
            noise.restore(stood)
    return ear.transcript, outcome


@dataclass(eq=False)
class Ear:
    """Observer that records all releases, except for those that a mechanism makes itself."""

    transcript: Transcript
    make: Callable[[Mechanism, Purse], Watched] = Watched

    @classmethod
    def repeating(cls, heard: Transcript) -> "Ear":
        """Return an observer that replays the answers of a run."""
        answers = iter(heard.releases)
        return cls(Transcript(), lambda mechanism, owner: Repeating(mechanism, owner, answers))

    def watch(self, purse: Purse, mechanism: Mechanism) -> Mechanism:
        """Return a mechanism that records what it draws."""
        return self.make(mechanism, purse)

    def hear(self, purse: Purse, box: Sensitive, mechanism: Mechanism, what: str, released: Released | None) -> None:
        """Record a release that gave an answer, or failed after its box was opened."""
        watched: Any = mechanism
        if watched.inside is not None or released is not None:
            answer: Any = None if released is None else released.value
            kept = np.array(answer.detach().cpu().numpy() if hasattr(answer, "detach") else answer)
            public = (watched.mechanism, purse.neighbouring, kept, watched.paid_first)
            trials = (watched.handed, watched.trial, watched.trials)
            self.transcript.releases.append(Heard(what, box, watched.inside, *public, *trials))
        self.transcript.charged += int(released is not None and watched.paid_first)


def _listen(run: Run, data: Any, purse: Purse, ear: Ear) -> Transcript:
    before, transcript = purse.totals.releases, ear.transcript
    try:
        with Purse.observed_by(ear):
            transcript.result = flat(run(data, purse))
    except Exception as error:
        transcript.failure = f"{type(error).__name__}: {error}"
    finally:
        transcript.charged = purse.totals.releases - before
    return transcript


def flat(result: Any) -> FloatArray:
    """Return the result of a run as one vector."""
    if isinstance(result, Sequence) and not isinstance(result, str):
        return np.concatenate([flat(part) for part in result]) if result else np.empty(0)
    value = result.detach().cpu().numpy() if hasattr(result, "detach") else result
    return np.ravel(np.asarray(value, dtype=np.float64))
