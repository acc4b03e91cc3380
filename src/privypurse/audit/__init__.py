"""[RAW DATA] Audits: attacks on the real training code, and lower bounds on what it gives away.

An audit opens boxes and reads made-up tables. It runs outside of any guarantee, and says so.
"""

from privypurse.audit.one_subject import audit_subject
from privypurse.audit.results import Line
from privypurse.audit.running import as_it_should, run_audits
from privypurse.audit.subjects import Subject

__all__ = ["Line", "Subject", "as_it_should", "audit_subject", "run_audits"]
