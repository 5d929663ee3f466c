from experiments.bases import on_bases
from transformer.runs.muon import Muon
from transformer.runs.wrapped_rules import Hyperball
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Muon on matrices of constant norm (MuonH) is better than Muon.",
    family="optimizers",
    source="modded-nanogpt, track 3, 2026; nanochat 2026",
    published="124M to loss 3.28: 3,325 steps against 3,375; worse in nanochat.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("hyperball", {"optimizer.rule": Hyperball()}, {"optimizer.rule": Muon()}),
)
