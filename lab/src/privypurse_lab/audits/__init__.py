"""[RAW DATA] The audit of the library by itself: every method, estimator and planted bug."""

from privypurse_lab.audits.running import as_it_should, run_audits

__all__ = ["as_it_should", "run_audits"]
