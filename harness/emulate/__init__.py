"""`fmha emulate`: one launch of any PTX kernel, described in a YAML file."""

from fmha.harness.emulate.launch_document import LaunchFile
from fmha.harness.emulate.launch_file import Emulation, Entry, OutputComparison, emulate, entries, read_launch_file

__all__ = ["Emulation", "Entry", "LaunchFile", "OutputComparison", "emulate", "entries", "read_launch_file"]
