"""Prints the tables of docs/mutants.md."""

from tests.integration.mutants.catalogue import tables

print(tables(), end="")
