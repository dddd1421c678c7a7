"""A decoder from a function that returns any `torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal

from torch import nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder, ToImage

OUTPUT = "output"


def module_decoder(
    name: str, *, version: int = 0
) -> Callable[[Callable[[Interface], nn.Module]], type[DecoderSpec]]:  # fmt: skip
    """Register a function that builds a module as a decoder; used as a decorator.

    The children of an `nn.Sequential` become the stages; any other module is a single stage. Outputs are reshaped to
    the image.

    Parameters
    ----------
    name
        Name of the decoder in specs and on the command line.
    version
        Version of the code, which is part of a run's key.

    Returns
    -------
    callable
        A decorator that returns the decoder's class, a `DecoderSpec`.

    Examples
    --------
    >>> import recombine as rc
    >>> from torch import nn
    >>> @rc.module_decoder("two_layers")
    ... def two_layers(interface):
    ...     return nn.Sequential(nn.Linear(interface.code_size, 8), nn.ReLU(), nn.Linear(8, interface.pixels))
    >>> rc.RunSpec(decoder="two_layers").module().stage_names
    ('0', '1', 'output')
    >>> rc.DECODERS.unregister("two_layers")
    """

    def register(factory: Callable[[Interface], nn.Module]) -> type[DecoderSpec]:
        @wraps(factory)  # a run records the factory's source
        def build(self: DecoderSpec, interface: Interface) -> StagedDecoder:
            module = factory(interface)
            stages = dict(module.named_children()) if isinstance(module, nn.Sequential) else {OUTPUT: module}
            *hidden, last = stages.items()
            return StagedDecoder(dict(hidden) | {OUTPUT: nn.Sequential(last[1], ToImage(interface.image_shape))})

        fields = {
            "__module__": factory.__module__,
            "__doc__": factory.__doc__ or f"The module of {factory.__name__}.",
            "__annotations__": {"kind": Literal[name]},
            "kind": name,
            "version": version,
            "build": build,
        }
        metaclass: Any = type(DecoderSpec)
        return DECODERS.register(metaclass(factory.__name__, (DecoderSpec,), fields))

    return register
