"""`python -m fmha` is `fmha`."""

from fmha.harness.cli import main

if __name__ == "__main__":
    main()
