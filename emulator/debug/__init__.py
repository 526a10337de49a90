"""Looking at launches: what an observer is shown, and what follows from it. docs/use/see.md is the guide."""
