"""`tare store verify` on results as they are kept: bytes, figures and pages, each found where it is not as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import click
import pytest
from click.testing import CliRunner

import recorded_stores
from tare.base.errors import StoreError, StudyError, TareError
from tare.cli import tare as verbs
from tare.cli.store.verify import reading_verbs
from tare.records.pack import pack, stores_in
from tare.records.sealed import manifest_for
from tare.records.store import Store

REPOSITORY = Path(__file__).parents[3]
PAGE = """\
# What we found

<!-- tare show h200/energy.tare energy -->
<!-- /tare -->

<!-- tare papers claims h200/energy.tare --paper s3 -->
<!-- /tare -->
"""


def tare(*words: str) -> str:
    done = CliRunner().invoke(verbs, list(words), standalone_mode=False)
    if done.exception is not None:
        done.exception.add_note(done.stderr)
        raise done.exception
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A results folder: a pack of a real store, and a page that tells of it."""
    root = tmp_path_factory.mktemp("results")
    (root / "h200").mkdir()
    with Store.open(recorded_stores.ENERGY) as store:
        pack(store, root / "h200" / "energy.tare")
    (root / "pages.txt").write_text("# the pages\n\npage.md\n")
    (root / "page.md").write_text(PAGE)
    tare("store", "verify", str(root), "--write")
    return root


@pytest.fixture
def results(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "results"))


def problems(results: Path, *words: str) -> str:
    with pytest.raises(TareError) as found:
        tare("store", "verify", str(results), *words)
    assert found.value.exit_code == 1
    return "\n".join(found.value.__notes__)


def test_results_that_are_as_they_were_pass(results):
    said = tare("store", "verify", str(results))
    assert "h200/energy.tare: 10 trials, every byte as sealed; 965 figures derived again" in said
    assert "page.md: 2 blocks, all as they stand." in said
    assert "since an older tare did not keep the launcher's words: wall_s" in said


def test_a_list_of_refused_studies_beside_the_packs_is_no_hindrance(results):
    before = tare("store", "verify", str(results))
    (results / "h200" / "not-run.json").write_text('{"s3-dvfs": ["dvfs: this kernel sets no clocks."]}')
    assert tare("store", "verify", str(results)) == before


