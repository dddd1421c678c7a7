"""Prescriptions: what remedies assume, against slow and obvious versions, and predictions from planted arenas."""

import json
from itertools import product
from typing import Literal

import numpy as np
import pandas
import pytest
import torch
import xarray

import recombine as rc
from recombine.arena import PROTOCOL, Arena, ArenaTask, Evidence, inner_holdout, measured
from recombine.arena.assumptions import ASSUMPTIONS, shift_errors
from recombine.arena.evidence import AVERAGE, BROADCAST, PRESCRIBED, best_tried, learnt, regrets
from recombine.arena.protocol import PLAIN, Rule
from recombine.decoders import DECODERS
from recombine.errors import InvalidValue
from recombine.remedies import REMEDIES
from tests.arena.test_arena import SMALL, TINY
from tests.command import captured

SIDE = 6
PLACES = list(product(range(SIDE), range(SIDE)))
RANDOM = np.random.default_rng(0)
PARTS = RANDOM.random((2, SIDE, 8, 8)) + 0.1


def task_of(image, holdout="corner:4", **fields):
    """A task of images of two factors."""
    images = np.array([image(a, b) for a, b in PLACES], dtype=np.float32)
    factors = dict(zip("ab", zip(*PLACES, strict=True), strict=True))
    return rc.ArrayTask(images / images.max(), factors, holdout=holdout, training="each", **fields)


def blob(row, column, width=1.0, size=12):
    """A Gaussian blob."""
    y, x = np.mgrid[:size, :size]
    return np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * width**2))


TASKS = {
    "sum": task_of(lambda a, b: PARTS[0, a] + PARTS[1, b]),
    "product": task_of(lambda a, b: PARTS[0, a] * PARTS[1, b]),
    "noise": task_of(lambda a, b: RANDOM.random((8, 8))),
    "moving": task_of(lambda a, b: blob(3 + a, 3 + b, 0.8)),
    "dark": task_of(lambda a, b: blob(2 * a, 2 * b, 0.6, 11)),
}


@pytest.mark.parametrize(
    ("name", "holds", "fails"),
    [
        ("sum", ["additivity", "low rank", "coverage"], ["translation"]),
        ("product", ["low rank", "coverage"], ["translation"]),
        ("noise", ["coverage"], ["additivity", "low rank", "translation"]),
        ("moving", ["translation"], ["additivity"]),
        ("dark", ["translation"], ["additivity", "coverage"]),
    ],
)
def test_known_answers(name, holds, fails):
    known = measured(TASKS[name])
    assert list(known) == list(ASSUMPTIONS)
    assert all(known[own] > 0.99 for own in holds)
    assert all(known[own] < 0.5 for own in fails)


def test_sums_and_products_are_those_of_a_loop():
    """Two images are held out: to predict one of them, the row of the other is left out."""
    task = task_of(lambda a, b: RANDOM.random((4, 4)), "mask:2,3;4,1")
    images = task.images(task.grid.points).double().reshape(SIDE, SIDE, 16).numpy() - task.background
    outputs, held = {"additivity": [], "low rank": []}, ((2, 3), (4, 1))
    for (a, b), (other, _) in (held, held[::-1]):
        rows, columns = [k for k in range(SIDE) if k not in (a, other)], [k for k in range(SIDE) if k != b]
        places = [(k, m) for k in (a, *rows) for m in (b, *columns) if (k, m) != (a, b)]
        design = np.array([[*(k == np.arange(SIDE)), *(m == np.arange(SIDE))] for k, m in places], dtype=float)
        target = np.array([*(a == np.arange(SIDE)), *(b == np.arange(SIDE))], dtype=float)
        fit = np.linalg.lstsq(design, np.array([images[place] for place in places]), rcond=None)[0]
        outputs["additivity"].append(target @ fit)
        products = []
        for pixel in range(16):
            one = images[..., pixel]
            whole = one[:, columns].mean(1)[:, None] + one[rows].mean(0)[None] - one[np.ix_(rows, columns)].mean()
            rest = one - whole
            left, sizes, right = np.linalg.svd(rest[np.ix_(rows, columns)])
            core = sum(np.outer(left[:, k], right[k]) * sizes[k] for k in range(2))
            products.append(whole[a, b] + rest[a, columns] @ np.linalg.pinv(core, rcond=1e-9) @ rest[rows, b])
            assert sizes[1] > 0.01 * len(rows) ** 0.5 * len(columns) ** 0.5  # none is negligible
        outputs["low rank"].append(np.clip(products, images.min(), images.max()))
    truth = np.array([images[place] for place in held])
    spread = np.square(truth - truth.mean(0)).sum()
    known = measured(task)
    for name, own in outputs.items():
        assert known[name] == pytest.approx(1 - np.square(np.array(own) - truth).sum() / spread, abs=1e-9)


