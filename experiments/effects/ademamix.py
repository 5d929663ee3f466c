"""AdEMAMix against AdamW (Pagliardini et al. 2024)."""

import dataclasses

from experiments.bases import longer, on_bases
from transformer.runs.rules import AdEMAMix
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A slow second average of gradients (AdEMAMix) makes AdamW faster.",
    family="optimizers",
    source="Pagliardini, Ablin and Grangier 2024, arXiv:2409.03137, abstract",
    published=(
        "1.3B: after 101B tokens the loss that AdamW has after 197B. The gain grows with the number of steps and is "
        "small in short runs (from memory)."
    ),
    speed=197 / 101,
    expected={"plain": "better", "modern": "better"},
    recipe="β₃ = .9999 is a memory of 10,000 steps, and a run has 500, over which α rises to 5.",
    study=on_bases("ademamix", {"optimizer.rule": AdEMAMix(warmup=500)}),
    found=(
        "Behind, as is said of short runs: a run is a twentieth of the memory of its second average, so the published "
        "gain cannot show here."
    ),
)
RULE = AdEMAMix(beta3=0.99, warmup=2000)
LONGER = longer(
    dataclasses.replace(
        CLAIM,
        recipe=(
            "A memory of a twentieth of the run (in the paper a 26th at 110M, a 77th at 1.3B), and α and β₃ rise over "
            "all of it, as there. With a β₃ of "
            ".9999, of whose memory 2,000 steps are a fifth, the early gradients never leave the second average, and "
            "runs end at losses of 3 to 20 at every rate from .0005 on."
        ),
        study=on_bases("ademamix", {"optimizer.rule": RULE}),
    ),
    found=(
        "With about the paper's share of memory it is ahead in both bases. With β₃ = .9999 it was behind after 500 "
        "steps and failed after 2,000; .99 was not tried with 500."
    ),
)
