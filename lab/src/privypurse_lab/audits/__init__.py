"""[RAW DATA] The audit of the library by itself: every method, estimator and planted bug."""

from privypurse_lab.audits.running import as_expected, run_audits

__all__ = ["as_expected", "run_audits"]
