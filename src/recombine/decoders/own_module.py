"""A decoder from a function that returns any `torch.nn.Module`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal

from torch import nn

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder, ToImage

OUTPUT = "output"


def module_decoder(
    name: str, *, version: int = 0
) -> Callable[[Callable[..., nn.Module]], type[DecoderSpec]]:  # fmt: skip
    """Register a function that builds a module as a decoder; used as a decorator.

    The children of an `nn.Sequential` become the stages; any other module is a single stage. Outputs are reshaped to
    the image.

    Parameters
    ----------
    name
        Name of the decoder in specs and on the command line.
    version
        Version of the code, which is part of a run's key.

    The function gets an `Interface`, with the sizes of codes and images, unless it has no argument without a default.

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

    def register(factory: Callable[..., nn.Module]) -> type[DecoderSpec]:
        arguments = inspect.signature(factory).parameters.values()
        takes_interface = any(own.default is own.empty and own.kind <= own.POSITIONAL_OR_KEYWORD for own in arguments)

        @wraps(factory)  # a run records the factory's source
        def build(self: DecoderSpec, interface: Interface) -> StagedDecoder:
            module = factory(*[interface] * takes_interface)
            stages = dict(module.named_children()) if isinstance(module, nn.Sequential) else {OUTPUT: module}
            *hidden, last = stages.items()
            return StagedDecoder(dict(hidden) | {OUTPUT: nn.Sequential(last[1], ToImage(interface.image_shape))})

        def reduce(self: DecoderSpec, protocol: int | str) -> Any:
            if getattr(sys.modules.get(factory.__module__), factory.__name__, None) is not factory:  # a decorator's
                return super(cls, self).__reduce_ex__(protocol)  # type: ignore[arg-type]
            return _registered, (factory, name, version)

        fields = {
            "__module__": factory.__module__,
            "__doc__": factory.__doc__ or f"The module of {factory.__name__}.",
            "__annotations__": {"kind": Literal[name]},
            "kind": name,
            "version": version,
            "build": build,
            "__reduce_ex__": reduce,
        }
        metaclass: Any = type(DecoderSpec)
        cls: type[DecoderSpec] = DECODERS.register(metaclass(factory.__name__, (DecoderSpec,), fields))
        return cls

    return register


def _registered(factory: Callable[..., nn.Module], name: str, version: int) -> DecoderSpec:
    """Return the decoder of a function in another process, where its module has been imported but not registered."""
    if name not in DECODERS:
        module_decoder(name, version=version)(factory)
    return DECODERS.parse(name)
