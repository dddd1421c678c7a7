"""The loss of one member: squared error or cross-entropy, plus weighted absolute error and penalties (Eq. 12, 48).

`dispatch` says how networks run on a device; where it has no faster way, members are batched by `vmap`. With precision
`bf16` the network computes in bfloat16 on a rounded copy of its float32 weights, to which gradients come back.

A penalty sees the module itself, in float32 and in evaluation mode: it may differentiate it, which kernels do not
allow, and dropout would make it another function at every call. One that takes finite differences instead may run on
the kernels, in the precision of the recipe (`differentiates`): in bfloat16, squares of differences between outputs of
trained networks are right within 1 %. With a denoiser it sees samples.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from recombine import kernels
from recombine.decoders import DenoisingDecoder
from recombine.errors import InvalidValue, reason_of
from recombine.remedies.base import Decode
from recombine.remedies.noise import Noise, normal, uniform
from recombine.specs import CROSS_ENTROPY, RunSpec
from recombine.training.dispatch import FORWARDS, Forwards
from recombine.training.members import FlatLayout, MemberOutputs


class Batch(NamedTuple):
    """What a member's step depends on beside its weights; of many members, with a leading axis."""

    inputs: Tensor
    targets: Tensor
    shares: Float[Tensor, "*member batch"]
    """Weights of the examples, which sum to 1; padding has 0."""
    seed: Tensor
    """Seed of the random numbers that penalties and dropout draw."""
    step: Tensor
    """Steps taken before."""
    terms: Mapping[str, Tensor]
    """Weights of the loss terms beside the squared error, by name."""
    buffers: Float[Tensor, "*member buffer"]
    """The module's buffers, as running means."""


class Loss(NamedTuple):
    """Per member: what is minimised, its part without weighted terms, and the buffers after the step."""

    total: Tensor
    error: Tensor
    buffers: Tensor


