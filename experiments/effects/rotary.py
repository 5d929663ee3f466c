from experiments.bases import on_bases
from transformer.positions.absolute import Learned
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Rotary positions are better than learned ones.",
    family="positions",
    source="Su et al. 2021, arXiv:2104.09864; Narang et al. 2021, table 1",
    published="T5-base: relative positions 2.194 early, learned ones 2.245 (sd .005).",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("rotary", {"model.position": RoPE()}, {"model.position": Learned()}),
)
