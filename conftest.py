"""Which tests `make test` leaves to `make test-all`, by the beginning of their names."""

import pytest

FULL = (
    "docs/howto/pytorch_frameworks.md",
    "docs/howto/your_own_schedule.md",
    "docs/pytorch.md",
    "lab/",
    "tests/accounting/test_calibrate.py::test_a_scaled_schedule",
    "tests/cli/test_before_and_after_a_run.py",
    "tests/cli/test_compare.py",
    "tests/cli/test_every_command.py",
    "tests/cli/test_exit_codes.py",
    "tests/cli/test_interrupts.py",
    "tests/cli/test_messy_files.py",
    "tests/cli/test_odd_files.py",
    "tests/cli/test_progress.py",
    "tests/cli/test_quoted_line_breaks.py",
    "tests/cli/test_training.py",
    "tests/cli/test_what_people_asked_for.py",
    "tests/estimators/test_estimator_checks.py",
    "tests/estimators/test_preprocessing_checks.py",
    "tests/estimators/test_refits.py::test_an_interrupt_at_any_line",
    "tests/estimators/test_robustness.py",
    "tests/fuzz/",
    "tests/mechanisms/test_exact_gaussian.py::test_counts_of_the_slow_way",
    "tests/methods/test_quadratics.py",
    "tests/methods/test_sampled.py",
    "tests/methods/test_spending.py",
    "tests/oracles/test_dask_backend.py",
    "tests/oracles/test_exact_sums.py::test_compiled_dense_sums_have_no_licence",
    "tests/oracles/test_linear_oracles.py::test_every_oracle_agrees",
    "tests/purse/test_under_fire.py",
    "tests/pytorch/test_frameworks.py",
    "tests/pytorch/test_hugging_face.py",
    "tests/pytorch/test_hugging_face_models.py",
    "tests/pytorch/test_ledger.py",
    "tests/pytorch/test_lightning.py",
    "tests/pytorch/test_logging.py",
    "tests/pytorch/test_parity.py",
    "tests/pytorch/test_peers_bugs.py",
    "tests/pytorch/test_peers_prices.py",
    "tests/pytorch/test_processes.py",
    "tests/pytorch/test_resume.py",
    "tests/pytorch/test_schedules.py",
    "tests/pytorch/test_whole_engines.py",
    "tests/report/test_in_browser.py",
    "tests/runs/test_crashes.py",
    "tests/runs/test_noise_intervals.py",
    "tests/runs/test_rehearsals.py",
    "tests/runs/test_training_a_file.py::test_every_method",
    "tests/runs/test_training_a_file.py::test_one_more_odd_record",
    "tests/statistical/",
    "tests/test_documents.py::test_commands_in_pages",
    "tests/test_documents.py::test_examples_run",
    "tests/test_notebooks.py",
    "tests/training/test_loop.py::test_fifty_kills",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the second tier."""
    for item in items:
        if item.nodeid.startswith(FULL):
            item.add_marker(pytest.mark.full)
