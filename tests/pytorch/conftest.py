"""Small modules on few records: one thread each, or the workers of the test run get into each other's way."""

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
