from experiments.bases import on_bases
from transformer.runs.schedules import Cosine, WarmupStableDecay
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A rate that is constant and then falls (WSD) is as good as a cosine.",
    family="optimizers",
    source="Hu et al. 2024 (MiniCPM), arXiv:2404.06395, figure 6",
    published="Equal or lower loss after a decay over a tenth of the steps.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("wsd", {"optimizer.schedule": WarmupStableDecay()}, {"optimizer.schedule": Cosine()}),
)
