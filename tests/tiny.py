"""The smallest preset that still has every arm, stage and panel."""

TINY: tuple[str, ...] = (
    "seeds=3", "extra_seeds=1", "size=8", "width=4", "steps=30", "samples=60", "depths=2,3", "mlp_depths=2,3",
    "mlp_bump_width=16", "mlp_rate_width=16", "mlp_rate_steps=30", "bumps=0,5,20", "percents=20",
    "penalty_other_size=7", "penalty_size=8", "penalty_epochs=3", "threshold_sizes=6,7,8", "threshold_width=4",
    "threshold_steps=20", "threshold_first=3", "threshold_rest=2", "angles=36", "rotation_gaps=80", "rotation_width=4",
    "rotation_steps=10",
    "digits=2", "attention_size=8", "attention_width=8", "attention_steps=10", "coordinate_width=8",
    "coordinate_steps=10", "holdout_sizes=8,10", "holdout_percents=30,60",
    "variances=1,5", "theory_flow_steps=3",
    "factors_size=6", "factors_counts=2,3", "factors_values=2,2,2", "factors_width=4", "factors_steps=20",
    "ladder_size=8", "ladder_width=4", "ladder_steps=20", "causal_steps=20", "prospective_seeds=1",
    "theory_seeds=3", "factors_seeds=3", "penalty_seeds=3", "rotation_seeds=3", "deep_rate_seeds=3", "causal_seeds=3",
    "ladder_seeds=3",
    "factors_data=5", "factors_low_rank_steps=20",
)  # fmt: skip
FLAGS: list[str] = [word for change in TINY for word in ("--set", change)]
