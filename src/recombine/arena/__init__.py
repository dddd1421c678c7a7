"""The arena: every remedy on every task, tuned alike, and judged on combinations and seeds that took no part in tuning.

protocol   what is compared, as data, registered before the runs that it judges
scores     R² on held-out combinations, and what can be reached without composing
running    tune, choose, evaluate
result     the table and the figure
"""

from recombine.arena.protocol import PROTOCOL, ArenaTask, Configuration, Protocol
from recombine.arena.result import Arena, chosen_by
from recombine.arena.running import compete, evaluate, tune
