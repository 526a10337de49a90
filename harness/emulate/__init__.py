"""`fmha emulate`: one launch of any PTX kernel, described in a YAML file."""

from harness.emulate.document import LaunchFile
from harness.emulate.launch import Comparison, Emulation, emulate, read_launch_file

__all__ = ["Comparison", "Emulation", "LaunchFile", "emulate", "read_launch_file"]
