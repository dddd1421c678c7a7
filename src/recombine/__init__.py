"""Will a decoder compose factors it has never seen together, and where does factorization break?

>>> import recombine as rc
>>> specs = rc.RunSpec(task=rc.BumpTask(encoding="bump"), decoder=rc.CNN(width=16, depth=3)).seeds(range(4))
>>> runs = rc.train(specs)
>>> for row in rc.summarize(runs): print(row.label, row.scores["ood_over_blank"].mean)

`__init__.pyi` lists the public names. Each is imported when first used, so that `import recombine` and the command line
are fast.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

del lazy_loader, annotations
