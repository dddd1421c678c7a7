"""A part's text is flag syntax: what is printed can be typed, and gives an equal part."""

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt, MultipleOf
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from recombine.decoders import DECODERS
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue
from recombine.holdouts import HOLDOUTS, Center, Mask
from recombine.records import Registry, Variant
from recombine.remedies import REMEDIES
from recombine.tasks import TASKS, TRAINING_RULES, BumpTask

REGISTRIES = {"encoding": ENCODINGS, "holdout": HOLDOUTS, "training": TRAINING_RULES, "decoder": DECODERS}
KINDS = [(registry, kind) for registry in REGISTRIES.values() for kind in registry]
LARGEST = 40
"""Largest number drawn where a field has no lower bound of its own."""
CONDITIONS = st.from_regex(r"[xy](<|>=|!=)-?[0-9]{1,3}([,|]shape==[a-z:,|]{1,5}[a-z])?", fullmatch=True)


def values(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    """Values that a field of a part can hold."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        marks = [mark for extra in arguments[1:] for mark in (extra.metadata if isinstance(extra, FieldInfo) else [])]
        return values(arguments[0], [*marks, *metadata])
    if origin in (Union, types.UnionType):
        return st.one_of([values(choice, metadata) for choice in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values(arguments[0], []), min_size=1, max_size=4).map(tuple)
    if annotation is types.NoneType:
        return st.none()
    if annotation is bool:
        return st.booleans()
    return numbers(annotation, metadata)


def numbers(kind: type, metadata: list[Any]) -> st.SearchStrategy[Any]:
    """Numbers within the bounds of a field."""
    low, high, step, open_low, open_high = 0, None, 1, False, False
    for mark in metadata:
        low = mark.ge if isinstance(mark, Ge) else mark.gt if isinstance(mark, Gt) else low
        high = mark.le if isinstance(mark, Le) else mark.lt if isinstance(mark, Lt) else high
        step = mark.multiple_of if isinstance(mark, MultipleOf) else step
        open_low, open_high = open_low or isinstance(mark, Gt), open_high or isinstance(mark, Lt)
    if kind is float:
        top = high if high is not None else 1e9
        return st.floats(low, top, exclude_min=open_low, exclude_max=open_high, allow_subnormal=False)
    return st.integers(0, LARGEST).map(lambda n: step * (-(-low // step) + n))


@st.composite
def parts(draw: st.DrawFn, registry: Registry[Any], kind: str) -> Variant:
    """A part of one kind with random fields, some of them left as they are."""
    fields = {}
    for name, info in registry[kind].model_fields.items():
        if name != "kind" and draw(st.booleans()):
            fields[name] = draw(CONDITIONS if name == "conditions" else values(info.annotation, info.metadata))
    try:
        return registry[kind](**fields)
    except InvalidValue:  # fields that contradict each other
        assume(False)
        raise


@pytest.mark.parametrize(("registry", "kind"), KINDS, ids=[f"{r.field}-{k}" for r, k in KINDS])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_part_is_the_one_that_its_text_gives(registry, kind, data):
    part = data.draw(parts(registry, kind))
    text = str(part)
    assert " " not in text
    assert registry.parse(text) == part
    assert registry.parse(part.model_dump(mode="json")) == part


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_task_of_random_parts_too(data):
    encoding = data.draw(parts(ENCODINGS, data.draw(st.sampled_from(list(ENCODINGS)))))
    training = data.draw(parts(TRAINING_RULES, "draws"))
    low = data.draw(st.integers(1, 3))
    holdout = data.draw(st.sampled_from([Center(low=low, high=(4, 5)), Center(), Mask(points=((low, 2), (3, 3)))]))
    task = BumpTask(size=8, encoding=encoding, training=training, holdout=holdout, sigma=data.draw(st.floats(0.1, 9)))
    assert TASKS.parse(str(task)) == task


@pytest.mark.parametrize(
    ("registry", "text", "printed"),
    [
        (DECODERS, "mlp:4:1", "mlp:width=4:depth=1"),
        (HOLDOUTS, "center:6,6:22,22", "center:low=6,6:high=22,22"),
        (HOLDOUTS, "center:low=6,:high=9", "center:low=6,:high=9"),
        (HOLDOUTS, "mask:0,1;3,4", "mask:points=0,1;3,4"),
        (HOLDOUTS, "mask:points=3,:shape=8,", "mask:points=3,:shape=8,"),
        (HOLDOUTS, "mask", "mask"),
        (HOLDOUTS, "mask:0,1;3,4:factors=x,size", "mask:factors=x,size:points=0,1;3,4"),
        (HOLDOUTS, "center:6:22:factors=x,2", "center:factors=x,2:low=6:high=22"),
        (HOLDOUTS, "x>=8, y < 2|shape==heart", "x>=8,y<2|shape==heart"),
        (HOLDOUTS, "where:conditions=(shape==a:b)", "shape==a:b"),
        (HOLDOUTS, "diagonal:3:factors=x,angle", "diagonal:factors=x,angle:bandwidth=3"),
        (ENCODINGS, "mixed", "mixed"),
        (ENCODINGS, "mixed:x=bump:size=(rate:scale=unit)", "mixed:x=bump:size=(rate:scale=unit)"),
        (DECODERS, "low_rank:rank=none", "low_rank"),
        (DECODERS, "encoder:channels=4,6", "encoder:channels=4,6"),
    ],
)
def test_what_is_printed(registry, text, printed):
    assert str(registry.parse(text)) == printed
    assert registry.parse(printed) == registry.parse(text)


@pytest.mark.parametrize(
    ("registry", "text"),
    [(DECODERS, "mlp:"), (DECODERS, "mlp::4"), (ENCODINGS, "bump:"), (ENCODINGS, "mixed:x=(bump:)"),
     (HOLDOUTS, "center:6:"), (REMEDIES, "hessian:"), (TRAINING_RULES, "each:")],
)  # fmt: skip
def test_an_empty_field_is_refused_with_the_text_in_which_it_is(registry, text):
    with pytest.raises(InvalidValue) as caught:
        registry.parse(text)
    assert caught.value.field.split(".")[0] == registry.field
    assert "FIELD=VALUE" in caught.value.allowed
    assert caught.value.value in text


@pytest.mark.parametrize("text", ["center:low=", "center:low=1,,2", "center:low=one", "mask:points=0,1;;2,3", "mask:x"])
def test_a_list_that_is_none_is_one_line(text):
    with pytest.raises(InvalidValue) as caught:
        HOLDOUTS.parse(text)
    assert "\n" not in str(caught.value)
