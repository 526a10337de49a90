"""What kernels a commit has and how they are launched, as JSON: `python -m fmha.harness.kernel_side.offer`.

Another commit asks, to time its own kernels beside these: tiles and threads are the kernels' own and may differ between
the two, the parameter struct may not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fmha.harness.contract.codec import decode, encode
from fmha.harness.contract.protocol import Variant
from fmha.harness.kernel_side.params import LAYOUT
from fmha.harness.kernel_side.variants import VARIANTS

ANSWER_SECONDS = 60.0


class OfferError(Exception):
    """The commit's kernels cannot be launched from here; the message says why."""


def offered(tree: Path) -> tuple[Variant, ...]:
    """The variants of the commit that `tree` is a checkout of, by its own word. Raises OfferError."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=True,
        )
        offer: dict[str, Any] = json.loads(done.stdout)
        variants = tuple(decode(Variant, item, "variant") for item in offer["variants"])
    except (subprocess.SubprocessError, ValueError, KeyError) as error:
        words = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise OfferError(f"its harness does not say how its kernels are launched: {words[-1]}") from error
    if offer["layout"] != encode(LAYOUT):
        raise OfferError("its kernels take another parameter struct")
    return variants


def main() -> None:
    print(json.dumps({"layout": encode(LAYOUT), "variants": encode(VARIANTS)}))


if __name__ == "__main__":
    main()
