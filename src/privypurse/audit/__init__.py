"""[RAW DATA] Attacks on a training method, and lower bounds on its privacy loss.

An audit opens sealed boxes and reads synthetic tables. It runs outside of any guarantee.
"""

from privypurse.audit._verdicts import Line, audit_subject
from privypurse.audit.subjects import Subject

__all__ = ["Line", "Subject", "audit_subject"]
