"""A plain PyTorch GPT of the nanogpt-cpu recipe, the peer in the speed and parity benchmarks (extra `parity`).

Pre-LN without biases, learned positions, tied embeddings, exact GELU, fused qkv projection,
scaled_dot_product_attention, fused AdamW; initial values are distributed as in our model.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from transformer.runs.config import RunConfig
from transformer.runs.rules import AdamW


class Block(nn.Module):
    def __init__(self, d_model: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.norm2 = nn.LayerNorm(d_model, bias=False), nn.LayerNorm(d_model, bias=False)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.attention_out = nn.Linear(d_model, d_model, bias=False)
        self.up = nn.Linear(d_model, 4 * d_model, bias=False)
        self.down = nn.Linear(4 * d_model, d_model, bias=False)

    def forward(self, x):
        batch, length, d_model = x.shape
        heads = (batch, length, 3, self.num_heads, d_model // self.num_heads)
        q, k, v = self.qkv(self.norm1(x)).view(heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, d_model))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, config: RunConfig):
        super().__init__()
        model = config.model
        assert model.vocab_size is not None
        assert model.attention is not None
        self.tokens = nn.Embedding(model.vocab_size, model.d_model)
        self.positions = nn.Embedding(model.max_length, model.d_model)
        heads = model.attention.num_heads
        self.blocks = nn.ModuleList(Block(model.d_model, heads) for _ in range(model.num_layers))
        self.norm = nn.LayerNorm(model.d_model, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                residual = name.endswith(("attention_out.weight", "down.weight"))
                scale = math.sqrt(2 * model.num_layers) if residual else 1.0
                nn.init.normal_(parameter, std=model.initializer.std / scale)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def torch_device() -> str:
    """The GPU that is here, or the processor."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def adamw(model: nn.Module, config: RunConfig) -> torch.optim.Optimizer:
    """Fused AdamW that decays matrices only."""
    o, rule = config.optimizer, config.optimizer.rule
    assert isinstance(rule, AdamW)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": o.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=o.learning_rate, betas=(rule.beta1, rule.beta2), eps=rule.eps, fused=True)


def learning_rate(config: RunConfig, step: int) -> float:
    """Linear warm-up and cosine decay to a tenth."""
    o = config.optimizer
    if step < o.warmup_steps:
        return o.learning_rate * (step + 1) / (o.warmup_steps + 1)
    progress = (step - o.warmup_steps) / (config.steps - o.warmup_steps)
    return o.learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


def next_token_loss(logits_of, bfloat16: bool = False):
    """Maps tokens (B, L + 1) to the mean loss of a model, with products in bfloat16 if so."""

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=bfloat16):
            logits = logits_of(tokens[:, :-1]).float()
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))

    return loss


def train_step(model, loss_of, optimizer, config: RunConfig, tokens: torch.Tensor, step: int) -> torch.Tensor:
    """One update; `loss_of` is of the model, compiled or not."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(config, step)
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(tokens)
    loss.backward()
    if config.optimizer.clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.clip_norm)
    optimizer.step()
    return loss
