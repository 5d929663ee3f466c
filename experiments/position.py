"""Which positional scheme? At the length of training, and on texts twice and four times as long.

Expected (Press et al. 2021): on longer texts sinusoids collapse first, then rotary positions, then T5's
bias; ALiBi goes on. At the length of training relative schemes are ahead early (RoPE above all). The
column `loss at 2x length` is the loss of tokens past the length of training.

    python -m experiments.position                     two cores: minutes
    python -m experiments.position full                a GPU
"""

from experiments import cli
from experiments.study_command import budgets, run_study
from transformer.config.positions import ALiBi, Learned, NoPosition, RoPE, Sinusoidal, T5Bias
from transformer.study.probes import LongerText

ARMS = {
    "learned": {"model.position": Learned()},
    "none": {"model.position": NoPosition()},
    "sinusoidal": {"model.position": Sinusoidal()},
    "sinusoidal, embeddings √d": {"model.position": Sinusoidal(), "model.scale_embeddings": True},
    "rope": {"model.position": RoPE()},
    "alibi": {"model.position": ALiBi()},
    "t5 bias": {"model.position": T5Bias()},
}


def main() -> None:
    run_study("position", ARMS, budgets("position"), __doc__ or "", (LongerText(2), LongerText(4)))


if __name__ == "__main__":
    cli.main(main)
