"""What `fmha diag`, `budget`, `diff-run` and `debug` look at, and how they tell it. docs/use/see.md is the guide."""
