"""Which norm? LayerNorm with less and less of it, RMSNorm, and what claims to do without statistics.

Expected: LayerNorm without bias, RMSNorm (Narang et al. 2021: 2.167 against 2.182 of T5's loss) and DyT with
embeddings times √d (Zhu et al. 2025, appendix; small inputs leave tanh linear) are as good as LayerNorm;
without any norm training is slower and bears fewer learning rates. What the loss hides is in the columns
`sensitivity` to the learning rate and `diverged`.

    python -m experiments.norm_method                  two cores: minutes
    python -m experiments.norm_method full             a GPU
"""

from experiments import cli
from experiments.study_command import budgets, run_study
from transformer.config.norms import DyT, LayerNorm, NoNorm, RMSNorm, ScaleNorm

ARMS = {
    "layernorm": {"model.norm": LayerNorm()},
    "no bias": {"model.norm": LayerNorm(bias=False)},
    "no parameters": {"model.norm": LayerNorm(bias=False, scale=False)},
    "rmsnorm": {"model.norm": RMSNorm()},
    "scalenorm": {"model.norm": ScaleNorm()},
    "dyt": {"model.norm": DyT()},
    "dyt, embeddings √d": {"model.norm": DyT(), "model.scale_embeddings": True},
    "none": {"model.norm": NoNorm()},
}


def main() -> None:
    run_study("norm method", ARMS, budgets("norm_method"), __doc__ or "")


if __name__ == "__main__":
    cli.main(main)
