from experiments.bases import on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="One head of keys and values for all queries costs little.",
    family="attention",
    source="Shazeer 2019, arXiv:1911.02150; Ainslie et al. 2023, arXiv:2305.13245",
    published="WMT14 en-de, dev log-perplexity 1.439 with one head of keys and values, 1.424 with eight.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("grouped_queries", {"model.mixer.num_kv_heads": 1}),
)
