"""The forgetting transformer (Lin Z. et al. 2025)."""

from experiments.bases import longer, on_bases
from transformer.positions.contextual import Forgetting
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A forget gate on scores (forgetting transformer) is better.",
    family="positions",
    source="Lin Z. et al. 2025, arXiv:2503.02130",
    published=(
        "760M, 48B tokens of texts of 16k tokens: lower loss than a transformer at all positions, and beyond the "
        "length of training (from memory)."
    ),
    expected={"plain": "better", "modern": "better"},
    recipe=(
        "The gate takes the place of rotary positions, which the plain base has here too; its bias begins at 2. "
        "From the 0 of the paper it is a little worse (eight seeds): -.014 in the plain base and -.095 in the modern "
        "one, and after 2,000 steps +.045 and -.027. Texts of 32 characters leave little to forget."
    ),
    study=on_bases("forgetting", {"model.position": Forgetting()}, {"model.position": RoPE()}),
)
LONGER = longer(
    CLAIM,
    found=(
        "A quarter of the lead is left in the modern base, .031 of .119; in the plain one it is behind rotary "
        "positions by .020, the margin."
    ),
)
