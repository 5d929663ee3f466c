"""Soft-capped scores (Gemma 2 2024)."""

from experiments.bases import longer, on_bases
from transformer.mixers.attention.score_mods import SoftCap
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Scores that a tanh caps (soft cap) cost nothing.",
    family="attention",
    source="Gemma 2 2024, arXiv:2408.00118, section 2",
    published=(
        "A cap of 50 in attention and 30 at the output. nanochat: a cap of 20 at the output gains .001 bits a byte, "
        "one of 5 is far worse. Gemma has no ablation (from memory)."
    ),
    measured=False,
    expected={"plain": "not worse", "modern": "not worse"},
    recipe="The cap of 50 on scores alone, which bites only where scores are large.",
    study=on_bases("soft_cap", {"model.mixer.score_mod": SoftCap(50.0)}),
)
LONGER = longer(CLAIM)
