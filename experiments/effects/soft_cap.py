from experiments.bases import on_bases
from transformer.mixers.attention.score_mods import SoftCap
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Scores that a tanh caps (soft cap) cost nothing.",
    family="attention",
    source="Gemma 2 2024, arXiv:2408.00118, section 2",
    published="Used with a cap of 50 in attention, without an ablation.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("soft_cap", {"model.mixer.score_mod": SoftCap(50.0)}),
)
