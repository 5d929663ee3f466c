"""Hyper-connections (Zhu D. et al. 2024)."""

from experiments.bases import longer, on_bases
from transformer.residuals.multi_stream import HyperConnections
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Several streams with trained connections (hyper-connections) are better than one.",
    family="residuals",
    source="Zhu D. et al. 2024, arXiv:2409.19606, figure 1",
    published=(
        "OLMoE 1B-7B, four streams, dynamic: converges 1.8 times as fast, and stays better at 500B tokens. At 27B "
        "training became unstable, say Xie et al. 2025, arXiv:2512.24880 (from memory)."
    ),
    speed=1.8,
    expected={"plain": "better", "modern": "better"},
    recipe="Four streams, dynamic, as there; two layers.",
    study=on_bases("hyper_connections", {"model.residual": HyperConnections(streams=4)}),
    found=(
        "The two bases disagree, each beyond chance. Two layers are few for streams to differ, and connections learn "
        "at the rates of the rest, ten times and more those of the paper: `hyper_connections_deep` has eight, and "
        "slower ones."
    ),
)
LONGER = longer(
    CLAIM,
    found=(
        "Behind in the plain base as before: .119 for .059 is three bad runs of eight, and fresh seeds have .064. In "
        "the modern one .031 of the lead of .046 is left."
    ),
)
