"""[PUBLIC] Planning: steps, step sizes, clip norms and noise from public facts. No data."""

from privypurse.planning.facts import Facts
from privypurse.planning.plan import Method, Plan, Recipe

__all__ = ["Facts", "Method", "Plan", "Recipe"]
