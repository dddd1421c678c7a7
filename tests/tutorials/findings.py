"""What tutorials say of their networks, which only long enough training shows: checks of the names a full run has."""


def scores(runs, name):
    """A score of each of several runs."""
    return [run.scores[name] for run in runs]


def add_a_decoder(own):
    held_out = {name: scores(runs, "ood_over_blank") for name, runs in own["runs"].items()}
    assert min(held_out["MLP"]) > 0.5
    assert max(held_out["rank 1"]) < 0.05
    assert max(held_out["rank 8"]) < 0.3


def diagnose_my_model(own):
    result, control = own["result"], own["control"]
    assert result["id_over_mean"] < 0.1
    assert result["ood_over_mean"] > 0.5
    assert control["ood_over_mean"] < 0.2
    assert control["schmidt_rank"][-1] < 1.4 < 1.7 < result["schmidt_rank"][-1]
    in_control, in_result = (own["over_stages"](each)["log10 dv, box less rest"] for each in (control, result))
    assert in_control[4] > in_result[4]  # stage 3


def encoder_or_decoder(own):
    learnt, true, errors = own["learnt"], own["true"], own["errors"]
    assert learnt["ood_over_mean"] > 0.5
    assert true["ood_over_mean"] < 0.25
    assert errors["true factors"] < errors["best latents"] < errors["encoder's latents"]
    assert learnt["hole_openness"].sel(stage="input") < 0.8 < true["hole_openness"].sel(stage="input")


def fix_my_model(own):
    plain, striped = own["plain_runs"], own["striped_runs"]
    assert max(scores([*plain, *striped], "id_over_blank")) < 0.1  # all learnt
    assert min(scores(plain, "ood_over_blank")) > 0.4
    assert max(scores(striped, "ood_over_blank")) < 0.3
    assert min(scores(striped, "ood_accuracy")) > 0.95
    without, variance, both = (scores(runs, "ood_accuracy") for runs in own["low_rank_runs"].values())
    assert max(without) < 0.5
    assert min(variance) > 0.9
    assert min(both) > 0.8


def modules_of_other_libraries(own):
    denoise, decoder, generated, filled = (own[name] for name in ("denoise", "decoder", "generated", "filled"))
    assert denoise["ood_over_mean"] < 0.3
    assert decoder["ood_over_mean"] < 0.1
    assert generated["id_over_mean"] < 0.4 < generated["ood_over_mean"]
    assert filled["id_over_mean"] < 0.1 < 0.4 < filled["ood_over_mean"]
    assert denoise.attrs["metric"] == decoder.attrs["metric"] == "exact"


def my_own_data(own):
    in_block, at_random = own["in_block"], own["at_random"]
    assert in_block[0].min() > 0.95  # kept images are learnt
    assert in_block[1, 0] < 0.5 < 0.9 < at_random[1, 0]


def new_holdout(own):
    in_block, at_random = (scores(runs, "ood_over_blank") for runs in own["runs"].values())
    assert max(at_random) < 0.2 < 0.4 < min(in_block)
    small, middle, large = (sum(scores(runs, "ood_over_blank")) / len(runs) for runs in own["discs"].values())
    assert small < middle < large
    assert small < 0.3 < 0.5 < large


def remedy_in_my_loop(own):
    assert max(own["errors"][0.01]) < 0.7 * min(own["errors"][0])


def reproduce_a_figure(own):
    accuracy = own["dataset"]["ood_accuracy"]
    assert float(accuracy.sel(arm="none").max()) < 0.5
    assert float(accuracy.sel(arm=["variance", "both"]).min()) > 0.8


FINDINGS = {
    check.__name__: check
    for check in (
        add_a_decoder, diagnose_my_model, encoder_or_decoder, fix_my_model, modules_of_other_libraries, my_own_data,
        new_holdout, remedy_in_my_loop, reproduce_a_figure,
    )
}  # fmt: skip
