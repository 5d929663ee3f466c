"""Copying longer texts without positions (Kazemnejad et al. 2023)."""

from experiments.bases import on_task
from transformer.data.tasks.rewriting import Copy
from transformer.positions.absolute import Learned
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Without positions attention copies longer texts than it was trained on better than with them.",
    family="positions",
    source="Kazemnejad et al. 2023, arXiv:2305.19466, abstract",
    published=(
        "No positions are better than every explicit scheme. Mean reciprocal rank over tasks, trained to length 20 "
        "and tested to 40: none .69, T5 .55, ALiBi .50, rotary .33, learned .22 (as reported by others)."
    ),
    expected={"learned": "worse", "rope": "worse", "alibi": "worse"},
    recipe=(
        "Copying alone, trained on up to 8 symbols and tested on up to 12, of which half are no longer than 8; 3 "
        "layers. Rates are chosen by the longer test, so arms are not equally trained on 8: training ends at losses of "
        ".16 to .36 without positions, .09 to .16 with ALiBi and below .01 with rotary positions."
    ),
    study=on_task(
        "nope_length",
        Copy(items=8),
        {
            "none": {"model.position": None},
            "learned": {"model.position": Learned()},
            "rope": {"model.position": RoPE()},
            "alibi": {"model.position": ALiBi()},
        },
        {"model.num_layers": 3, "steps": 1000, "batch_size": 16},
        test=Copy(items=12),
        learning_rates=(3e-4, 1e-3, 3e-3, 1e-2),
        metric="accuracy",
    ),
    found=(
        "With fresh seeds ALiBi is ahead of no positions in all eight pairs, by .06; the paper's order is one of many "
        "tasks, and this is copying alone. By the share of copies that are right in every symbol it is the other way "
        "round: .34 without positions, .50 with learned ones, .52 with rotary ones and .46 with ALiBi (fresh: .35, "
        ".50, .53 and .48), of a test half of which is no longer than in training. Accuracy by symbol says that "
        "without positions longer copies go wrong later, not that they are right."
    ),
)