def test_pages_come_out_the_same_whatever_the_terminal_and_the_folder(results, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.chdir(results.parent)
    before = os.environ["COLUMNS"], Path.cwd()
    tare("store", "verify", "results")
    assert (os.environ["COLUMNS"], Path.cwd()) == before
    assert str(results) not in (results / "page.md").read_text()


def test_the_data_as_json(results):
    told = json.loads(tare("store", "verify", str(results), "--json"))
    (store,), (page,) = told["stores"], told["pages"]
    assert (store["store"], store["trials"], store["problems"]) == ("h200/energy.tare", 10, [])
    assert (page["blocks"], page["changes"], page["written"]) == (2, [], False)


def test_an_edited_number_on_a_page_is_found_and_written_back(results):
    page = results / "page.md"
    whole = page.read_text()
    line = next(number for number, text in enumerate(whole.splitlines(), 1) if "128 W" in text)
    page.write_text(whole.replace("128 W", "120 W"))
    said = problems(results)
    assert f"page.md:{line}: `tare show h200/energy.tare energy` prints 'GPU 990 MHz   128 W" in said
    assert "128 W" not in page.read_text()
    tare("store", "verify", str(results), "--write")
    assert page.read_text() == whole


def test_pages_that_grew_old_are_no_damage_and_the_command_that_renews_them_is_named(results, tmp_path):
    (results / "page.md").write_text(PAGE)
    with pytest.raises(TareError) as found:
        tare("store", "verify", str(results))
    assert str(found.value) == (
        f"{results}: every store is as recorded; 2 blocks of the pages differ from what their commands print now. "
        f"`tare store verify {results} --write` rewrites the pages."
    )
    other = tmp_path / "my page.md"
    other.write_text("<!-- tare show h200/energy.tare -->\n<!-- /tare -->\n")
    tare("store", "verify", str(results), "--write")
    with pytest.raises(TareError, match="1 block of the pages differs from what its command prints now") as found:
        tare("store", "verify", str(results), "--page", str(other))
    assert f"`tare store verify {results} '--page={other}' --write` rewrites the pages." in str(found.value)
    assert "not as recorded" not in str(found.value)
    tare("store", "verify", str(results), f"--page={other}", "--write")
    assert "all as they stand" in tare("store", "verify", str(results), "--page", str(other))


def test_a_damaged_store_is_told_before_pages_that_differ(results):
    (results / "page.md").write_text(PAGE)
    (results / "half.tare").write_bytes((results / "h200" / "energy.tare").read_bytes()[:1000])
    with pytest.raises(
        TareError, match=r"1 thing is not as recorded; 2 blocks of the pages differ from .* mended"
    ) as found:
        tare("store", "verify", str(results))
    assert "--write" not in str(found.value)


def test_a_line_that_is_empty_and_one_that_is_not_there_are_told_alike(results):
    page = results / "page.md"
    page.write_text("<!-- tare papers tables s3 -->\n<!-- /tare -->\n")  # Markdown begins with an empty line
    assert "page.md:2: `tare papers tables s3` prints more than the page says (" in problems(results)
    tare("store", "verify", str(results), "--write")
    lines = page.read_text().splitlines()
    page.write_text("\n".join([lines[0], "mine", *lines[2:], ""]))
    assert "page.md:2: `tare papers tables s3` prints nothing, the page has 'mine'" in problems(results)
    page.write_text("\n".join([*lines[:-1], "", lines[-1], ""]))
    assert "`tare papers tables s3` prints less than the page says (1 line differs)" in problems(results)
    page.write_text("\n".join([*lines[:-1], "mine", lines[-1], ""]))
    assert "prints nothing, the page has 'mine'" in problems(results)


def test_a_page_outside_of_the_results_is_named_without_detours(results, monkeypatch):
    (results.parent / "docs").mkdir()
    (results / "page.md").rename(results.parent / "docs" / "page.md")
    (results / "pages.txt").write_text("../docs/page.md\n")
    monkeypatch.chdir(results.parent)
    assert "\ndocs/page.md: 2 blocks, all as they stand." in tare("store", "verify", "results")
    (results.parent / "elsewhere").mkdir()
    (results.parent / "elsewhere" / "linked").symlink_to(results)  # there, .. is another folder
    assert "elsewhere/linked/../docs/page.md: 2 blocks" in tare("store", "verify", "elsewhere/linked")


def test_an_edited_record_is_found_though_its_manifest_was_made_anew(results, tmp_path):
    recorded_stores.unpacked(recorded_stores.ENERGY, results / "mine")
    folder = next(
        path.parent for path in (results / "mine").glob("trials/*/record.json") if '"step_s"' in path.read_text()
    )
    record = json.loads((folder / "record.json").read_text())
    record["metrics"]["step_s"] /= 2
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_bytes(manifest_for(folder, 0))
    with Store.open(results / "mine") as store:  # and packed, as if it were true
        pack(store, results / "mine.tare")
    said = problems(results)
    for store_name in ("mine", "mine.tare"):
        assert f"{store_name}: trial {folder.name}: step_s: stored {record['metrics']['step_s']!r}, derived " in said
    assert "h200/energy.tare: trial" not in said


def test_damaged_stores_and_packs_are_named_and_the_others_are_looked_at_all_the_same(results):
    recorded_stores.unpacked(recorded_stores.IDLE, results / "idle")
    (next((results / "idle" / "trials").iterdir()) / "out.txt").write_text("edited")
    (results / "half.tare").write_bytes((results / "h200" / "energy.tare").read_bytes()[:1000])
    said = problems(results)
    assert "out.txt: it has 6 bytes" in said
    assert "half.tare: this pack is refused: it is cut off" in said


def test_pages_of_the_command_line_are_looked_at_too(results, tmp_path):
    (tmp_path / "other.md").write_text("<!-- tare show h200/none.tare tenants -->\n<!-- /tare -->\n")
    with pytest.raises(StoreError, match=r"other\.md:1: `tare show h200/none\.tare tenants`: h200/none\.tare: no such"):
        tare("store", "verify", str(results), "--page", str(tmp_path / "other.md"))
    with pytest.raises(StudyError, match=r"gone\.md: the page cannot be read"):
        tare("store", "verify", str(results), "--page", str(tmp_path / "gone.md"))


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("run s0-container-tax", r"page\.md:3: a page may not run `tare run`; it may run: choose front, "),
        ("store verify .", "a page may not run `tare store verify`"),
        ("report h200/energy.tare", "a page may not run `tare report`"),
        ("frobnicate", "a page may not run `tare frobnicate`"),
        ("; touch pwned", "a page may not run `tare ;`"),
        ("show kernel h200/energy.tare -o pages.svg", r"page\.md:3: a page's command prints, and writes no file"),
        ("compare h200/energy.tare --frob", r"page\.md:3: `tare compare h200/energy\.tare --frob`: No such option"),
        ("compare h200/energy.tare --by nothing", r"page\.md:3: `tare compare "),
    ],
)
def test_a_command_that_may_not_or_cannot_be_run_is_said_with_file_and_line(results, command, sentence):
    (results / "page.md").write_text(f"# P\n\n<!-- tare {command} -->\n<!-- /tare -->\n")
    with pytest.raises(TareError, match=sentence):
        tare("store", "verify", str(results), "--write")
    assert not list(results.rglob("pwned")) + list(results.rglob("*.svg"))


