"""Attention to the first token, with a gate or softmax-one (Qiu et al. 2025)."""

from experiments.bases import MODERN, on_text
from transformer.mixers.attention.gates import OutputGate
from transformer.mixers.attention.normalizers import SoftmaxOne
from transformer.study.claim import Claim
from transformer.study.probes import FirstKey

CLAIM = Claim(
    text="A gate on the output of attention takes away the mass on the first token.",
    family="attention",
    source="Qiu et al. 2025, arXiv:2505.06708, figure 2; Miller 2023, Attention is off by one (web essay)",
    published=(
        "15B with 2.54B active: share of attention on the first token 46.7 % without, 4.8 % with a gate; a later "
        "diagnostic finds no such fall in small models (as reported by others). Miller measures nothing (from "
        "memory)."
    ),
    expected={"gate": "better", "softmax_one": "better"},
    recipe=(
        "Sinks form with enough data, at 60M within 5B tokens (Gu X. et al. 2024, arXiv:2410.10781); our arms read "
        "128,000 characters."
    ),
    study=on_text(
        "sinks",
        {
            "softmax": MODERN,
            "gate": {**MODERN, "model.mixer.parts": (OutputGate(),)},
            "softmax_one": {**MODERN, "model.mixer.normalizer": SoftmaxOne()},
        },
        probes=(FirstKey(),),
        metric="mass on the first token",
    ),
)
