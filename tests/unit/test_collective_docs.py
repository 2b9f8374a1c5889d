"""docs/collectives.md carries the catalogue as it is. ``PCIESIM_UPDATE_DOCS=1`` writes it anew."""

from __future__ import annotations

import os

from pciesim.collectives.select import ALGORITHMS
from pciesim.reports.collective_catalogue import catalogue_page
from pciesim.schedule import CollectiveKind

BEGIN, END = "<!-- catalogue -->\n", "<!-- /catalogue -->\n"


def test_the_docs_show_the_table(root):
    path = root / "docs" / "collectives.md"
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = before + BEGIN + catalogue_page() + END + after
    if os.environ.get("PCIESIM_UPDATE_DOCS"):
        path.write_text(wanted)
        text = wanted
    assert text == wanted, (
        "docs/collectives.md is out of date: PCIESIM_UPDATE_DOCS=1 pytest tests/unit/test_collective_docs.py"
    )


def test_every_line_is_complete():
    for name, entry in ALGORITHMS.items():
        assert entry.about, name
        assert entry.source, name
        assert entry.costs, name
        assert "|" not in entry.about + entry.source
    assert {kind for entry in ALGORITHMS.values() for kind in entry.kinds} == set(CollectiveKind)
