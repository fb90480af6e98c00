"""Fetching: downloads resume and are checked, packages come from the user's index."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from recreate.api.errors import BadInput, Fault, Refused, Transient
from recreate.storage import download as fetch
from recreate.storage import packages
from recreate.storage.download import download
from recreate.storage.packages import package, package_folder
from tests.web import Web, sha, targz, zipped

DATA = os.urandom(50_000)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "BACKOFF_SECONDS", 0.0)
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def web() -> Iterator[Web]:
    with Web({"/f": DATA}) as web:
        yield web


def test_a_download_arrives_with_progress_and_leaves_no_part(web: Web, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    path = download(
        web.url + "/f", tmp_path / "a" / "f", sha256=sha(DATA), progress=lambda *t: told.append(t)
    )
    assert path.read_bytes() == DATA
    assert told[-1] == (len(DATA), len(DATA))
    assert [p.name for p in (path.parent).iterdir()] == ["f"]


def test_a_file_that_is_there_and_right_is_not_fetched_again(web: Web, tmp_path: Path) -> None:
    for _ in range(2):
        download(web.url + "/f", tmp_path / "f", sha256=sha(DATA).upper())
    assert len(web.seen) == 1


def test_a_cut_download_resumes_where_it_was_cut(web: Web, tmp_path: Path) -> None:
    web.cut["/f"] = [20_000, 10_000]
    assert download(web.url + "/f", tmp_path / "f", sha256=sha(DATA)).read_bytes() == DATA
    assert web.seen == [("/f", ""), ("/f", "bytes=20000-"), ("/f", "bytes=30000-")]


def test_a_download_that_stays_cut_says_that_the_same_command_resumes(
    web: Web, tmp_path: Path
) -> None:
    web.cut["/f"] = [20_000] + [0] * 9
    with pytest.raises(Fault, match="20000 bytes are kept") as e:
        download(web.url + "/f", tmp_path / "f", sha256=sha(DATA))
    assert "same command again: it resumes" in e.value.fix
    assert not (tmp_path / "f").exists()
    web.cut.clear()
    assert download(web.url + "/f", tmp_path / "f", sha256=sha(DATA)).read_bytes() == DATA
    assert web.seen[-1] == ("/f", "bytes=20000-")


def test_many_cuts_are_survived_as_long_as_each_brings_bytes(web: Web, tmp_path: Path) -> None:
    web.cut["/f"] = [5_000] * 9
    assert download(web.url + "/f", tmp_path / "f", sha256=sha(DATA)).read_bytes() == DATA


def test_a_server_without_ranges_is_read_from_the_start(tmp_path: Path) -> None:
    with Web({"/f": DATA}, ranges=False) as web:
        web.cut["/f"] = [20_000]
        assert download(web.url + "/f", tmp_path / "f", sha256=sha(DATA)).read_bytes() == DATA


def test_transient_statuses_are_tried_again_three_times(web: Web, tmp_path: Path) -> None:
    web.status["/f"] = [503, 429, 500]
    assert download(web.url + "/f", tmp_path / "f", sha256=sha(DATA)).read_bytes() == DATA
    (tmp_path / "f").unlink()
    web.status["/f"] = [503] * 9
    with pytest.raises(Transient, match="503"):
        download(web.url + "/f", tmp_path / "f", sha256=sha(DATA))
    assert len(web.seen) == 8


def test_a_missing_file_is_refused_at_once(web: Web, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="404"):
        download(web.url + "/nope", tmp_path / "f", sha256=sha(DATA))
    assert len(web.seen) == 1


def test_a_wrong_hash_deletes_the_file_and_says_what_to_do(web: Web, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as e:
        download(web.url + "/f", tmp_path / "f", sha256="0" * 64)
    assert e.value.code == "wrong-sha256"
    assert sha(DATA) in e.value.message
    assert "again" in e.value.fix
    assert [p.name for p in (tmp_path).iterdir()] == []


def test_a_part_of_another_file_does_not_spoil_the_download(web: Web, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"other bytes")
    assert download(web.url + "/f", tmp_path / "f", sha256=sha(DATA)).read_bytes() == DATA


def test_a_complete_part_is_only_checked(web: Web, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(DATA)
    assert download(web.url + "/f", tmp_path / "f", sha256=sha(DATA)).read_bytes() == DATA


def test_a_full_disk_is_said_plainly(web: Web, tmp_path: Path) -> None:
    (tmp_path / "f.part").symlink_to("/dev/full")
    with pytest.raises(Fault) as e:
        download(web.url + "/f", tmp_path / "f", sha256=sha(DATA))
    assert e.value.code == "disk-full"
    assert "RECREATE_HOME" in e.value.fix


def test_an_unreachable_server_is_a_transient_fault(tmp_path: Path) -> None:
    with Web() as gone:
        url = gone.url
    with pytest.raises(Transient) as e:
        download(url + "/f", tmp_path / "f", sha256="0" * 64)
    assert e.value.code == "unreachable"


def test_only_web_addresses_are_fetched(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(DATA)
    with pytest.raises(BadInput):
        download(f"file://{tmp_path}/secret", tmp_path / "f", sha256=sha(DATA))


def test_two_downloads_of_one_file_do_not_mix(web: Web, tmp_path: Path) -> None:
    done: list[bytes] = []
    threads = [
        threading.Thread(
            target=lambda: done.append(
                download(web.url + "/f", tmp_path / "f", sha256=sha(DATA)).read_bytes()
            )
        )
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert done == [DATA] * 4
    assert len(web.seen) == 1


# --- packages
# ---------------------------------------------------------------------------------------------

SDIST = targz({"demo-1.0/setup.py": b"raise SystemExit('executed')"})
WHEEL = zipped({"demo/__init__.py": b"raise SystemExit('imported')"})


@pytest.fixture
def index(web: Web, monkeypatch: pytest.MonkeyPatch) -> Web:
    files = {
        "demo-1.0.tar.gz": SDIST,
        "demo-1.0-py3-none-any.whl": WHEEL,
        "demo-0.9.tar.gz": b"old",
    }
    web.index("demo", files)
    monkeypatch.setenv("PIP_INDEX_URL", web.url + "/simple/")
    return web


def test_a_package_comes_from_the_users_index_and_is_then_read_from_the_cache(index: Web) -> None:
    path = package("Demo", "1.0.0", "sdist")
    assert path.name == "demo-1.0.tar.gz"
    assert path.read_bytes() == SDIST
    asked = len(index.seen)
    assert package("demo", "1.0", "sdist") == path
    assert len(index.seen) == asked
    assert package("demo", "1.0", "wheel").read_bytes() == WHEEL


def test_a_release_that_was_yanked_is_taken_and_said_to_be(
    index: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    page = index.files["/simple/demo/"].decode()
    package("demo", "1.0", "sdist")
    assert "yanked" not in capsys.readouterr().err
    shutil.rmtree(package_folder("demo", "1.0"))
    index.files["/simple/demo/"] = page.replace(
        "<a ", '<a data-yanked="broken on Mondays" '
    ).encode()
    assert package("demo", "1.0", "sdist").is_file()
    assert (
        "demo 1.0 was withdrawn by its makers (yanked): broken on Mondays"
        in capsys.readouterr().err
    )


def test_a_cached_package_that_was_changed_is_fetched_again(index: Web) -> None:
    package("demo", "1.0", "sdist").write_bytes(b"tampered")
    assert package("demo", "1.0", "sdist").read_bytes() == SDIST


def test_the_hash_asked_for_must_be_on_the_index(index: Web) -> None:
    assert package("demo", "1.0", "sdist", sha256=sha(SDIST)).read_bytes() == SDIST
    with pytest.raises(BadInput) as e:
        package("demo", "1.0", "sdist", sha256="0" * 64)
    assert e.value.code == "wrong-sha256"


def test_the_hash_the_index_states_is_verified(index: Web) -> None:
    index.index("bad", {"bad-1.tar.gz": SDIST}, {"bad-1.tar.gz": "0" * 64})
    with pytest.raises(BadInput) as e:
        package("bad", "1", "sdist")
    assert e.value.code == "wrong-sha256"


@pytest.mark.parametrize(
    ("name", "version", "kind", "said"),
    [
        ("nothere", "1.0", "sdist", "no package is called 'nothere'"),
        ("demo", "7.7", "sdist", "no version 7.7"),
        ("demo", "0.9", "wheel", "no wheel"),
        ("demo", "not a version", "sdist", "is not a version"),
    ],
)
def test_what_is_not_on_the_index_is_bad_input(
    index: Web, name: str, version: str, kind: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said) as e:
        package(name, version, kind)  # type: ignore[arg-type]
    assert e.value.code == "unknown-package"


def test_versions_there_are_get_listed(index: Web) -> None:
    with pytest.raises(BadInput) as e:
        package("demo", "7.7", "sdist")
    assert "0.9, 1.0" in e.value.fix


def test_an_index_out_of_reach_names_the_variable_and_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Web() as gone:
        url = gone.url
    monkeypatch.setenv("UV_DEFAULT_INDEX", url.replace("//", "//me:hunter2secret@") + "/simple/")
    with pytest.raises(Fault) as e:
        package("demo", "1.0", "sdist")
    assert e.value.code == "index-unreachable"
    assert "PIP_INDEX_URL" in e.value.fix
    assert "hunter2secret" not in str(e.value.record())


def test_a_private_index_gets_its_password_for_page_and_file(
    index: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:word@") + "/simple/")
    package("demo", "1.0", "sdist")
    assert set(index.auth) == {"Basic bWU6d29yZA=="}


def test_the_index_of_pips_configuration_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "pip.conf"
    conf.write_text("[global]\nindex-url = http://127.0.0.1:1/from-pip/\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    assert packages.index_url() == "http://127.0.0.1:1/from-pip/"
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:1/from-uv/")
    assert packages.index_url() == "http://127.0.0.1:1/from-uv/"
