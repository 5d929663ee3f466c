"""Multi-token prediction in small models (Gloeckle et al. 2024)."""

from experiments.bases import longer, on_bases
from transformer.objectives.tokens import MultiToken
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Predicting a second token as well does not help the next one in small models.",
    family="objectives",
    source="Gloeckle et al. 2024, arXiv:2404.19737, abstract",
    published=(
        "Code, 13B: 12 % more problems of HumanEval and 17 % more of MBPP solved; the gain grows with the size. "
        "nanochat: the same or slightly worse a step. At .3B fewer problems of MBPP are solved (as reported by "
        "others)."
    ),
    expected={"plain": "worse", "modern": "worse"},
    recipe=(
        "One further token, from a block that is added, where the paper keeps the number of parameters. It reads the "
        "output of the stack; in the paper it stands beside the last layer, which is the next token's own. The loss of "
        "the next token in place of problems solved."
    ),
    study=on_bases("multi_token", {"model.predict_ahead": 1, "objective": MultiToken()}),
)
LONGER = longer(
    CLAIM,
    found=("Still behind: with fresh seeds by .089 and .073, where it was .130 and .116 after 500 steps."),
)
