"""How the HTML documentation is built: ``make docs``."""

from privypurse import __version__

project = "privypurse"
author = "The privypurse developers"
release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
html_theme = "furo"
exclude_patterns = ["_build", "jupyter_execute", "**.ipynb_checkpoints"]
autosummary_generate = True
autodoc_default_options = {"members": True}
numpydoc_show_class_members = False
myst_heading_anchors = 2
# Notebooks are kept without outputs, and run when the site is built. Examples on pages are doctests, which the tests run.
nb_execution_mode = "auto"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
# The README is included from the folder above, where its links are right; on the site they are in the menu.
# Methods inherited from scikit-learn refer to its own glossary and user guide.
suppress_warnings = ["myst.xref_missing", "toc.not_included", "ref.ref", "ref.term"]
