from experiments.bases import on_bases
from transformer.mixers.attention.gates import OutputGate
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A sigmoid gate on the output of attention is better.",
    family="attention",
    source="Qiu et al. 2025, arXiv:2505.06708",
    published="15B-A2.5B and 1.7B: perplexity lower by about .2, sinks gone; kept by marin, no gain in nanochat.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("output_gate", {"model.mixer.parts": (OutputGate(),)}),
)