@pytest.mark.parametrize("shape", [(5, 6), (3, 5, 6)])
def test_shifts_are_those_of_a_loop(shape):
    target, image = torch.rand(shape).double(), torch.rand(shape).double()
    errors = shift_errors(target, image[None])[0]
    height, width = shape[-2:]
    for down, right in product(range(-height + 1, height), range(-width + 1, width)):
        moved = torch.zeros(shape).double()
        for y, x in product(range(height), range(width)):
            if 0 <= y - down < height and 0 <= x - right < width:
                moved[..., y, x] = image[..., y - down, x - right]
        assert errors[down, right].item() == pytest.approx((target - moved).square().sum().item())


def test_what_no_kept_images_can_test_is_nan_and_drops_nothing():
    cross = {"excluded": rc.Mask(points=[own for own in PLACES if all(own)]), "allow_unseen": True}
    known = measured(task_of(lambda a, b: PARTS[0, a] + PARTS[1, b], "mask:0,1;0,2", **cross))
    assert np.isnan(known["additivity"])
    result = rc.prescribe(SMALL, ["additive"], seeds=0, inner="mask:0,7")
    assert np.isnan(result.assumptions["additivity"])  # one image has no variance
    assert "cannot be tested" in result.sentences[0]
    assert result.table["left out"].tolist() == [""]


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize(
    ("image", "holds"), [(lambda a, b: PARTS[0, a] * PARTS[1, b], True), (lambda a, b: blob(2 * a, 2 * b, 0.6), False)]
)
def test_low_rank_is_what_eight_bits_can_show(image, holds, bits):
    """A narrow blob is a product, but where images are held out it is one of tails that no decoder can learn."""
    images = np.array([image(a, b) for a, b in PLACES]) / max(image(a, b).max() for a, b in PLACES)
    images = np.round(255 * images).astype(np.uint8) if bits == 8 else images.astype(np.float32)
    factors = dict(zip("ab", zip(*PLACES, strict=True), strict=True))
    known = measured(rc.ArrayTask(images, factors, holdout="corner:4", training="each"))
    assert known["low rank"] > 0.99 if holds else known["low rank"] < 0.5


def test_what_moves_may_be_one_of_several_objects():
    """A blob that moves beside one that another factor moves, and one that is larger than its steps."""
    two = task_of(lambda a, b: np.hstack([blob(a + 3, 5, 0.8), blob(b + 3, 5, 0.8)]))
    large = task_of(lambda a, b: (blob(a + 8, b + 8, 5, 24) > 0.7).astype(float))
    grows = task_of(lambda a, b: blob(5, 5, 0.5 * a + 0.6 * b + 0.5) * np.linspace(0.1, 1, 12))
    places = RANDOM.permutation(144)[: 2 * SIDE * 8].reshape(2, SIDE, 8)
    lights = task_of(lambda a, b: np.isin(np.arange(144), [*places[0, a], *places[1, b]]).reshape(12, 12))
    assert measured(two)["translation"] > 0.8
    assert measured(large)["translation"] > 0.99
    assert measured(grows)["translation"] < 0.5
    assert measured(lights)["translation"] < 0.5  # to show what is the same without what moves is no motion


@pytest.mark.parametrize("name", ["bump", "square", "bumps", "balls", "shapes"])
def test_objects_move_in_the_tasks_of_the_arena(name):
    assert measured(PROTOCOL.tasks[name].tuning.task)["translation"] > 0.8


