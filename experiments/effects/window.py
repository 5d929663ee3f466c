from experiments.bases import on_bases
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.pattern import Alternate
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Every second layer may see a quarter of the text only.",
    family="attention",
    source="Gemma 2 2024, arXiv:2408.00118, table 10; Gemma 3 2025, arXiv:2503.19786",
    published="Windows change perplexity little.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("window", {"model.pattern": (Alternate("mixer.sparsity", (SlidingWindow(8), None)),)}),
)
