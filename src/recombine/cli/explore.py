"""`recombine explore`: decoders in a page."""

from __future__ import annotations

from recombine.cli.destinations import require_file
from recombine.cli.options import SomePath
from recombine.cli.subject import RUN, SubjectFlags
from recombine.console import say
from recombine.errors import InvalidValue


def explore(
    *factories: str,
    out: SomePath,
    subject: SubjectFlags = SubjectFlags(),  # noqa: B008
    image: str | None = None,
    title: str | None = None,
    training: bool = False,
) -> None:
    """Write a page on which decoders run live.

    Parameters
    ----------
    factories
        package.module:name or file.py:name of functions or classes that return modules (or of modules), or run:KEY for
        finished runs of a store, whose specs say everything else. Several are compared side by side.
    out
        The HTML file to write.
    image
        Rows and columns of an output, as 28,28, or channels first, as 3,28,28, where its own shape does not say it.
    title
        Heading of the page.
    training
        Add a panel in which a small decoder is trained live, with stripes and without.
    """
    if not factories:
        raise InvalidValue("factories", None, f"given, as package.module:name, file.py:name or {RUN}KEY")
    require_file(out, "out")
    decoders, settings = subject.subjects(factories)
    from recombine.page import explore as engine

    page = engine(decoders, **settings, image_shape=_image(image), title=title, training=training)
    page.save(out)
    for note in page.notes:
        say(note)
    say(f"written to {out} ({len(page.html) / 1e6:.1f} MB)")


def _image(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidValue("image", text, "rows and columns, as 28,28, or channels first, as 3,28,28") from None
