"""The arena: every remedy on every task, tuned alike, and judged on combinations and seeds that took no part in tuning.

protocol      what is compared, as data, registered before the runs that it judges
scores        R² on held-out combinations, and what can be reached without composing
running       tune, choose, evaluate
result        the table and the figure
assumptions   what remedies assume, measured on kept combinations
evidence      what results say about another task, and what such predictions are worth
prescription  which remedy to use (`recombine.prescribe`)
advice        results in words and tables, for documents and pages
"""

from recombine.arena.assumptions import inner_holdout, measured
from recombine.arena.evidence import Evidence
from recombine.arena.protocol import PROTOCOL, ArenaTask, Configuration, Protocol
from recombine.arena.result import Arena, chosen_by
from recombine.arena.running import compete, evaluate, tune
