"""The report of a run: one HTML file that needs nothing else, no network and no script."""

from fmha.harness.report.page import Evidence, render

__all__ = ["Evidence", "render"]
