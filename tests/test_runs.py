"""Runs: every image once, whatever happens; a run goes on, and its rows are sound."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import itertools
import os
import re
import signal
import tarfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytest.importorskip("fsspec")
import pyarrow.parquet as pq

import hshap
from hshap import Constant, Dyadic, Explainer, runs
from hshap._util.processes import Owner
from hshap.errors import ArgumentError, FormatError
from hshap.runs.driver import Driver
from hshap.runs.sources import as_source
from hshap.runs.storing.claims import sign_of
from hshap.runs.storing.files import LocalFiles, publish
from hshap.runs.storing.folder import Folder, ShardWriter
from hshap.runs.storing.identity import Fingerprint
from hshap.runs.storing.schema import TABLES, VOLATILE
from hshap.runs.worker import Job

BLANK = Constant(0.0)
MOST_PROBES = 50
"""Inputs that a resumed run asks its model for, to recognise it."""

POSIX = pytest.mark.skipif(os.name != "posix", reason="processes that fork")


def brightest(batch):
    return batch.max(axis=(1, 2, 3))


def explainer(model=brightest, partition=None):
    return Explainer(model, baseline=BLANK, partition=partition or Dyadic(2))


@pytest.fixture
def images():
    return np.random.default_rng(3).random((10, 1, 8, 8))


def explain(dataset, out, model=None, **options):
    made = explainer() if model is None else model
    return runs.explain_dataset(made, dataset, out, **{"target": 0, **options})


def rows(run):
    return [{k: v for k, v in row.items() if k not in VOLATILE} for row in run.rows()]


class Counted:
    """A model that counts its inputs, outside of its own content."""

    def __init__(self, path):
        self.path = str(path)

    def __call__(self, batch):
        with open(self.path, "a") as file:  # noqa: PTH123
            file.write("." * len(batch))
        return brightest(batch)

    @property
    def inputs(self):
        return Path(self.path).stat().st_size if Path(self.path).exists() else 0


# Going on


def test_every_image_is_explained_once(tmp_path, images):
    model = Counted(tmp_path / "count")
    run = explain(images, tmp_path / "run", explainer(model))
    assert [key.image for key in run.keys] == [f"{number:08d}" for number in range(10)]
    before = model.inputs
    again = explain(images, tmp_path / "run", explainer(model))
    assert before > 0
    assert model.inputs - before <= MOST_PROBES
    assert list(again.rows()) == list(run.rows())
    assert again.batch_difference == 0.0
    for number, read in enumerate(again):
        made = explainer().explain(images[number], target=0)
        assert read.leaves == made.leaves
        assert read.position == number
        assert np.array_equal(read.attribution(), made.attribution())


def test_new_images_and_targets_alone_are_explained(tmp_path, images):
    model = Counted(tmp_path / "count")

    def two(batch):
        scores = model(batch)
        return np.stack([scores, -scores], axis=1)

    both = Explainer(two, baseline=BLANK, partition=Dyadic(4))
    assert len(explain(images[:4], tmp_path / "run", both)) == 4
    spent = model.inputs
    second = explain(images[:5], tmp_path / "run", both, target=[0, 1], positives=None)
    assert len(second) == 10
    assert {key.target for key in second.keys} == {"0", "1"}
    assert model.inputs - spent < 3 * spent
    with pytest.raises(ArgumentError, match="pass target="):
        second["00000000"]
    assert second.explanation("00000000", 1).class_index == 1


def test_a_changed_image_is_explained_again(tmp_path, images):
    explain(images, tmp_path / "run")
    changed = images.copy()
    changed[3] /= 2
    run = explain(changed, tmp_path / "run", positives=None)
    assert len(run) == 10
    assert run["00000003"].score == pytest.approx(changed[3].max())
    assert [key.image for key in run.history] == ["00000003"]


def test_a_folder_of_another_run_is_refused(tmp_path, images):
    explain(images, tmp_path / "run")
    with pytest.raises(ArgumentError, match=r"another partition.min_size \(\d there, 4 here\)"):
        explain(images, tmp_path / "run", explainer(partition=Dyadic(4)))
    with pytest.raises(ArgumentError, match="another model"):
        explain(images, tmp_path / "run", explainer(lambda batch: batch.mean(axis=(1, 2, 3))))
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ArgumentError, match=r"letter\.txt"):
        explain(images, tmp_path)


def test_rows_of_two_drivers_are_shown_once(tmp_path, images):
    one = explain(images, tmp_path / "run")
    explain(images, tmp_path / "other")
    for file in (tmp_path / "other" / "explanations").iterdir():
        file.rename(tmp_path / "run" / "explanations" / file.name)
    # Temporary files and strangers are never read.
    shard = next((tmp_path / "run" / "explanations").iterdir())
    (shard.parent / ".tmp-1234").write_bytes(shard.read_bytes()[:100])
    (shard.parent / "notes.parquet").write_bytes(b"hello")
    both = runs.open(tmp_path / "run")
    assert rows(both) == rows(one)
    assert both.query("select count(*) as n from explanations") == [{"n": 10}]
    assert both.table(["image"]).num_rows == 10


def test_batch_sizes_change_values_by_what_is_told(tmp_path, images):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Flatten()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(576, 3)).eval()
    tables, identities = [], []
    for size in (2, 5, 64):
        made = explainer(hshap.Batched(network, batch_size=size))
        run = explain(images.astype(np.float32), tmp_path / str(size), made, target=1)
        identities.append([key.identity for key in run.keys])
        tables.append([np.array(row["game_values"]) for row in run.rows(["game_values"])])
        assert run.batch_difference < 1e-4
    assert identities[0] == identities[1] == identities[2]
    for one, other in itertools.combinations(tables, 2):
        for values, others in zip(one, other, strict=True):
            assert np.abs(values - others).max() <= 1e-5


# Errors


class Flawed:
    """A data set with an image that cannot be read and one with NaN, until it is mended."""

    def __init__(self, images, mended):
        self.images, self.mended = images, mended

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        if number == 2 and not self.mended:
            raise OSError("cannot be\nread")
        image = self.images[number].copy()
        if number == 4:
            image[0, 0, 0] = np.nan
        return image


def test_a_bad_image_fails_alone_with_its_reason(tmp_path, images):
    seen, flawed = [], Flawed(images, mended=False)
    run = explain(flawed, tmp_path / "run", progress=seen.append)
    assert len(run) == 8
    errors = [(row["image"], row["kind"]) for row in run.errors]
    assert errors == [("00000002", "image"), ("00000004", "image")]
    assert run.errors[0]["reason"] == "OSError: cannot be read"
    assert "not finite" in run.errors[1]["reason"]
    assert (seen[-1].done, seen[-1].failed) == (8, 2)
    assert run.query("select image from errors order by image")[0] == {"image": "00000002"}
    again = explain(flawed, tmp_path / "run")
    assert len(list((tmp_path / "run" / "errors").iterdir())) == 1
    assert len(again.errors) == 2
    mended = explain(Flawed(images, True), tmp_path / "run", retry_failed=True)
    assert len(mended) == 9
    assert [row["image"] for row in mended.errors] == ["00000004"]


@pytest.mark.cluster
def test_a_client_of_dask_stays_open(tmp_path, images):
    dask = pytest.importorskip("distributed")
    options = {"threads_per_worker": 2, "dashboard_address": "127.0.0.1:0"}
    with dask.LocalCluster(n_workers=1, **options) as local, dask.Client(local) as client:
        several = lines_of(runs.DaskWorkers(), images, tmp_path / "several")
        at = runs.DaskWorkers(address=local.scheduler_address)
        again = lines_of(at, images, tmp_path / "again")
        assert client.submit(len, "abc").result() == 3
    assert rows(several) == rows(again) == rows(explain(images, tmp_path / "one"))
    timeout = {"distributed.comm.timeouts.connect": "1s"}
    told = "no scheduler of Dask that can be reached"
    with pytest.importorskip("dask").config.set(timeout), pytest.raises(ArgumentError, match=told):
        lines_of(runs.DaskWorkers(address="tcp://127.0.0.1:9"), images, tmp_path / "run")


def test_an_error_of_one_target_hides_no_other(tmp_path, images):
    explain(images[:2], tmp_path / "run")
    run = explain(images[:2], tmp_path / "run", target=[0, 5])
    assert len(run) == 2
    assert [row["image"] for row in run.errors] == ["00000000", "00000001"]


def test_a_run_gives_up_if_all_first_images_fail(tmp_path):
    with pytest.raises(runs.RunStoppedError, match=r"given up.*not finite"):
        explain(np.full((70, 1, 4, 4), np.nan), tmp_path / "run")


@dataclass(frozen=True)
class FullDisk(LocalFiles):
    """A disk with room for some bytes. Like a real one, it is full in the middle of a file."""

    room: int = 0

    def write(self, name, data):
        used = sum(file.stat().st_size for file in self.root.rglob("*") if file.is_file())
        if used + len(data) > self.room:
            super().write(name, data[: max(0, self.room - used)])
            raise OSError(28, "No space left on device")
        super().write(name, data)


def test_a_full_disk_keeps_all_committed_rows(tmp_path, images):
    quiet = explain(images, tmp_path / "quiet")
    home, counts, told = tmp_path / "run", [], []
    for room in (2000, 30_000, 45_000, 10**9):
        try:
            run = explain(images, FullDisk(home, room), task_images=2)
        except (runs.RunStoppedError, OSError) as error:
            told.append(str(error))
            if not (home / "run.json").exists():
                continue
            run = runs.open(home)
        counts.append(len(run))
        assert rows(run) == rows(quiet)[: len(run)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 1
    assert counts[-1] == 10
    assert told
    assert all("No space left" in line for line in told)
    assert not list(home.rglob(".tmp-*"))


# Sources


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def as_csv(folder, images):
    with (folder / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "target"), *((f"{n}.npy", 0) for n in range(3))])
    return folder / "list.csv"


def as_parquet(folder, images):
    table = {"image": [f"{n}.npy" for n in range(3)], "target": [0, 0, 0]}
    pq.write_table(pa.table(table), folder / "list.parquet")
    return folder / "list.parquet"


def as_webdataset(folder, images):
    with tarfile.open(folder / "in.tar", "w") as archive:
        for number, image in enumerate(images):
            for suffix, data in ((".npy", npy(image)), (".cls", b"0"), (".json", b"{}")):
                member = tarfile.TarInfo(f"{number}{suffix}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return folder / "in.tar"


def as_tensors(folder, images):
    torch = pytest.importorskip("torch")
    return torch.utils.data.TensorDataset(torch.tensor(images), torch.zeros(3, dtype=torch.int64))


def as_stream(folder, images):
    """Fill one array again and again."""
    held = np.empty((1, 8, 8))
    for image in images:
        held[:] = image
        yield held, 0


def as_url(folder, images):
    import fsspec

    for number, image in enumerate(images):
        fsspec.filesystem("memory").pipe_file(f"/{folder.name}/{number}.npy", npy(image))
    return f"memory://{folder.name}"


SOURCES = {
    "a folder": lambda folder, images: folder,
    "paths": lambda folder, images: sorted(folder.iterdir()),
    "a mapping": lambda folder, images: {f"{n}.npy": image for n, image in enumerate(images)},
    "a list in csv": as_csv,
    "a list in parquet": as_parquet,
    "a tar": as_webdataset,
    "a data set of torch": as_tensors,
    "a generator": as_stream,
    "another file system": as_url,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_rows(tmp_path, images, kind):
    folder = tmp_path / "in"
    folder.mkdir()
    for number, image in enumerate(images[:3]):
        np.save(folder / f"{number}.npy", image)
    source = SOURCES[kind](folder, images[:3])
    given = {} if kind in ("a list in csv", "a tar", "a generator") else {"target": 0}
    run = runs.explain_dataset(explainer(), source, tmp_path / "run", **given)
    whole = explain(images[:3], tmp_path / "whole")
    assert [one.boxes() for one in run] == [one.boxes() for one in whole]
    assert {key.target for key in run.keys} == {"0"}
    if kind not in ("a data set of torch", "a generator"):
        assert [Path(key.image).name for key in run.keys] == ["0.npy", "1.npy", "2.npy"]
    if kind == "a folder":
        assert run.table(["path"]).column("path").to_pylist()[1] == str(folder / "1.npy")


def test_a_function_decodes_files_of_any_kind(tmp_path, images):
    (tmp_path / "in.csv").write_text("image,target\nx.bin,0\n")
    (tmp_path / "x.bin").write_bytes(images[0].tobytes())

    def decode(data, name):
        return runs.Decoded(np.frombuffer(data).reshape(1, 8, 8), {"name": name})

    run = runs.explain_dataset(explainer(), tmp_path / "in.csv", tmp_path / "run", decode=decode)
    assert run.query("select transform from explanations") == [{"transform": '{"name": "x.bin"}'}]


def test_a_run_lives_on_other_file_systems(tmp_path, images):
    local = explain(images, tmp_path / "run")
    for out in (f"memory://runs/{tmp_path.name}", f"file://{tmp_path}/there"):
        assert len(explain(images[:6], out, task_images=2)) == 6
        assert rows(explain(images, out, task_images=2)) == rows(local)
        assert runs.verify(out).is_sound
    assert (tmp_path / "there" / "run.json").exists()
    with pytest.raises(ArgumentError, match="nowhere://"):
        explain(images, "nowhere://x")


# Executors


def lines_of(executor, images, folder, **options):
    return explain(images, folder, executor=executor, **{"task_images": 3, **options})


class Deadly:
    """A data set with an image that kills the process which reads it."""

    def __len__(self):
        return 9

    def __getitem__(self, number):
        if number == 4:
            os._exit(3)
        return np.full((1, 4, 4), 1 - number / 18)


slow = pytest.mark.exhaustive
cluster = pytest.mark.cluster
EXECUTORS = [
    lambda jobs: runs.Processes(2, start="fork"),
    pytest.param(lambda jobs: runs.Processes(2, start="forkserver"), marks=slow),
    pytest.param(lambda jobs: runs.Processes(2, start="spawn"), marks=slow),
    pytest.param(lambda jobs: runs.DaskWorkers(2), marks=cluster),
    pytest.param(lambda jobs: runs.Slurm(str(jobs), workers=2, cluster="local"), marks=cluster),
]


@pytest.mark.parametrize(
    "executor", EXECUTORS, ids=["fork", "forkserver", "spawn", "dask", "slurm"]
)
def test_executors_give_the_rows_of_one_process(tmp_path, images, executor):
    flawed = Flawed(images, mended=False)
    one = lines_of(None, flawed, tmp_path / "one")
    several = lines_of(executor(tmp_path / "jobs"), flawed, tmp_path / "several")
    assert rows(several) == rows(one)
    assert [row["reason"] for row in several.errors] == [row["reason"] for row in one.errors]


@pytest.mark.parametrize("executor", [EXECUTORS[0], EXECUTORS[3]], ids=["fork", "dask"])
def test_an_image_that_kills_its_worker_fails_alone(tmp_path, executor):
    run = lines_of(executor(tmp_path), Deadly(), tmp_path / "run")
    assert len(run) == 8
    assert [(row["image"], row["kind"]) for row in run.errors] == [("00000004", "worker")]
    if not isinstance(executor(tmp_path), runs.DaskWorkers):
        assert "ended with code 3" in run.errors[0]["reason"]


@pytest.mark.parametrize("executor", [EXECUTORS[0], EXECUTORS[3]], ids=["fork", "dask"])
def test_a_worker_that_cannot_start_says_why(tmp_path, images, executor):
    home = os.getpid()

    def made():
        if os.getpid() != home:
            raise ValueError("no model here")
        return explainer()

    with pytest.raises(runs.RunStoppedError, match="no model here"):
        explain(images, tmp_path / "run", made, model_id="x", executor=executor(tmp_path))


# Reading


def test_a_query_reaches_no_file(tmp_path, images):
    run = explain(images, tmp_path / "run")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for sql in (
        f"select * from read_csv('{tmp_path}/secret.csv')",  # noqa: S608
        f"copy explanations to '{tmp_path}/stolen.csv'",
        "set enable_external_access = true",
        "select nothing from nowhere",
    ):
        with pytest.raises(ArgumentError, match="cannot be run"):
            run.query(sql)
    assert not (tmp_path / "stolen.csv").exists()


def test_the_columns_are_the_documented_ones(tmp_path, images):
    run = explain(images, tmp_path / "run")
    assert run.table().column_names == list(TABLES["explanations"])
    scores = run.table(["image", "score", "doubt"]).column("score").to_pylist()
    assert scores == [image.max() for image in images]
    with pytest.raises(ArgumentError, match="'colour'"):
        run.table(["colour"])
    page = (Path(__file__).parents[1] / "docs" / "reference" / "runs.md").read_text("utf-8")
    missing = [
        column
        for table in TABLES.values()
        for column, (_, meaning) in table.items()
        if not re.search(rf"\| `{column}` \| `[^`]+` \| {re.escape(meaning)} \|", page)
    ]
    assert missing == []


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    for text, told in (
        (None, "no run folder"),
        ('{"format": "hshap run", "schema": 99}', "schema 99"),
        ("[1", "damaged"),
    ):
        if text:
            (tmp_path / "run.json").write_text(text)
        with pytest.raises(FormatError, match=told):
            runs.open(tmp_path)


# Verification


@pytest.fixture
def run(tmp_path, images):
    return explain(images, tmp_path / "run", task_images=4, shard_rows=4)


def shards_of(run):
    return sorted(Path(run.folder.files.location, "explanations").iterdir())


def test_a_sound_run_is_computed_again(run, images):
    found = runs.verify(run)
    assert found.is_sound
    assert (found.shards, found.rows, len(found.seal)) == (3, 10, 64)
    found = runs.verify(run, explainer(), images, sample=4, seed=1)
    assert found.is_sound
    assert found.values > 100
    assert found.largest == 0.0


def test_another_model_setting_or_image_is_told(run, images):
    def problems(made, given):
        return runs.verify(run, made, given, sample=2).problems

    other = problems(explainer(lambda batch: brightest(batch) * 1.001), images)
    assert any("the run was made with another model" in line for line in other)
    assert any("a coalition value differs by" in line for line in other)
    changed = problems(explainer(), images / 2)
    assert all("has changed since" in line for line in changed)
    settings = problems(explainer(partition=Dyadic(4)), images)
    told = "the run was made with other settings: partition.min_size (2 there, 4 here)"
    assert told in settings
    # Also the layout of tensors in memory.
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1)).eval()
    made = [explainer(hshap.Batched(net, channels_last=last)) for last in (False, True)]
    small = images[:2].astype(np.float32)
    usual = explain(small, Path(run.folder.files.location).parent / "net", made[0])
    assert runs.verify(usual, made[0], small, sample=1).is_sound
    found = runs.verify(usual, made[1], small, sample=1).problems
    assert any("evaluator.channels_last (False there, True here)" in line for line in found)


def alter_row(run):
    file = shards_of(run)[1]
    table = pq.read_table(file)
    altered = table.to_pylist()
    altered[2]["score"] += 1e-9
    pq.write_table(pa.Table.from_pylist(altered, schema=table.schema), file)
    return [
        f"shard explanations/{file.name} was altered",
        f"row of image {altered[2]['image']!r}, target 0 was altered",
    ]


def flip_byte(place):
    def flip(run):
        file = shards_of(run)[0]
        data = bytearray(file.read_bytes())
        data[int(place * len(data))] ^= 1
        file.write_bytes(data)
        return [f"shard explanations/{file.name} was altered"]

    return flip


def remove_shard(run):
    file = shards_of(run)[1]
    file.unlink()
    return [f"shard explanations/{file.name} is missing: a seal lists it"]


def replace_shard(run):
    """Replace the last shard with all its digests: only the seal knows the one that was there."""
    file = shards_of(run)[-1]
    table = pq.read_table(file)
    file.unlink()
    ShardWriter(run.folder.files).commit("explanations", table.to_pylist())
    return ["a seal lists it"]


def add_row_of_another(run):
    place = Path(run.folder.files.location)
    first = np.random.default_rng(3).random((1, 1, 8, 8))
    other = explain(first, place.parent / "other", explainer(partition=Dyadic(4)))
    for file in shards_of(other):
        file.rename(place / "explanations" / file.name)
    return ["is not of this model, settings and image"]


@pytest.mark.parametrize(
    "change",
    [alter_row, *map(flip_byte, (0.1, 0.5, 0.9)), remove_shard, replace_shard, add_row_of_another],
)
def test_altered_files_and_rows_are_named(run, change):
    told = change(run)
    found = runs.verify(runs.open(run.folder.files)).problems
    for line in told:
        assert any(line in problem for problem in found), (line, found)


# Drivers


def claim_of(images):
    names = "\n".join(f"{number:08d}" for number in range(len(images)))
    return f"claims/{hashlib.sha256(names.encode()).hexdigest()[:32]}"


@POSIX
def test_a_driver_waits_for_another_until_it_ends(tmp_path, images):
    """Another process has claimed all images. It is killed before it has explained one."""
    home, waiting = tmp_path / "run", tmp_path / "waiting"
    child = os.fork()
    if not child:
        Folder(LocalFiles(home)).claim(claim_of(images).partition("/")[2])
        LocalFiles(home).write("explanations/.tmp-half", b"half a shard")
        publish(LocalFiles(home), sign_of(Owner("elsewhere", "boot", "7", "99")), b"unknown")
        waiting.touch()
        time.sleep(600)
    while not waiting.exists():
        time.sleep(0.01)
    ended = []

    def end():
        time.sleep(0.5)
        ended.append(time.monotonic())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    reaper = threading.Thread(target=end)
    reaper.start()
    run = explain(images, home)
    assert ended
    reaper.join()
    assert len(run) == 10
    assert rows(run) == rows(explain(images, tmp_path / "alone"))


def test_a_run_goes_on_after_its_machine_was_lost(tmp_path, images):
    """Its claims name a process that cannot be looked at, so they could be for ever."""
    files = LocalFiles(tmp_path)
    files.create(claim_of(images), b"elsewhere+boot+7+99")
    own, source = Fingerprint("model", "settings"), as_source(images, decode=None, root=None)
    job = Job(explainer(), source, Folder(files), own, (0,))
    driver = Driver(job, job.source.items(), len(images), retry_failed=False, quiet=0.5)
    driver.run(runs.InProcess())
    assert len(runs.Run.at(Folder(files))) == len(images)


class Late(LocalFiles):
    """Another driver writes run.json between the first look at the folder and the second."""

    def read(self, name):
        if name == "run.json" and not (self.root / name).exists():
            self.root.mkdir(exist_ok=True)
            (self.root / name).write_bytes((self.root.parent / "first" / name).read_bytes())
            raise FileNotFoundError(name)
        return super().read(name)


def test_two_drivers_may_begin_at_once(tmp_path, images):
    explain(images[:2], tmp_path / "first")
    assert len(explain(images, Late(tmp_path / "second"))) == 10
    with pytest.raises(ArgumentError, match=r"another partition\.min_size"):
        explain(images, Late(tmp_path / "third"), explainer(partition=Dyadic(4)))


def test_a_run_needs_no_hard_links(tmp_path, images, monkeypatch):
    """Some disks have none, such as exFAT and mounted object stores."""

    def no_link(source, target):
        raise OSError(errno.EPERM, "Operation not permitted", str(target))

    monkeypatch.setattr(os, "link", no_link)
    assert len(explain(images, tmp_path / "run")) == len(images)
    assert not [path for path in (tmp_path / "run").rglob("*") if ".tmp-" in path.name]
