"""What archived runs say together: comparisons, regressions, histories, bisection. See docs/use/evidence.md."""
