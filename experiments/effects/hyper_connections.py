"""Hyper-connections (Zhu D. et al. 2024)."""

from experiments.bases import longer, on_bases
from transformer.residuals.multi_stream import HyperConnections
from transformer.runs.optimizer import ParameterGroup
from transformer.study.claim import Claim

STREAMS = {
    "model.residual": HyperConnections(streams=4),
    "optimizer.groups": (ParameterGroup("*_residual.params*", rate=0.1),),
}
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
    recipe=(
        "Four streams, dynamic, as there; two layers. Connections learn at a tenth of the rate of the rest, .0001 to "
        ".0008: in the paper all learn at .0004, but matrices as small as these take more."
    ),
    study=on_bases("hyper_connections", STREAMS),
    found=(
        "Nothing is told in either base. With connections at the rates of the rest, ten times and more those of the "
        "paper, it was behind in the plain base, by .059 [+.003, +.104], by .119 after 2,000 steps, and by .064 "
        "[+.046, +.082] with fresh seeds: that cost was of the rates."
    ),
)
LONGER = longer(
    CLAIM,
    found=(
        "Level within .02 in the plain base, by fresh seeds, and open in the modern one. In eight layers there is a "
        "gain (`hyper_connections_deep`)."
    ),
)