def test_markdown_stands_as_it_is_and_text_is_fenced(results):
    (results / "h200" / "not-run.json").write_text('{"s3-dvfs": ["dvfs: this kernel sets no clocks."]}')
    (results / "page.md").write_text(
        "<!-- tare papers tables s3 -->\n<!-- /tare -->\n<!-- tare papers tables s3 --format text -->\n<!-- /tare -->\n"
    )
    tare("store", "verify", str(results), "--write")
    lines = (results / "page.md").read_text().splitlines()
    second = lines.index("<!-- tare papers tables s3 --format text -->")
    assert lines[1] == ""
    assert any(line.startswith("| ") for line in lines[:second])
    assert lines[second + 1] == "```text"
    assert "h200" in "".join(lines[:second])  # the machine's folder: the results are those of the command line


def test_a_command_that_ends_badly_is_an_error(results):
    table = "platform,step_s\n" + "".join(f"bare,{1 + n / 100}\ndocker,{2 + n / 100}\n" for n in range(8))
    (results / "t.csv").write_text(table)
    command = "compare t.csv --by platform --metric step_s --fail-over 5%"
    (results / "page.md").write_text(f"<!-- tare {command} -->\n<!-- /tare -->\n")
    with pytest.raises(TareError, match=r"page\.md:1: .* ended with code 1\. gate: docker is worse than bare"):
        tare("store", "verify", str(results), "--write")


def test_what_a_page_may_run_only_reads():
    assert {"papers claims", "compare", "show energy", "show kernel"} <= reading_verbs()
    for path in reading_verbs():
        command: click.Command | None = verbs
        for name in path.split():
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name)
        assert command is not None and not isinstance(command, click.Group)
        assert {param.name for param in command.params}.isdisjoint({"write", "force", "trust"})


def test_nothing_to_verify_is_said(tmp_path):
    with pytest.raises(StoreError, match="no such folder of results"):
        stores_in(tmp_path / "none")
    with pytest.raises(StoreError, match="no store in this folder, and no pack"):
        stores_in(tmp_path)


def test_a_store_or_a_pack_alone_is_verified(results):
    assert "10 trials, every byte as sealed" in tare("store", "verify", str(results / "h200" / "energy.tare"))
    assert "10 trials, every byte as sealed" in tare("store", "verify", str(recorded_stores.ENERGY))


def in_processes(results: Path, cores: int, before: str = "") -> tuple[int, str, str]:
    """What `tare store verify` says in a process of its own: DuckDB is loaded here, and cannot be forked."""
    program = (
        f"import os, sys\nos.sched_getaffinity = lambda _: set(range({cores}))\n{before}\n"
        "from tare.cli import main\nsys.argv[0] = 'tare'\nsys.exit(main())"
    )
    words = [sys.executable, "-c", program, "store", "verify", str(results)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_many_processes_say_the_same_as_one(results):
    recorded_stores.unpacked(recorded_stores.IDLE, results / "idle")
    (next((results / "idle" / "trials").iterdir()) / "out.txt").write_text("edited")
    page = results / "page.md"
    page.write_text(page.read_text().replace("128 W", "120 W") + "<!-- tare show none.tare -->\n<!-- /tare -->\n")
    one, many = (in_processes(results, cores) for cores in (1, 3))
    assert one == many
    assert "none.tare: no such" in one[2] and "out.txt: it has 6 bytes" in one[2]


def test_a_process_that_is_ended_from_outside_is_an_error(results):
    recorded_stores.unpacked(recorded_stores.IDLE, results / "idle")
    killed = "from tare.figures import rederive\nrederive.rederive = lambda *_: os._exit(9)"
    code, _, said = in_processes(results, 2, killed)
    assert code == 1 and "ended from outside" in said


def test_the_results_that_come_with_tare_are_what_was_recorded(made, tmp_path, monkeypatch, deep):
    """Every byte of every store, every block of every page; figures of the first trial of each store and an eighth of
    the others; of all of them in `make deep`."""
    from tare.figures import rederive as figures

    whole, noted = figures.rederive, tmp_path / "looked"  # a file, for the processes that look at the stores

    def of_some(store, record):
        first = record.trial == store.records()[0].trial
        taken = first or deep or crc32(record.trial.encode()) % 8 == 0
        with noted.open("a") as file:
            file.write(f"{taken} {store.path}\n")
        return whole(store, record) if taken else figures.Rederived(record.trial, record.attempt)

    monkeypatch.setattr(figures, "rederive", of_some)
    for kept in [made, *(path.parent for path in REPOSITORY.glob("studies-results/pages.txt"))]:
        assert "figures derived again" in tare("store", "verify", str(kept))
    looked = noted.read_text().splitlines()
    assert sum(line.startswith("True ") for line in looked) > len(looked) / 16
    assert len({line.partition(" ")[2] for line in looked}) > 20
