"""One head of keys and values (Shazeer 2019; Ainslie et al. 2023)."""

from experiments.bases import longer, on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="One head of keys and values for all queries costs little.",
    family="attention",
    source="Shazeer 2019, arXiv:1911.02150, table 1; Ainslie et al. 2023, arXiv:2305.13245, table 1",
    published=(
        "WMT14 en-de, dev log-perplexity 1.439 with one head of keys and values, 1.424 with eight. T5-XXL, mean of "
        "seven tasks: 46.6 and 47.2, and 47.1 with eight groups."
    ),
    losses=(1.439, 1.424),
    expected={"plain": "not worse", "modern": "not worse"},
    recipe=(
        "One head of keys and values for four of queries. The network is not widened for the parameters saved, as "
        "Shazeer's is."
    ),
    study=on_bases("grouped_queries", {"model.mixer.num_kv_heads": 1}),
)
LONGER = longer(CLAIM)
