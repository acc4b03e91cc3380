"""Print which functions of privypurse run from the end of one release to the end of the next.

    python tools/walk.py           # one gradient of PrivateLogisticRegression.fit
    python tools/walk.py --torch   # one step of a loop with make_private
    python tools/walk.py --list    # with the functions, in the order of their first call

Comprehensions and lambdas count as part of the function around them.
"""

import argparse
import itertools
import pathlib
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

import privypurse
from privypurse.purse._purse import Purse

SOURCE = pathlib.Path(privypurse.__file__).parent
WALKED = 5  # the release to follow; earlier ones also set things up


def is_named(code: CodeType) -> bool:
    """Tell whether this is a function of privypurse that has a name."""
    return code.co_filename.startswith(str(SOURCE)) and not code.co_name.startswith("<")


class Walk:
    """The calls between two releases."""

    def __init__(self) -> None:
        self.releases, self.calls = 0, list[CodeType]()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; count the ends of releases."""
        code = frame.f_code
        if event == "return" and code is Purse.release.__code__:
            self.releases += 1
        elif event == "call" and self.releases == WALKED and is_named(code):
            self.calls.append(code)

    def rooms(self) -> list[str]:
        """Return the room of each call."""
        return [str(pathlib.Path(code.co_filename).relative_to(SOURCE).parts[0]) for code in self.calls]


def fit() -> None:
    """Train an estimator."""
    from privypurse.estimators import PrivateLogisticRegression

    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 5))
    PrivateLogisticRegression(1.0, classes=[0, 1], feature_norm=3.0, n_public=2_000).fit(X, (X[:, 0] > 0).astype(int))


def loop() -> None:
    """Train a module in a loop of its own."""
    import torch
    from torch import nn

    from privypurse.pytorch import make_private

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(512, 5), torch.randint(0, 2, (512,)))
    private = make_private(
        module, optimizer, data, epsilon=2.0, delta=1e-5, records=512, batch_size=64, steps=12, clip_norm=1.0
    )
    for x, y in private.loader:
        private.optimizer.zero_grad()
        nn.functional.cross_entropy(private.module(x), y).backward()
        private.optimizer.step()


def follow(work: Callable[[], None]) -> Walk:
    """Run `work` twice and record the calls of the second run, in which nothing is compiled."""
    work()
    walk = Walk()
    sys.setprofile(walk)
    try:
        work()
    finally:
        sys.setprofile(None)
    return walk


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", action="store_true", help="one step of make_private")
    parser.add_argument("--list", action="store_true", help="name the functions")
    options = parser.parse_args()
    walk = follow(loop if options.torch else fit)
    functions = list(dict.fromkeys(walk.calls))
    files = {code.co_filename for code in functions}
    rooms = walk.rooms()
    changes = sum(one != other for one, other in itertools.pairwise(rooms))
    print(f"{len(functions)} functions in {len(files)} files; {len(walk.calls)} calls change rooms {changes} times")
    if options.list:
        for code in functions:
            name = pathlib.Path(code.co_filename).relative_to(SOURCE)
            print(f"  {name}: {code.co_qualname} x{walk.calls.count(code)}")


if __name__ == "__main__":
    main()
