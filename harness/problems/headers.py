"""Where the headers are that stand for torch's own: torch/extension.h, ATen and c10, as far as host code needs them."""

from pathlib import Path
from typing import Final

INCLUDE: Final = Path(__file__).resolve().parent / "include"
# For `flags` of an adapter whose .cu has host code for torch beside the kernel.
TORCH_HEADERS: Final = f"-I{INCLUDE}"
