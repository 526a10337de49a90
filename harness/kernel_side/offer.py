"""What kernels a commit has and how they are launched, as JSON: `python -m fmha.harness.kernel_side.offer`.

Another commit asks (harness/worker/planner/offered_kernels.py), to time its own beside these: tiles and threads are the
kernels' own and may differ between the two, the parameter struct may not.
"""

from __future__ import annotations

import json

from fmha.harness.contract.codec import encode
from fmha.harness.kernel_side.params import LAYOUT
from fmha.harness.kernel_side.variants import VARIANTS


def main() -> None:
    """Prints what this commit's kernels are: the layout of parameters, and the variants."""
    print(json.dumps({"layout": encode(LAYOUT), "variants": encode(VARIANTS)}))


if __name__ == "__main__":
    main()
