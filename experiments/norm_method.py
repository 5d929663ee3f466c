"""Which norm? LayerNorm with fewer and fewer parts, RMSNorm, and norms without statistics.

Expected: LayerNorm without bias, RMSNorm (Narang et al. 2021: 2.167 against 2.182 of T5's loss) and DyT with
embeddings times √d (Zhu et al. 2025, appendix; small inputs leave tanh linear) are as good as LayerNorm;
without any norm training is slower and works at fewer learning rates, which the loss hides and the columns
`sensitivity` (to the learning rate) and `diverged` show.

    python -m experiments.norm_method                  two cores: 4 minutes
    python -m experiments.norm_method full             a GPU

Found with the first command (2 layers, d 64, 300 steps, 4 estimation seeds of 6, learning rate chosen from
1e-3, 3e-3, 1e-2 on the other 2; jax 0.10.2, two cores, 2026-11-21), nats per token, and sensitivity:

    layernorm      2.2856 ± 0.0230                                0.074
    no bias        2.2943 ± 0.0254   +0.0087 ± 0.0123  unresolved  0.069
    no parameters  2.3108 ± 0.0256   +0.0252 ± 0.0161  worse       0.087
    rmsnorm        2.2925 ± 0.0272   +0.0068 ± 0.0175  unresolved  0.079
    scalenorm      2.3052 ± 0.0273   +0.0196 ± 0.0097  worse       0.089
    dyt            3.2353 ± 0.0329   +0.9497 ± 0.0395  worse       0.005
    dyt, emb. √d   3.2403 ± 0.0292   +0.9546 ± 0.0382  worse       0.013
    none           2.4562 ± 0.0298   +0.1705 ± 0.0417  worse       0.326

RMSNorm and no bias: as expected, not resolved. Without a norm the sensitivity is four times as large.
No run diverged. DyT does not learn to use the context, and embeddings times √d do not help at this size and
number of steps, contrary to the paper.
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
