"""The page on frameworks needs the frameworks; their warnings are theirs."""

import importlib.util

import pytest

PAGE, NEEDED = "pytorch_frameworks.md", ("torch", "lightning", "transformers", "accelerate", "tensorboard")
THEIRS = (
    r"ignore:.*isinstance\(treespec, LeafSpec\).*:FutureWarning",
    "ignore:.*does not have many workers.*",
    "ignore:.*number of training batches.*",
    "ignore:.*pin_memory.*:UserWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the page by name where a framework is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    for item in items:
        if item.path.name == PAGE:
            item.add_marker(pytest.mark.filterwarnings(*THEIRS))
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed"))
