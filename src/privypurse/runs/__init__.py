"""Whole runs, from a file to a model folder: what the command line does, for Python."""
