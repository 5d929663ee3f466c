"""Which norm? LayerNorm with fewer and fewer parts, RMSNorm, and norms without statistics.

Expected: LayerNorm without bias, RMSNorm (Narang et al. 2021: 2.167 against 2.182 of T5's loss) and DyT (Zhu et al.
2025) are as good as LayerNorm; without any norm training is slower and works at fewer learning rates, which the
column `sensitivity` shows. DyT comes with the embeddings of its paper, which begin the stream at a standard deviation
of 1; the plain swap, and LayerNorm with such embeddings, stand beside it.

    python -m experiments.norm_method                  two cores: 4 minutes
    python -m experiments.norm_method --seeds 12       9 minutes
    python -m experiments.norm_method full             a GPU

NORM_METHOD_FOUND
"""

from typing import Any

from experiments import cli
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.parameters import Normal
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.norms.scale_norm import ScaleNorm
from transformer.norms.without_statistics import DyT


def arms(d_model: int) -> dict[str, dict[str, Any]]:
    """DyT as its paper trains it, as a plain swap, and LayerNorm with the embeddings of that recipe."""
    small = {"model.embedding.scaled": False, "model.embedding.initializer": Normal(0.02)}
    return {
        "layernorm": {"model.norm": LayerNorm()},
        "no bias": {"model.norm": LayerNorm(bias=False)},
        "no parameters": {"model.norm": LayerNorm(bias=False, scale=False)},
        "rmsnorm": {"model.norm": RMSNorm()},
        "scalenorm": {"model.norm": ScaleNorm()},
        "dyt": {"model.norm": DyT()},
        "dyt, small embeddings": {"model.norm": DyT(), **small},
        "layernorm, embeddings of dyt": {"model.norm": LayerNorm(), **DyT().recipe(d_model)},
        "none": {"model.norm": None},
    }


def main() -> None:
    command = cli.parse(StudyCommand, budgets("norm_method"), description=__doc__ or "")
    run_parsed("norm method", arms(command.model.d_model), command)


if __name__ == "__main__":
    cli.main(main)
