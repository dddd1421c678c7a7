"""The arena: every remedy tuned alike, chosen without the test region, and judged on fresh seeds."""

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import xarray

import recombine as rc
from recombine.arena import PROTOCOL, Arena, ArenaTask, Configuration, Evidence, Protocol, chosen_by, compete, tune
from recombine.arena.advice import controls, in_brief, limits, matrix, with_arena
from recombine.arena.protocol import CEILING, GATES, PLAIN, PLANTED, Rule, configurations
from recombine.arena.scores import Scorer
from recombine.errors import InvalidValue
from recombine.reproduction.paper import Findings
from recombine.reproduction.reporting import write_report
from tests.command import captured
from tests.remedies.test_decoders import PENALTIES as PLANTED_PENALTIES
from tests.remedies.test_decoders import PLANTED as PLANTED_DECODERS

CPU = torch.device("cpu")
SMALL = rc.RunSpec(
    task=rc.BumpTask(size=8, holdout="center:3:5", training="each"), decoder=rc.MLP(width=8, depth=1),
    recipe=rc.Recipe(steps=10, lr=1e-2),
)  # fmt: skip
TINY = Protocol(
    tasks={
        "bump": ArenaTask(base=SMALL, inner="corner:6"),
        "bumps": ArenaTask(
            base=SMALL.replace(task=rc.BumpsTask(size=8, factors=("x=4", "y=4", "size=2"), holdout="orthotopic:2:2,2,1",
                                                 training="each")), inner="corner:2:factors=x,y",
        ),
    },
    remedies={
        PLAIN: configurations(PLAIN, (1e-2, 1e-9)), "isolated": configurations("isolated", (1e-9, 1e-2)),
        "mixup": configurations("mixup", (1e-2,), ("weight=0.1", "weight=1e-3")),
    },
    tuning_seeds=(5, 6), seeds=(1, 2, 3),
)  # fmt: skip


