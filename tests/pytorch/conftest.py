"""Small modules on few records: one thread each, or the workers of the test run get into each
other's way.
"""

import signal

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _signals_stay_as_they_were():
    """Frameworks take over signals; the tests that come after want them back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
