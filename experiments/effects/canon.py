import dataclasses

from experiments.bases import on_bases
from transformer.mixers.attention.short_convolution import CanonA
from transformer.study.claim import Claim

CANON = {"model.mixer.parts": (CanonA(),)}
NOPE = {"model.position": None}
STUDY = on_bases("canon", CANON)
CLAIM = Claim(
    text="Canon layers before attention make learning faster, and repair a model without positions.",
    family="attention",
    source="Allen-Zhu 2025, Physics of Language Models 4.1",
    published="NoPE with canon layers as good as RoPE, and reasoning twice as deep.",
    expected={"plain": "better", "modern": "better", "without positions": "better"},
    study=dataclasses.replace(
        STUDY,
        arms={**STUDY.arms, "no positions": NOPE, "no positions, canon": {**NOPE, **CANON}},
        contrasts={**STUDY.contrasts, "without positions": {"no positions, canon": 1.0, "no positions": -1.0}},
    ),
)