def test_every_remedy_passed_a_gate():
    planted = {name.partition(":")[0] for name in (*PLANTED_DECODERS, *PLANTED_PENALTIES)}
    built = {"interaction": "cross_attention"}  # its decoder
    assert set(GATES) >= set(PROTOCOL.remedies)
    assert {built.get(name, name) for name, gate in GATES.items() if gate == PLANTED} <= planted


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def result(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arena")
    for part in compete(TINY, store, CPU):
        part.save(folder)
    return Arena.open(folder, TINY.tasks)


@pytest.mark.parametrize("name", PROTOCOL.tasks)
def test_the_second_holdout_lies_inside_the_kept_combinations_and_leaves_the_test_region_alone(name):
    own = PROTOCOL.tasks[name]
    task, tuning = own.base.task, own.tuning.task
    assert bool(tuning.held_out.any())
    assert not bool((tuning.held_out & task.held_out).any())
    assert not bool((tuning.usable & task.held_out).any())
    assert not bool((tuning.present & task.held_out).any())  # not even evaluated
    assert task.holdout_summary.unseen == tuning.holdout_summary.unseen == ()
    assert int(tuning.held_out.sum()) < int(task.usable.sum()) / 3


def test_every_remedy_is_tuned_alike_and_fits_every_task():
    assert {len(own) for own in PROTOCOL.remedies.values()} == {8}
    assert all(len(set(own)) == 8 for own in PROTOCOL.remedies.values())
    assert not set(PROTOCOL.seeds) & set(PROTOCOL.tuning_seeds)
    for task in PROTOCOL.tasks.values():
        for first, *_, last in PROTOCOL.remedies.values():
            for configuration in {first.remedy: first, last.remedy: last}.values():
                assert configuration.apply(task.base).interface == task.base.interface


def test_the_protocol_is_data_and_its_digest_names_every_part():
    assert Protocol.from_json(PROTOCOL.to_json()) == PROTOCOL
    others = [
        TINY.replace(composes=0.8), TINY.replace(seeds=(1, 2)), TINY.part(["bump"]), TINY.part(remedies=["mixup"]),
        TINY.replace(tasks={**TINY.tasks, "bump": TINY.tasks["bump"].replace(inner="corner:7")}),
    ]  # fmt: skip
    assert len({TINY.digest, *(own.digest for own in others)}) == 6


def test_tuning_chooses_by_the_second_holdout_alone(result):
    log = result.log
    assert len(log) == 2 * 3 * 2 * 2
    assert result.chosen == chosen_by(log) == chosen_by(log.assign(test=-log["test"]))
    for task, own in result.chosen.items():
        for remedy, number in own.items():
            scores = {}
            for row in log[(log["task"] == task) & (log["remedy"] == remedy)].itertuples():
                scores.setdefault(row.configuration, []).append(max(row.inner, -1.0))
            assert number == max(scores, key=lambda k: sum(scores[k]))
    planted = pandas.DataFrame({
        "task": "t", "remedy": "r", "configuration": [0, 0, 1, 1], "inner": [0.9, -1e9, -0.2, np.nan], "id": 1.0,
        "test": [0.0, 0.0, 1.0, 1.0],
    })  # fmt: skip
    assert chosen_by(planted) == {"t": {"r": 0}}  # a network that diverged counts as -1
    assert chosen_by(planted, "test") == {"t": {"r": 1}}
    with pytest.raises(InvalidValue):
        chosen_by(log, "best")


def test_scores_are_those_of_the_fresh_seeds(result, store):
    spec = TINY.remedies["isolated"][result.chosen["bump"]["isolated"]].apply(SMALL).replace(seed=2)
    run = rc.Store(store).run(spec.digest)
    task = SMALL.task
    held, points = task.held_out, task.grid.points
    target = task.images(points).float()
    with torch.no_grad():
        output = run.module()(task.codes(points).float())
    for name, region in (("ood_r2", held), ("id_r2", ~held)):
        own, truth = output[region], target[region]
        expected = 1 - (own - truth).square().sum() / (truth - truth.mean(dim=0)).square().sum()
        found = result.data[name].sel(task="bump", remedy="isolated", seed=2)
        assert float(found) == pytest.approx(float(expected), abs=1e-4)
    assert result.data.sizes == {"task": 2, "remedy": 4, "seed": 3, "control": 5}


def test_what_was_chosen_before_is_not_tuned_again(result, store):
    assert tune(TINY, "bump", store, CPU, known=result.chosen["bump"]) is None
    assert set(tune(TINY, "bump", store, CPU, known=[PLAIN])["remedy"]) == {"isolated", "mixup"}


def test_controls_are_right_for_planted_images():
    images = np.zeros((9, 6, 6), np.float32)
    for number in range(9):  # bar x in the upper half and bar y in the lower one
        images[number, :3, 2 * (number // 3)] = images[number, 3:, 2 * (number % 3)] = 0.5
    task = rc.ArrayTask(images, {"x": [n // 3 for n in range(9)], "y": [n % 3 for n in range(9)]}, holdout="corner:1")
    own = Scorer(task)
    assert own.controls()["lit"] == pytest.approx(1.0)  # every bar is in some kept image
    blank = rc.BumpTask(size=12, holdout="corner:6", sigma=0.5)
    assert Scorer(blank).controls()["lit"] < 0.6  # the quadrant is dark in training
    plus = rc.BumpTask(size=12, holdout="center:5:6", sigma=3.0)
    own = Scorer(plus).controls()
    assert own["blank"] < own["nearest"] <= own["sum of two"]
    mean = torch.stack([plus.render(plus.grid.points)[plus.held_out].mean(dim=0)])
    assert Scorer(plus).of_module(lambda codes: mean.expand(len(codes), -1, -1).float())["ood_r2"] == pytest.approx(
        0, abs=1e-6
    )
    perfect = Scorer(plus).of_errors(torch.zeros(144), plus.held_out)
    assert perfect == {"id_r2": 1.0, "ood_r2": 1.0}


def test_the_table_and_the_figure_show_every_remedy_on_every_task(result):
    table = result.table()
    assert len(table) == 2 * 4
    assert list(dict.fromkeys(table["task"])) == ["bump", "bumps"]
    assert all(table[table["task"] == "bump"]["held out"].diff().dropna() <= 0)
    assert {"by inner score", "by id score", "by test score"} <= set(table.columns)
    own = table.set_index(["task", "remedy"])
    assert own.loc[("bump", "isolated"), "knows"] == "extra images"
    best = own["by test score"].drop(index=[(task, CEILING) for task in TINY.tasks])
    assert (best >= own["by inner score"].loc[best.index]).all()  # the oracle's
    figure = result.draw()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["bump", "bumps"]


def test_a_remedy_of_ones_own_is_tuned_over_as_many_configurations():
    own = PROTOCOL.part(["bump"], ["exact_contrast:weight=1e-5"])
    assert set(own.remedies) == {PLAIN, "exact_contrast:weight=1e-5"}
    assert len(own.remedies["exact_contrast:weight=1e-5"]) == 8
    for wrong in ({"tasks": ["nothing"]}, {"remedies": ["nothing"]}):
        with pytest.raises(InvalidValue):
            PROTOCOL.part(**wrong)


def test_a_network_that_diverged_counts_as_the_lowest_score(result):
    scores = result.data["ood_r2"].copy(deep=True)
    scores.loc[{"task": "bump", "remedy": "mixup"}] = [0.5, 0.5, np.nan]
    log = result.log.assign(test=np.where(result.log["remedy"] == "mixup", np.nan, result.log["test"]))
    rows = Arena(result.data.assign(ood_r2=scores), log).table().set_index(["task", "remedy"])
    assert rows.loc[("bump", "mixup"), "held out"] == pytest.approx(0.0)
    assert rows.loc[("bump", "mixup"), "by test score"] == -1


def test_the_command_registers_runs_and_refuses_another_protocol(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("recombine.arena.PROTOCOL", TINY)
    out = tmp_path / "arena"
    words = f"arena --out {out} --store {tmp_path / 'store'} --device cpu --seeds 2 --task bump --remedy isolated"
    assert captured(f"{words} --register", capsys)[0] == 0
    assert Protocol.from_json((out / "protocol.json").read_text()) == TINY.part(["bump"], ["isolated"])
    code, shown, err = captured(words, capsys)
    assert code == 0, err
    assert "isolated" in shown
    assert {str(path.relative_to(out)) for path in out.rglob("*.*")} == {
        "arena.csv", "arena.png", "chosen.json", "evidence.json", "protocol.json", "scores/bump.nc", "tuning/bump.csv"
    }  # fmt: skip
    assert set(pandas.read_csv(out / "arena.csv")["remedy"]) == {PLAIN, "isolated", CEILING}
    assert set(json.loads((out / "chosen.json").read_text())["bump"]) == {PLAIN, "isolated"}
    evidence = Evidence.open(out)
    assert evidence == Evidence.of(Arena.open(out, ["bump"]), TINY.part(["bump"]))
    assert set(evidence.held_out["bump"]) == {PLAIN, "isolated"}
    assert evidence.inner == {"bump": {}}  # too few steps
    code, _, err = captured(words.replace("--remedy isolated", "--remedy mixup"), capsys)
    assert (code, "these tasks, remedies and rules" in err) == (2, True)
    monkeypatch.setattr("recombine.arena.PROTOCOL", TINY.replace(prescription=Rule(holds=0.9)))
    code, _, err = captured(words, capsys)
    assert (code, "these tasks, remedies and rules" in err) == (2, True)


def test_the_registered_protocol_is_the_one_that_runs():
    assert Protocol.from_json(Path("results/arena/protocol.json").read_text()) == PROTOCOL


def test_a_configuration_is_a_change_to_the_base():
    spec = Configuration(remedy="hessian:weight=1e-4", lr=3e-3, decoder=rc.MLP(width=4, depth=1)).apply(SMALL)
    assert (spec.recipe.lr, spec.decoder.width, str(spec.penalties[0])) == (3e-3, 4, "hessian:weight=0.0001")
    assert Configuration(lr=3e-3).apply(SMALL) == SMALL.replace(recipe=SMALL.recipe.replace(lr=3e-3))


@pytest.fixture(scope="module")
def planted():
    remedies, tasks = [PLAIN, CEILING, "broadcast", "additive", "mixup"], ["easy", "hard"]
    means = {"easy": (0.2, 0.99, 0.97, 0.3, 0.25), "hard": (-0.5, 0.6, 0.4, 0.1, 0.5)}
    scores = np.array([[np.full(16, own) for own in means[task]] for task in tasks])
    kept = np.where(np.array(remedies)[None, :, None] == "additive", 0.5, 0.95) + 0 * scores
    data = xarray.Dataset(
        {name: (("task", "remedy", "seed"), values) for name, values in
         {"ood_r2": scores, "id_r2": kept, "ood_accuracy": scores, "seconds": 1 + 0 * scores}.items()},
        {"task": tasks, "remedy": remedies, "seed": range(16), "control": ["blank"]}, {"composes": 0.9},
    )  # fmt: skip
    data["images"] = ("task", "remedy"), np.full((2, 5), 100.0)
    data["settings"] = ("task", "remedy"), np.full((2, 5), "{}")
    data["configuration"] = ("task", "remedy"), np.full((2, 5), 1.0)
    data["controls"] = ("task", "control"), [[-0.1], [-0.2]]
    return Arena(data)


def test_advice_says_what_the_scores_say(planted):
    easy, hard = in_brief(planted).splitlines()
    assert "most seeds compose with `broadcast` (0.97)" in easy
    assert "knows no more than a plain decoder is `mixup` with 0.25" in easy
    assert easy.endswith("Plain decoder 0.20, trained on the whole grid 0.99.")
    assert "no remedy makes most seeds compose; the best is `mixup` with 0.50" in hard
    rows = {line.split("|")[1].strip(): line for line in matrix(planted).splitlines()}
    assert "**0.97 [0.97, 0.97]**" in rows["`broadcast`"]
    assert "**" not in rows["`mixup`"]
    assert list(rows)[2:] == ["`broadcast`", "`mixup`", "`additive`", "`none`", "`whole grid`"]
    assert "| blank | −0.10 | −0.20 |" in controls(planted)
    said = limits(planted)
    assert "**hard**: even trained on the whole grid" in said
    assert "not learnt (R² below 0.9) with `additive`" in said
    assert "**easy**: even" not in said


def test_a_report_shows_the_arena(planted, tmp_path, capsys):
    folder, page = tmp_path / "arena", tmp_path / "page"
    planted.save(folder)
    tasks = dict.fromkeys(("easy", "hard"), TINY.tasks["bump"])
    (folder / "protocol.json").write_text(TINY.replace(tasks=tasks).to_json())
    document = tmp_path / "remedies.md"
    document.write_text("<!-- arena_in_brief: begin -->\n<!-- arena_in_brief: end -->\n")
    assert captured(f"report {folder} --write {document}", capsys).code == 0
    assert in_brief(planted) in document.read_text()
    paper = with_arena(rc.PAPER, folder)
    assert paper.sections[-1].figures == ("arena",)
    (tmp_path / "results").mkdir()
    findings = Findings(paper, rc.Results(tmp_path / "results"))
    write_report(findings, page)
    assert "Which remedy helps where?" in (page / "index.html").read_text()
    assert (page / "figures" / "arena.png").exists()