@pytest.mark.parametrize("name", PROTOCOL.tasks)
def test_no_second_holdout_is_chosen_by_hand(name):
    assert PROTOCOL.tasks[name].inner == inner_holdout(PROTOCOL.tasks[name].base.task)


def test_an_inner_holdout_can_be_composed_from_the_rest():
    """On an orthogonal support, values of two sprites could not: each has been seen beside one value of the other."""
    tuning = PROTOCOL.tasks["orthogonal"].tuning.task
    kept, held = (mask.reshape(tuning.grid.shape).numpy() for mask in (tuning.usable, tuning.held_out))
    axes = [tuning.grid.names.index(name) for name in tuning.holdout.factors]
    for place in np.argwhere(held):
        first, second = (np.array([[n if k == axis else own for k, own in enumerate(place)]
                                   for n in range(kept.shape[axis])]) for axis in axes)  # fmt: skip
        assert any(kept[tuple(a)] and kept[tuple(b)] and kept[tuple(np.where(place == a, b, a))]
                   for a, b in product(first, second))  # fmt: skip


def test_an_inner_holdout_is_of_factors_of_the_holdout():
    """Not of the longest factor, all values of which are held out alike."""
    task = rc.BumpsTask(size=8, factors=("x=9", "y=4", "size=4"), holdout="corner:2:factors=y,size", training="each")
    assert inner_holdout(task).factors == ("y", "size")


@pytest.mark.parametrize("name", PROTOCOL.tasks)
def test_an_inner_holdout_lies_inside_the_kept_combinations(name):
    base = PROTOCOL.tasks[name].base
    task = ArenaTask(base=base, inner=inner_holdout(base.task)).tuning.task
    assert not bool((task.held_out & base.task.held_out).any())
    assert 0.02 < int(task.held_out.sum()) / int(base.task.usable.sum()) < 0.3
    assert task.holdout_summary.unseen == ()


def test_what_is_left_out_stays_left_out():
    spec = SMALL.replace(task=SMALL.task.replace(excluded="corner:7", region="whole"))
    tuning = ArenaTask(base=spec, inner="corner:1:low").tuning.task
    assert torch.equal(tuning.left_out, spec.task.held_out | spec.task.left_out)
    assert tuning.region == "kept"


def planted(decide, tasks=8, seeds=5):
    """An arena whose results depend on a task's assumptions, as `decide(task number, remedy)` says."""
    random = np.random.default_rng(1)
    names, remedies = [f"task {k}" for k in range(tasks)], [PLAIN, "additive", "multilinear", BROADCAST]
    means = np.array([[decide(k, remedy) for remedy in remedies] for k in range(tasks)])
    scores = means[..., None] + 0.01 * random.standard_normal((tasks, len(remedies), seeds))
    kinds = [{"additivity": 1.0, "low rank": 1.0, "translation": 0.1, "coverage": 1.0},
             {"additivity": 0.0, "low rank": 0.2, "translation": 1.0, "coverage": 1.0}]  # fmt: skip
    return Evidence(
        assumptions={name: kinds[k % 2] for k, name in enumerate(names)},
        held_out={
            name: dict(zip(remedies, own.tolist(), strict=True)) for name, own in zip(names, scores, strict=True)
        },
    )


def by_assumption(k, remedy):
    return 0.9 if remedy == ("additive", BROADCAST)[k % 2] else 0.2


