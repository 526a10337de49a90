"""NVIDIA's compute-sanitizer beside the emulator, on the same sources: docs/reference/who-sees-what.md."""
