"""What can go wrong between us and Grafana.

SpecscopeError
└── GrafanaError    it cannot be reached, does not know us, or refuses a dashboard
"""

from __future__ import annotations

from specscope.errors import SpecscopeError


class GrafanaError(SpecscopeError):
    """Grafana cannot be reached, does not know us, or refuses a dashboard."""