def by_chance(k, remedy):
    """Broadcast is good everywhere, and what else is good has nothing to do with assumptions."""
    return 0.8 if remedy == BROADCAST else 0.2 + 0.7 * (k // 2 % 2 == (remedy == "multilinear"))


def by_luck(k, remedy):
    """Additive is better than broadcast, but arbitrarily wrong on one in four tasks of each kind."""
    return {BROADCAST: 0.65, "additive": -1.0 if k // 2 == 3 else 1.0}.get(remedy, 0.2)


def test_predictions_beat_one_remedy_for_all_if_assumptions_decide():
    evidence = planted(by_assumption)
    lost = regrets(evidence.validation())
    assert lost[PRESCRIBED] < 0.05
    assert min(lost[BROADCAST], lost[AVERAGE]) > 0.3
    known = evidence.assumptions["task 0"]
    effect = evidence.effect("additive", known)
    assert effect.low < effect.value < effect.high
    assert (effect.value, effect.networks) == (pytest.approx(0.7, abs=0.05), 4)  # it fails on the others
    assert evidence.effect("multilinear", known).value == pytest.approx(0, abs=0.05)
    result = rc.prescribe(SMALL.replace(task=TASKS["sum"]), arena=evidence, seeds=0)
    assert result.remedy == "additive"
    assert "Use additive" in result.sentences[2]
    assert "prescriptions without a trial" in result.sentences[2]
    assert "most similar task is task 0" in result.sentences[1]
    assert result.table["remedy"][0] == "additive"


def test_a_prescription_says_if_it_does_not_beat_one_remedy_for_all():
    evidence = planted(by_chance)
    lost = regrets(evidence.validation())
    assert lost[BROADCAST] < lost[PRESCRIBED]
    settings = rc.prescribe(SMALL, ["broadcast:width=8", "additive"], arena=evidence, seeds=0)
    assert settings.remedy == "broadcast:width=8"
    result = rc.prescribe(SMALL.replace(task=TASKS["moving"]), arena=evidence, seeds=0)
    assert result.remedy == BROADCAST
    assert "Use broadcast, since prescriptions do not beat one remedy for all" in result.sentences[2]
    sums = rc.prescribe(SMALL.replace(task=TASKS["sum"]), arena=evidence, seeds=0)
    assert sums.remedy != BROADCAST  # nothing moves
    alike = planted(lambda k, remedy: {PLAIN: 0.5}.get(remedy, 0.1))  # no remedy helps
    assert rc.prescribe(SMALL.replace(task=TASKS["sum"]), arena=alike, seeds=0).remedy == PLAIN


def test_a_task_takes_no_part_in_what_is_prescribed_for_it():
    evidence = planted(by_assumption)
    changed = {**evidence.held_out, "task 0": {name: [1 - own[0]] for name, own in evidence.held_out["task 0"].items()}}
    other = evidence.replace(held_out=changed)
    assert other.prescribed("task 0") == evidence.prescribed("task 0") == "additive"
    assert other.validation().loc["task 0", AVERAGE] == evidence.validation().loc["task 0", AVERAGE]
    assert evidence.part(["task 0"], evidence.held_out["task 0"]).validation() is None


def test_a_trial_in_tuning_decides_between_the_best_two():
    evidence = planted(by_assumption)
    inner = {PLAIN: [0.3], "additive": [0.4], "multilinear": [0.5], BROADCAST: [0.9]}
    assert evidence.replace(inner={"task 0": inner}).prescribed("task 0") == "multilinear"  # broadcast is not tried


def test_evidence_is_that_of_an_arena(tmp_path):
    names, log = (
        [PLAIN, "mixup", "wider", "whole grid"],
        [("mixup", 1, 0.5), ("mixup", 1, 0.7), ("mixup", 0, 0.9), (PLAIN, 0, 0.1), ("wider", 0, 0.8)],
    )
    data = xarray.Dataset(
        {"ood_r2": (("task", "remedy", "seed"), [[[0.1, 0.3], [0.5, -9.0], [0.5, np.nan], [1.0, 1.0]]]),
         "seconds": (("task", "remedy", "seed"), [[[1.0, 3.0], [4.0, 4.0], [4.0, 4.0], [1.0, 1.0]]]),
         "configuration": (("task", "remedy"), [[0.0, 1.0, 0.0, np.nan]])},
        {"task": ["bump"], "remedy": names, "seed": [0, 1]},
    )  # fmt: skip
    frame = pandas.DataFrame([{"task": "bump", "remedy": r, "configuration": k, "inner": v} for r, k, v in log])
    frame["id"] = np.where(frame["remedy"] == "wider", 0.5, 0.95)  # it did not learn
    Arena(data, frame).save(tmp_path)
    evidence = Evidence.of(Arena.open(tmp_path, TINY.tasks), TINY)
    assert evidence.held_out == {"bump": {PLAIN: [0.1, 0.3], "mixup": [0.5, -1.0], "wider": [0.5, -1.0]}}
    assert evidence.inner == {"bump": {PLAIN: [0.1], "mixup": [0.5, 0.7]}}
    assert evidence.seconds == {"bump": {PLAIN: 2.0, "mixup": 4.0, "wider": 4.0}}
    assert evidence.assumptions["bump"] == pytest.approx(measured(TINY.tasks["bump"].tuning.task))
    assert Evidence.from_json(evidence.to_json()) == evidence


def test_a_remedy_of_a_stranger_assumes_nothing_unless_it_says_so():
    class Mine(rc.Remedy):
        """A wider decoder."""

        kind: Literal["mine"] = "mine"

        def apply(self, spec):
            return spec.replace(decoder=spec.decoder.replace(width=2 * spec.decoder.width))

    class Strict(Mine):
        """The same for sums."""

        kind: Literal["strict"] = "strict"
        assumes = ("additivity",)

    for own in (Mine, Strict):
        REMEDIES.register(own)
    try:
        table = rc.prescribe(SMALL.replace(task=TASKS["noise"]), ["mine", "strict"], seeds=0).table
    finally:
        for own in ("mine", "strict"):
            REMEDIES.unregister(own)
    assert dict(zip(table["remedy"], table["left out"], strict=True)) == {"mine": "", "strict": "additivity fails"}


def test_the_best_two_are_tried_on_the_inner_holdout(tmp_path):
    spec = SMALL.replace(task=TASKS["sum"], recipe=SMALL.recipe.replace(steps=30))
    result = rc.prescribe(spec, ["wider", "multilinear", "additive"], seeds=2, store=tmp_path, device="cpu")
    assert set(result.trial) == {PLAIN, "additive", "multilinear"}
    assert result.trial.index.tolist() == [0, 1]
    assert result.remedy in (PLAIN, result.trial.mean().idxmax())
    assert "no results of the arena" in result.sentences[1]
    for run in rc.Store(tmp_path):
        assert not bool((run.spec.task.present & spec.task.held_out).any())  # neither trained on nor evaluated


def test_a_task_has_the_seeds_that_it_was_given(planted_seeds):
    evidence, table = Evidence.of(planted_seeds, TINY), planted_seeds.table().set_index(["task", "remedy"])
    assert [len(evidence.held_out[task]["mixup"]) for task in ("bump", "bumps")] == [3, 2]
    assert evidence.means("bumps")["mixup"] == pytest.approx(0.95)
    assert table.loc[("bumps", "mixup"), "compose"] == 1.0


@pytest.fixture
def planted_seeds(tmp_path):
    for task, count in (("bump", 3), ("bumps", 2)):
        own = ("task", "remedy", "seed")
        scores = {name: (own, np.full((1, 2, count), 0.95)) for name in ("ood_r2", "id_r2", "ood_accuracy", "seconds")}
        dims = {"task": [task], "remedy": [PLAIN, "mixup"], "seed": range(count), "control": ["blank"]}
        data = xarray.Dataset(scores, dims, {"composes": 0.9})
        for name, value in (("images", 9.0), ("configuration", 0.0)):
            data[name] = own[:2], np.full((1, 2), value)
        data["settings"] = own[:2], [["{}", "{}"]]
        data["controls"] = ("task", "control"), [[0.0]]
        Arena(data).save(tmp_path)
    return Arena.open(tmp_path, ("bump", "bumps"))


def test_tasks_with_the_same_images_are_left_out_together():
    evidence = planted(by_assumption)
    twins = {task: "the same" if task in ("task 0", "task 1") else task for task in evidence.held_out}
    left = set(evidence.replace(images=twins).others("task 0").held_out)
    assert left == {*evidence.held_out} - {"task 0", "task 1"}
    assert evidence.replace(images=dict.fromkeys(evidence.held_out, "one")).validation() is None


def test_the_interval_of_an_effect_contains_that_of_a_new_task():
    """Of seven similar tasks, over which effects have a standard deviation of 0.2, in 95 % of cases."""
    random, inside = np.random.default_rng(1), []
    for _ in range(600):
        scores = {
            f"task {k}": {PLAIN: [0.1], "wider": [0.3 + own]} for k, own in enumerate(0.2 * random.standard_normal(7))
        }
        evidence = Evidence(assumptions={task: {"coverage": 1.0} for task in scores}, held_out=scores)
        effect = evidence.effect("wider", {"coverage": 1.0})
        inside.append(effect.low < 0.2 + 0.2 * random.standard_normal() < effect.high)
    assert 0.92 < np.mean(inside) < 0.98
    one = evidence.part(["task 0"], [PLAIN, "wider"]).effect("wider", {})
    assert (one.low, one.high) == (-2, 2)  # of one task nothing is known


def test_a_trial_in_which_nothing_is_learnt_says_so(tmp_path):
    spec = SMALL.replace(task=TASKS["sum"], recipe=SMALL.recipe.replace(steps=1))
    result = rc.prescribe(spec, ["multilinear"], seeds=2, store=tmp_path, device="cpu")
    assert result.remedy == PLAIN
    assert result.sentences[2].startswith("Train longer, since no network learnt the kept images")


def test_remedies_of_denoisers_are_those_of_a_spec():
    spec = SMALL.replace(task=TASKS["sum"], decoder="unet:width=4:renderer=mlp")
    assert "additive" in rc.prescribe(spec, ["additive"], seeds=0).table["remedy"].tolist()
    assert spec.with_remedy("additive").decoder.kind == "unet"


@pytest.mark.parametrize(
    ("gains", "remedy"), [((0.4, -0.4, 0.4, -0.3), PLAIN), ((0.1, 0.12, 0.11, 0.1), "additive"), ((0.1,), "additive")]
)
def test_a_remedy_has_to_gain_more_than_seeds_vary(gains, remedy):
    trial = {PLAIN: [0.5] * len(gains), "additive": 0.5 + np.array(gains), "wider": 0.4 - np.array(gains)}
    assert best_tried(trial, Rule()) == remedy
    assert best_tried({name: own for name, own in trial.items() if name != PLAIN}, Rule()) == "additive"
    assert best_tried({}, Rule()) == PLAIN


def test_a_remedy_that_does_nothing_is_rarely_prescribed():
    random = np.random.default_rng(0)
    trials = [dict(zip((PLAIN, "additive", "wider"), random.normal(size=(3, 4)), strict=True)) for _ in range(1000)]
    assert np.mean([best_tried(trial, Rule()) != PLAIN for trial in trials]) < 0.065


def trial_of(monkeypatch, scores, unlearnt=()):
    """Make trials have these R² on the inner hold-out."""

    def planned(tuning, tried, seeds, *_, **__):
        import recombine.arena.prescription as engine

        noise = 0.001 * np.arange(len(seeds))
        frame = pandas.DataFrame({name: scores[name] + noise for name in (PLAIN, *tried)}, index=list(seeds))
        return engine._Trial(frame, {PLAIN, *tried} - {*unlearnt}, {})

    monkeypatch.setattr("recombine.arena.prescription._trial", planned)


def test_one_remedy_for_all_competes_with_those_that_the_arena_does_not_know(monkeypatch):
    assumes = dict.fromkeys((BROADCAST, "additive", "multilinear", "wider", "isolated"), ())
    spec, evidence = SMALL.replace(task=TASKS["sum"]), planted(by_luck).replace(rule=Rule(assumes=assumes))
    scores = {PLAIN: 0.3, BROADCAST: 0.4, "additive": 0.5, "wider": 0.6, "isolated": 0.2, "multilinear": 0.3}
    trial_of(monkeypatch, scores)
    result = rc.prescribe(spec, [BROADCAST, "additive", "wider"], arena=evidence)
    assert result.remedy == "wider"
    assert "it has no results on wider" in result.sentences[1]
    result = rc.prescribe(spec, [BROADCAST, "additive", "isolated"], arena=evidence)
    assert result.remedy == BROADCAST
    assert "although the trial speaks for additive" in result.sentences[2]
    assert "wider" not in rc.prescribe(spec, arena=evidence).trial  # two are tried of all, and named ones
    trial_of(monkeypatch, scores, scores)
    assert rc.prescribe(spec, [BROADCAST], arena=evidence).sentences[2].startswith("Train longer")
    trial_of(monkeypatch, scores, [PLAIN, BROADCAST])  # which is best for all, but does not learn this task
    assert rc.prescribe(spec, [BROADCAST, "additive"], arena=evidence).remedy == "additive"
    trial_of(monkeypatch, {**scores, "additive": 0.3})  # as good as the plain decoder, with noise
    assert "the trial speaks for" not in rc.prescribe(spec, [BROADCAST, "additive"], arena=evidence).sentences[2]
    unknown = rc.prescribe(spec, ["isolated"], arena=evidence, seeds=0)
    assert (unknown.validation, unknown.sentences[2]) == (None, "Try isolated first.")
    trial_of(monkeypatch, scores, [PLAIN, "wider"])
    assert rc.prescribe(spec, ["additive", "wider"], seeds=2).remedy == "additive"  # the only one that learnt


def test_tasks_on_which_a_remedy_fails_say_nothing_about_one_on_which_it_does_not():
    evidence = planted(by_assumption).replace(rule=Rule(assumes={"additive": ("additivity",)}))
    alike = {"low rank": 0.2, "translation": 1.0, "coverage": 1.0}  # as the tasks that are no sums, but it might be one
    assert evidence.effect("additive", alike).value == pytest.approx(0.7, abs=0.05)
    assert evidence.effect("additive", alike).networks == 4
    never = evidence.part(["task 1"], [PLAIN, "additive"])
    assert never.effect("additive", alike).value == pytest.approx(0, abs=0.05)


def test_networks_that_diverged_have_not_learnt():
    assert learnt([0.95, 0.92], Rule())
    assert not learnt([0.95, np.nan], Rule())


def test_the_command(tmp_path, capsys):
    images = np.array([PARTS[0, a] + PARTS[1, b] for a, b in PLACES], dtype=np.float32) / 3
    np.savez(tmp_path / "sums.npz", images=images, a=[a for a, _ in PLACES], b=[b for _, b in PLACES])
    (tmp_path / "own_prescribed.py").write_text(
        "from torch import nn\n"
        "def own_linear(interface):\n"
        "    return nn.Linear(interface.code_size, interface.pixels)\n"
    )
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "evidence.json").write_text(planted(by_assumption).to_json())
    words = f"prescribe {tmp_path}/own_prescribed.py:own_linear --data {tmp_path}/sums.npz --holdout corner:4"
    words += " --steps 5 --device cpu"
    code, shown, err = captured(f"{words} --store {tmp_path}/store --seeds 2 --arena {tmp_path}/results", capsys)
    assert code == 0, err
    assert "additivity 1.00" in shown
    assert "with 2 seeds" in shown
    assert shown.count("× ") == 2  # planted results have no seconds, but the trial has
    words = words.replace(f"{tmp_path}/own_prescribed.py:", "")  # it is registered now
    code, shown, _ = captured(f"{words} --no-trial", capsys)
    assert (code, "(not tried)" in shown) == (0, True)
    for wrong, message in {
        f"{words} --decoder cnn": "decoder must be omitted", f"{words} --inner corner:5": "inner must be",
        f"{words} --inner center:20": "inner.low must be",
        f"{words} --lr 1e-3 --lr 1e-2": "one spec", f"{words} --arena {tmp_path}": "arena must be",
        "prescribe nothing.py:plain": "nothing.py", f"{words} --remedy nothing": "remedy must be one of",
    }.items():  # fmt: skip
        code, _, err = captured(wrong, capsys)
        assert (code, message in err, err.count("\n")) == (2, True, 1), err
    DECODERS.unregister("own_linear")


def test_a_decoder_is_required():
    encoder = rc.RunSpec(task=rc.BumpTask(size=8, direction="encode"), decoder="encoder")
    with pytest.raises(InvalidValue):
        rc.prescribe(encoder, seeds=0)
    with pytest.raises(InvalidValue):
        rc.prescribe(SMALL, seeds=-1)
    assert json.loads(planted(by_assumption).to_json())["inner"] == {}
