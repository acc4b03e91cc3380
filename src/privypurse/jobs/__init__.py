"""Whole jobs, from a file to a result: what the command line does, for Python."""
