"""A noise source that gives chosen words, to put decisions right on their edges."""

import numpy as np
import pytest

from privypurse.core._randomness import NoiseSource


class Script(NoiseSource):
    """Gives the words it was told to give, then zeros, and counts them."""

    def __init__(self, *script):
        super().__init__(secure=True)
        self.script, self.given = list(script), 0

    def words(self, count):
        self.given += count
        taken = [self.script.pop(0) if self.script else 0 for _ in range(count)]
        return np.array(taken, dtype=np.uint64)


@pytest.fixture(scope="session")
def script():
    return Script
