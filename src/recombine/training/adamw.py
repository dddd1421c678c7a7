"""AdamW on `(member, parameter)` matrices, with a learning rate and weight decay per member.

It uses the formula of `torch.optim.AdamW`. Inactive members (finished or diverged) keep their state bit for bit,
regardless of their gradient. Nothing synchronises with the device, so a step can be captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine import kernels


def adamw_update(
    weights: Float[Tensor, "member parameter"],
    mean: Float[Tensor, "member parameter"],
    square: Float[Tensor, "member parameter"],
    step: Int[Tensor, " member"],
    gradient: Float[Tensor, "member parameter"],
    active: Bool[Tensor, " member"],
    *,
    lr: Float[Tensor, " member"],
    weight_decay: Float[Tensor, " member"],
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """Take one step for the active members, in place."""
    step += active
    count = step.double().clamp(min=1)
    rate = torch.where(active, lr.double(), 0.0)
    decay = (1 - rate * weight_decay.double()).to(weights.dtype)
    stride = (rate / (1 - beta1**count)).to(weights.dtype)
    root = (1 - beta2**count).sqrt().to(weights.dtype)
    matrices = (weights, mean, square, gradient.contiguous())
    packed = all(part.dtype == torch.float32 and part.is_contiguous() for part in matrices)
    adamw = kernels.implementation("adamw", weights.device) if packed else None
    if adamw is not None:
        adamw.adamw_update(*matrices, active, decay, stride, root, beta1, beta2, epsilon)
        return
    on = active[:, None]
    gradient = torch.where(on, gradient, 0.0)
    mean.copy_(torch.where(on, mean.lerp(gradient, 1 - beta1), mean))
    square.mul_(torch.where(on, beta2, 1.0).to(square.dtype)).addcmul_(gradient, gradient, value=1 - beta2)
    denominator = square.sqrt().div_(root[:, None]).add_(epsilon)
    change = (mean / denominator).mul_(stride[:, None])
    weights.mul_(decay[:, None])
    weights.sub_(torch.where(on, change, 0.0))