class Objective:
    """Computes the loss from members' weights and batches."""

    def __init__(self, spec: RunSpec, device: torch.device) -> None:
        module = spec.module().to(device)
        self.module = Methods(module.eval())
        self.training = with_seeded_dropout(copy.deepcopy(module)).train()
        self.dropouts = [part for part in self.training.modules() if isinstance(part, SeededDropout)]
        self.layout, self.buffer_layout = FlatLayout(dict(module.named_parameters())), FlatLayout(kept_buffers(module))
        self.forwards = FORWARDS.get(type(spec.decoder), Forwards())
        self.penalties, self.blocks = spec.penalties, spec.task.block_sizes
        self.loss_name = spec.recipe.loss
        self.denoises = isinstance(module, DenoisingDecoder)
        if not self.denoises and any(isinstance(part, DenoisingDecoder) for part in module.modules()):
            allowed = "a denoiser with the other decoder as its renderer, such as denoiser:renderer=additive"
            raise InvalidValue("decoder", str(spec.decoder), allowed)
        self.dtype = torch.bfloat16 if spec.recipe.precision == "bf16" else torch.float32

    def decode(self, weights: Float[Tensor, " parameter"], buffers: Tensor) -> Decoding:
        """The member's decoder as a function, in evaluation mode."""
        return Decoding(self.module, self.layout.unflatten(weights) | self.buffer_layout.unflatten(buffers))

    def fast_outputs(self, weights: Float[Tensor, " parameter"], inputs: Tensor) -> MemberOutputs | None:
        """Return the outputs of one float32 network on a CPU, or None if the module has to be used."""
        strict = inputs.device.type == "cpu" and inputs.dtype == self.dtype == torch.float32
        return self.forwards.one(self.training, self.layout, weights, inputs) if self.forwards.one and strict else None

    def loss(self, weights: Float[Tensor, " parameter"], batch: Batch) -> Loss:
        """One member's loss. Penalties and the loss itself are always in float32."""
        result, buffers = self.fast_outputs(weights, batch.inputs), batch.buffers
        if result is None:
            result, buffers = self._outputs(weights, batch)
        error, total = _distance(result.outputs, batch, self.loss_name)
        values = self._penalty_values(weights, batch, result.penalties)
        return Loss(_weighted(total, values, batch.terms), error, buffers)

    def _outputs(self, weights: Float[Tensor, " parameter"], batch: Batch) -> tuple[MemberOutputs, Tensor]:
        """The module's outputs in training mode, and the buffers after them."""
        views = self.buffer_layout.unflatten(batch.buffers) if self.buffer_layout.names else {}
        # A forward pass writes to buffers; views of one tensor would share the counter by which autograd notices that.
        buffers = {name: view.clone() for name, view in views.items()}
        noise = Noise(batch.seed, batch.step, "dropout")
        for dropout in self.dropouts:
            dropout.noise = noise
        named = self.layout.unflatten(weights.to(self.dtype)) | buffers
        noisy = denoising(batch) if self.denoises else ()
        outputs = functional_call(self.training, named, (batch.inputs.to(self.dtype), *noisy)).float()
        return MemberOutputs(outputs), self.buffer_layout.flatten(buffers) if buffers else batch.buffers

    def _penalty_values(
        self, weights: Float[Tensor, " parameter"], batch: Batch, known: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """All penalties by name: those that came with the outputs, and the others."""
        if not self.penalties:
            return {}
        decode, noise = self.decode(weights, batch.buffers), Noise(batch.seed, batch.step, "penalties")
        values = {}
        for penalty in self.penalties:
            if penalty.kind in known:
                values[penalty.kind] = known[penalty.kind]
                continue
            way = decode if penalty.differentiates else self._fast(weights, decode)
            values[penalty.kind] = penalty.loss(way, batch.inputs, self.blocks, noise)
        return values

    def _fast(self, weights: Float[Tensor, " parameter"], decode: Decoding) -> Decode:
        """The decoder as a function that has no derivatives with respect to codes, in the type of the recipe."""
        if self.forwards.members is None or weights.device.type == "cpu":
            return decode
        return lambda codes: FastDecode.apply(weights, codes, self).float()

    def member_losses(self, weights: Float[Tensor, "member parameter"], batch: Batch) -> Loss:
        """Every member's loss, all members at once."""
        if self.forwards.members is None:
            return vmap(self.loss)(weights, batch)
        result = self.forwards.members(self.training, self.layout, weights, batch.inputs, self.dtype)
        error, total = _member_distances(result.outputs, batch, self.loss_name)
        values = vmap(self._penalty_values)(weights, batch, dict(result.penalties)) if self.penalties else {}
        return Loss(_weighted(total, values, batch.terms), error, batch.buffers)

    def check(self, weights: Float[Tensor, " parameter"], batch: Batch) -> None:
        """Refuse, before the first step, outputs of another shape and penalties that are no finite scalars."""
        with torch.no_grad():
            outputs = self.decode(weights, batch.buffers)(batch.inputs)
            if outputs.shape != batch.targets.shape:
                expected = tuple(batch.targets.shape[1:])
                raise InvalidValue("decoder", tuple(outputs.shape[1:]), f"a module with outputs of shape {expected}")
            if self.loss_name == CROSS_ENTROPY:
                sums = outputs.flatten(1).float().sum(dim=1)
                if bool((outputs < 0).any()) or not torch.allclose(sums, torch.ones_like(sums), atol=0.01):
                    allowed = "squared_error, since the decoder's outputs are not probabilities that sum to 1"
                    raise InvalidValue("loss", self.loss_name, allowed)
        decode, noise = self.decode(weights, batch.buffers), Noise(batch.seed, batch.step, "penalties")
        for penalty in self.penalties:
            before = torch.get_rng_state()
            try:
                value = penalty.loss(decode, batch.inputs, self.blocks, noise)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                allowed = f"one that fits decoder and task ({reason_of(error)})"
                raise InvalidValue("remedy", str(penalty), allowed) from error
            if not torch.equal(before, torch.get_rng_state()):  # results would depend on the other members
                allowed = "one that draws random numbers by recombine.remedies.noise, from the given generator"
                raise InvalidValue("remedy", str(penalty), allowed)
            if not isinstance(value, Tensor) or value.ndim or not bool(torch.isfinite(value)):
                shown = tuple(value.shape) if isinstance(value, Tensor) and value.ndim else value
                raise InvalidValue("remedy", str(penalty), f"one whose loss is a finite scalar, not {shown}")


def denoising(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """One member's images, noise and timesteps, which a denoiser trains on."""
    random, images = Noise(batch.seed, batch.step, "denoising"), batch.targets
    return images, normal(tuple(images.shape), random, images), uniform((len(images),), random, images)


class FastDecode(torch.autograd.Function):
    """One member's outputs by the forward pass of many members, which `vmap` is led to."""

    @staticmethod
    def forward(weights: Tensor, codes: Tensor, objective: Objective) -> Tensor:
        return _members_outputs(objective, weights[None], codes[None])[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("members come through vmap, whose operations torch differentiates itself")

    @staticmethod
    def vmap(info: Any, in_dims: Any, weights: Tensor, codes: Tensor, objective: Objective) -> tuple[Tensor, int]:
        moved = (part.movedim(axis, 0) for part, axis in zip((weights, codes), in_dims, strict=False))
        return _members_outputs(objective, *moved), 0


def _members_outputs(objective: Objective, weights: Tensor, codes: Tensor) -> Tensor:
    assert objective.forwards.members is not None
    return objective.forwards.members(objective.training, objective.layout, weights, codes, objective.dtype).outputs


def _weighted(total: Tensor, values: Mapping[str, Tensor], terms: Mapping[str, Tensor]) -> Tensor:
    """The loss with every penalty times its weight added, in order: a sum of floats depends on it."""
    for name, value in values.items():
        total = total + terms[name] * value
    return total


def _distance(outputs: Tensor, batch: Batch, loss: str) -> tuple[Tensor, Tensor]:
    """Squared error or cross-entropy, and that with the absolute error; outputs are `(*member, batch, …)`."""
    difference = (outputs - batch.targets).flatten(batch.shares.ndim)
    if loss == CROSS_ENTROPY:
        logs = outputs.clamp(min=torch.finfo(torch.float32).tiny).log()
        error = -(batch.targets * logs).flatten(batch.shares.ndim).sum(dim=-1)
    else:
        error = difference.square().mean(dim=-1)
    return _summed(error, difference.abs().mean(dim=-1), batch)


def _member_distances(outputs: Tensor, batch: Batch, loss: str) -> tuple[Tensor, Tensor]:
    """The same, of many members' outputs in any precision, by a kernel if there is one."""
    distance = kernels.implementation("distance", outputs.device) if outputs.is_cuda else None
    if distance is None or loss == CROSS_ENTROPY:
        return _distance(outputs.float(), batch, loss)
    square, absolute = distance.PixelMeans.apply(outputs, batch.targets)
    return _summed(square, absolute, batch)


def _summed(error: Tensor, absolute: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    error = (error * batch.shares).sum(dim=-1)
    return error, error + batch.terms["absolute"] * (absolute * batch.shares).sum(dim=-1)


# -- a module as a function of its parameters ------------------------------------------------------------------------


class Methods(nn.Module):
    """A module whose methods, and not only its forward pass, a functional call can reach."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, name: str, *arguments: Any) -> Any:
        return getattr(self.module, name)(*arguments)


class Decoding:
    """A module with other parameters: call it, or its methods by their names."""

    def __init__(self, methods: Methods, named: Mapping[str, Tensor]) -> None:
        self._methods, self._named = methods, {f"module.{name}": part for name, part in named.items()}

    def _run(self, name: str, *arguments: Any) -> Any:
        return functional_call(self._methods, self._named, (name, *arguments))

    def __call__(self, codes: Tensor) -> Tensor:
        outputs: Tensor = self._run("__call__", codes)
        return outputs

    def __getattr__(self, name: str) -> Any:
        return partial(self._run, name)


class SeededDropout(nn.Module):
    """Dropout that draws from a member's own numbers: torch's draws from one global stream."""

    def __init__(self, rate: float, channels: bool) -> None:
        super().__init__()
        self.rate, self.channels = rate, channels
        self.noise: Noise | None = None

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return values
        shape = (*values.shape[:2], *(1,) * (values.ndim - 2)) if self.channels else tuple(values.shape)
        return values * (uniform(shape, self.noise, values) >= self.rate) / (1 - self.rate)


M = TypeVar("M", bound=nn.Module)


def with_seeded_dropout(module: M) -> M:
    """Return the module with every dropout layer replaced, in place."""
    for name, child in module.named_children():
        if isinstance(child, nn.Dropout):
            setattr(module, name, SeededDropout(child.p, channels=False))
        elif isinstance(child, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            setattr(module, name, SeededDropout(child.p, channels=True))
        else:
            with_seeded_dropout(child)
    return module


def kept_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that a state dict holds."""
    parameters = dict(module.named_parameters())
    return {name: part for name, part in module.state_dict().items() if name not in parameters}
