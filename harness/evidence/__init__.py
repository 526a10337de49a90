"""What archived runs say together: comparisons, regressions, histories, bisection; docs/evidence.md defines them."""
