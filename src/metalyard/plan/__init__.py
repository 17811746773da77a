"""The site plan, profiles and baselines: read, check, derive. Pure policy; nothing here talks to a machine."""

from metalyard.plan.load import PlanError, Problem, load_plan
from metalyard.plan.model import Cable, Node, SitePlan, Switch

__all__ = ["Cable", "Node", "PlanError", "Problem", "SitePlan", "Switch", "load_plan"]
