"""Windows in every second layer (Gemma 2 2024; Gemma 3 2025)."""

from experiments.bases import longer, on_bases
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.pattern import Alternate
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Every second layer may see a quarter of the text only.",
    family="attention",
    source="Gemma 2 2024, arXiv:2408.00118, table 10; Gemma 3 2025, arXiv:2503.19786",
    published=(
        "Gemma 2, local and global layers in turn: another window at inference has moderate impact. Gemma 3, five "
        "local layers to a global one: almost the same perplexity (from memory)."
    ),
    expected={"plain": "not worse", "modern": "not worse"},
    recipe="A window of 8 characters of 32 in the first of two layers; Gemma 2 has 4,096 of 8,192 tokens.",
    study=on_bases("window", {"model.pattern": (Alternate("mixer.sparsity", (SlidingWindow(8), None)),)}),
)
LONGER = longer(
    CLAIM, found="It is ahead, by .039 and .032, likely because what is near is most of what 32 characters tell."
)
