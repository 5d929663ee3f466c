"""Parallel attention and network (Chowdhery et al. 2022)."""

from experiments.bases import longer, on_bases
from transformer.models.blocks import Parallel
from transformer.study.claim import Claim

CLAIM = Claim(
    text="In small models attention and network beside each other cost something.",
    family="blocks",
    source="Chowdhery et al. 2022 (PaLM), arXiv:2204.02311, section 2",
    published="At 8B a small loss of quality, at 62B none; about 15 % faster at large scale.",
    expected={"plain": "worse", "modern": "worse"},
    recipe=(
        "Two layers: half as many steps from input to output as without. First asked as *not worse*, which the paper "
        "finds at 62B and not at its smaller size."
    ),
    study=on_bases("parallel_block", {"model.block": Parallel()}),
)
LONGER = longer(
    CLAIM,
    found=(
        "After a quarter of the steps it was .02 in both bases, told in one of them. Now it is .109 and .094. The "
        "paper has a small one at 8B."
    ),
)
