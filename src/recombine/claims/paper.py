"""The paper's claims C1–C18 and their criteria (SPEC §9), written before the runs they judge.

Where a claim is a comparison, each case is one statement, in the direction in which the paper makes it, and its score
`effect` is positive when the statement is true of a seed. Networks of the same seed are compared with each other.

Scores (a number a seed each):

- `id_over_blank`, `ood_over_blank`: error over that of drawing nothing; `id_accuracy`, `ood_accuracy`: bump in place;
- `over_truth`, `over_null`: fraction of held-out variance that superposition explains, less the true images' or null's;
- `margin`: correlation of the binary kernel less that of its best rival; `p_value`: of the permutation test;
- `slope`: least-squares slope over stages (input = 0), averaged over depths where there are several;
- `exponent_…`: of the data threshold in N, with an interval from resampling seeds;
- `closer_to_blend`: log10 of distance to truth over distance to blend; `gap_speed`: how much faster a stage moves a
  degree inside the gap than outside, at the stage where that is largest; the input is none.
"""

from __future__ import annotations

from recombine.claims.judging import Claim, Condition

LEARNT = (Condition("id_over_blank", "below", 0.1), Condition("id_accuracy", "above", 0.95))
FAILS = (Condition("ood_over_blank", "above", 0.5),)
EFFECT = (Condition("effect", "above", 0.0),)
FAR_ABOVE_NULL = 0.2
CUBIC, LINEAR = (2.5, 3.5), (0.75, 1.25)
"""Exponents that count as 3 and as 1."""

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim(
            "C1",
            "Every disentangled encoding fails to compose, although it learns what it is trained on (§3.2, Fig. 1)",
            premises=LEARNT,
            conditions=FAILS,
        ),
        Claim(
            "C2",
            "Held-out outputs superpose memorised data (§3.3, Fig. 1d)",
            premises=LEARNT[:1],
            conditions=(Condition("over_truth", "above", 0.0), Condition("over_null", "above", FAR_ABOVE_NULL)),
        ),
        Claim(
            "C3",
            "A binary factorized kernel is learnt (§3.3, Fig. 1e)",
            premises=LEARNT[:1],
            conditions=(Condition("p_value", "below", 0.001), Condition("margin", "above", 0.0)),
        ),
        Claim(
            "C4",
            "Linear probes read the factors worse, the deeper the stage (Fig. 2a–b)",
            premises=(),
            conditions=(Condition("slope", "below", 0.0),),
        ),
        Claim(
            "C5",
            "Factorization decays with depth; shallow rate-coded networks drop sharper (Fig. 2c–d)",
            premises=(),
            conditions=EFFECT,
        ),
        Claim(
            "C6",
            "The volume element is distorted with depth, most in the held-out region (Fig. 2e–f)",
            premises=(),
            conditions=EFFECT,
        ),
        Claim("C7", "Penalties give banded embeddings of low rank (Fig. 3b, 6)", premises=(), conditions=EFFECT),
        Claim("C8", "Penalties give a smoother manifold (Fig. 3c)", premises=(), conditions=EFFECT),
        Claim(
            "C9",
            "Ablation: no penalty has the lowest ID and highest OOD error; entropy gains little; variance gains much "
            "at "
            "higher ID error; both are best OOD at low ID error (Fig. 3d)",
            premises=(),
            conditions=EFFECT,
        ),
        Claim(
            "C10",
            "Stripes alone compose without a single bump; a few bumps make proper bumps (§4.2, Fig. 4b, 7b)",
            premises=(),
            conditions=(Condition("ood_accuracy", "above", 0.9), *EFFECT),
            one_condition_per_case=True,
        ),
        Claim(
            "C11",
            "Data needed for 90 % accuracy grows as N³ with bumps and as N with stripes (Fig. 4c)",
            premises=(),
            conditions=(
                Condition("exponent_bumps", "above", CUBIC[0]),
                Condition("exponent_bumps", "below", CUBIC[1]),
                Condition("exponent_stripes", "above", LINEAR[0]),
                Condition("exponent_stripes", "below", LINEAR[1]),
            ),
        ),
        Claim(
            "C12",
            "Stripes keep the manifold smooth across the held-out region (Fig. 4d)",
            premises=(),
            conditions=EFFECT,
        ),
        Claim(
            "C13",
            "Tuning is stripe-like in early and bump-like in late stages (Fig. 4e–f, 15)",
            premises=(),
            conditions=EFFECT,
        ),
        Claim(
            "C14",
            "Bump codes give stronger block structure than rate codes (Fig. 8)",
            premises=(),
            conditions=EFFECT,
        ),
        Claim(
            "C15",
            "A gap in rotation is filled by linear blending, while stages stay smooth (Fig. 9)",
            premises=LEARNT[:1],
            conditions=(Condition("closer_to_blend", "above", 0.0), Condition("gap_speed", "below", 3.0)),
        ),
        Claim(
            "C16",
            "CNNs of every depth fail to compose (Fig. 10–12)",
            premises=LEARNT,
            conditions=FAILS,
        ),
        Claim(
            "C17",
            "MLPs warp the held-out region the other way, and lose factorization more smoothly but more drastically "
            "(Fig. 13, 14)",
            premises=(),
            conditions=EFFECT,
        ),
        Claim(
            "C18",
            "Memorising and composing networks sit in different kernel regimes (App. A.5)",
            premises=(),
            conditions=EFFECT,
        ),
    )
}
