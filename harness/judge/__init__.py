"""The judge: what decides what is said of a kernel. Inputs, reference, measures, gates, schedules and comparison.

Everybody above may import it. It imports nothing of the kernel's side, nothing that launches, and of the rest of the
harness only harness/errors.py, and for the comparison of runs harness/archive.
"""
