"""Small models with something to see, their pages, and a browser to see it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, Tab, chromium
from seen import Open

import undivided


@pytest.fixture(scope="session")
def digits() -> undivided.Model:
    """Two heads on 4×4 patches, trained long enough to differ from chance."""
    data = undivided.datasets.digits()
    model = undivided.Model(undivided.recipe("digits-attention"), seed=1)
    model.fit(data.train, epochs=3)
    return model


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with Browser() as browser:
        yield browser


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open a view; afterwards nothing may have been asked for, and nothing complained."""
    tabs: list[tuple[Tab, str]] = []

    def show(view: undivided.view.View, **how: object) -> Tab:
        path = view.save(tmp_path / f"page-{len(tabs)}.html")
        tab = browser.open(path, **how)  # type: ignore[arg-type]
        tabs.append((tab, path.as_uri()))
        return tab

    yield show
    for tab, address in tabs:
        assert tab.value("1 + 1") == 2  # what is still on its way has arrived now
        assert tab.complaints == []
        assert [url for url in tab.requests if url != address] == []
        tab.close()
