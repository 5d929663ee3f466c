from experiments.bases import on_bases
from transformer.residuals.multi_stream import HyperConnections
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Several streams with trained connections (hyper-connections) are better than one.",
    family="residuals",
    source="Zhu D. et al. 2024, arXiv:2409.19606, figure 1",
    published="OLMoE 1B-7B: converges 1.8 times as fast with four streams.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("hyper_connections", {"model.residual": HyperConnections()}),
)
