"""`fmha emulate`: one launch of any PTX kernel, described in a YAML file."""

from fmha.harness.emulate.document import LaunchFile
from fmha.harness.emulate.launch import Comparison, Emulation, Entry, emulate, entries, read_launch_file

__all__ = ["Comparison", "Emulation", "Entry", "LaunchFile", "emulate", "entries", "read_launch_file"]
