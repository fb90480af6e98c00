"""A website's page has a browser ask our servers: it is known by what the browser says of it."""

from __future__ import annotations

import pytest

from recreate.api.loopback import find_foreign_change, find_stranger

OURS = ("127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1")
STRANGERS = (
    "",
    "evil.example",
    "evil.example:8000",
    "127.0.0.1.evil.example",
    "localhost.evil.example:80",
    "127.0.0.1@evil.example",
    "127.0.0.1:8000:1",
    "[::1].evil.example",
    "0.0.0.0:8000",
    "2130706433",
    "127.0.0.1 ",
    "127.0.0.1\n",
)


@pytest.mark.parametrize("host", OURS)
def test_a_program_of_this_machine_may_ask_and_change(host: str) -> None:
    assert find_stranger({"host": host}.get) == ""
    assert find_foreign_change({"host": host}.get) == ""
    own = {"host": host, "origin": f"http://{host.lower()}", "sec-fetch-site": "same-origin"}
    assert find_foreign_change(own.get) == ""
    assert find_foreign_change({"host": host, "sec-fetch-site": "none"}.get) == ""


@pytest.mark.parametrize("host", STRANGERS)
def test_a_name_that_was_made_to_point_here_is_none_of_ours(host: str) -> None:
    assert "answers to 127.0.0.1" in find_stranger({"host": host}.get)
    assert find_foreign_change({"host": host, "origin": f"http://{host}"}.get)
    assert find_stranger({}.get)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_may_lead_here_and_not_read_nor_change(site: str) -> None:
    host = {"host": "127.0.0.1:8000", "sec-fetch-site": site}
    assert "another page" in find_stranger({**host, "sec-fetch-mode": "no-cors"}.get)
    assert find_stranger({**host, "sec-fetch-mode": "navigate"}.get) == ""
    assert find_foreign_change({**host, "sec-fetch-mode": "navigate"}.get)


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "https://127.0.0.1:8000", "http://127.0.0.1:9", "file://"],
)
def test_what_another_origin_sends_changes_nothing(origin: str) -> None:
    assert "only a program" in find_foreign_change({"host": "127.0.0.1:8000", "origin": origin}.get)
