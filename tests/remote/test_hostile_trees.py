"""Trees that git itself does not make: refused before the first byte is written, however they came to the host."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from fmha.harness.errors import UserError
from fmha.harness.hosts import commit_transfer
from fmha.harness.stages.laid_out import laid_out, refuse_links
from fmha.harness.supervisor.listing import MOST_BYTES
from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import HostError
from tests.harness.support import git

WHO = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
Tree = list[tuple[str, bytes, "bytes | Tree"]]  # mode, name, and what a file holds or a folder has
FILE, LINK, FOLDER = "100644", "120000", "40000"


def made(root: Path, kind: str, data: bytes) -> str:
    """An object as it is, whatever git thinks of it."""
    command = ["git", "hash-object", "-t", kind, "--literally", "-w", "--stdin"]
    done = subprocess.run(command, cwd=root, input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


def tree_of(root: Path, tree: Tree) -> str:
    data = b""
    for mode, name, what in tree:
        sha = tree_of(root, what) if isinstance(what, list) else made(root, "blob", what)
        data += mode.encode() + b" " + name + b"\0" + bytes.fromhex(sha)
    return made(root, "tree", data)


def committed(root: Path, tree: Tree) -> str:
    command = ["git", "commit-tree", "-m", "by hand", tree_of(root, tree)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, env=os.environ | WHO, check=True)
    return done.stdout.strip()


def outside(folder: Path) -> bytes:
    return os.fsencode(folder / "home" / ".ssh")


HOSTILE = {
    "a link and a folder of one name": [
        (FOLDER, b"kernel", [(LINK, b"zz", b"?"), (FOLDER, b"zz", [(FILE, b"rc", b"x")])])],
    "a folder, then a link of its name": [(FOLDER, b"zz", [(FILE, b"rc", b"x")]), (LINK, b"zz", b"?")],
    "two folders of one name": [(FOLDER, b"a", [(FILE, b"x", b"1")]), (FOLDER, b"a", [(FILE, b"y", b"2")])],
    "two files of one name": [(FILE, b"a", b"1"), (FILE, b"a", b"2")],
    "above the tree": [(FOLDER, b"..", [(FILE, b"x", b"1")])],
    "a name with slashes": [(FILE, b"../x", b"1")],
    "a name that begins at the root": [(FILE, b"/tmp/x", b"1")],
    "no name": [(FOLDER, b"", [(FILE, b"x", b"1")])],
    ".git": [(FOLDER, b".git", [(FILE, b"config", b"[core]")])],
    ".git further down": [(FOLDER, b"a", [(FOLDER, b".git", [(FILE, b"config", b"[core]")])])],
    ".GIT": [(FOLDER, b".GIT", [(FILE, b"config", b"[core]")])],
    ".git as HFS+ reads it": [(FILE, ".g\u200cit".encode(), b"1")],
    ".git as NTFS reads it": [(FILE, b".git . ", b"1")],
    ".git as NTFS shortens it": [(FILE, b"GIT~1", b"1")],
    "a stream of .git": [(FILE, b".git::$INDEX_ALLOCATION", b"1")],
    "a link that leads out": [(LINK, b"a", b"?")],
    "a link that leads out through another": [
        (FOLDER, b"d", [(LINK, b"up", b".."), (LINK, b"z", b"up/../x")])],
    "a link that leads out once a folder is there": [(LINK, b"a", b"none/../../x")],
    "a link that is longer than any path": [(LINK, b"a", b"x" * (1 << 20))],
    "a mode that is none": [("100777", b"a", b"1"), ("60000", b"b", b"1")],
    "a submodule": [("160000", b"a", b"1")],
}  # fmt: skip


def filled(tree: Tree, text: bytes) -> Tree:
    return [
        (mode, name, filled(what, text) if isinstance(what, list) else what.replace(b"?", text))
        for mode, name, what in tree
    ]


@pytest.fixture
def place(tmp_path: Path) -> tuple[Repository, Path, Path]:
    """A host's repository, a client's, and a folder outside of every tree that nothing may reach."""
    source, victim = tmp_path / "source", tmp_path / "home" / ".ssh"
    victim.mkdir(parents=True)
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    repository = Repository(tmp_path / "host")
    repository.ensure()
    return repository, source, victim


@pytest.mark.parametrize("case", HOSTILE)
def test_a_tree_that_no_folder_can_hold_is_refused_before_anything_is_written(
    case: str, place: tuple[Repository, Path, Path], tmp_path: Path
):
    repository, source, victim = place
    sha = committed(source, filled(HOSTILE[case], os.fsencode(victim)))
    # As if it had come before git's own checks were asked for: objects and ref are there.
    shutil.copytree(source / ".git" / "objects", repository.path / "objects", dirs_exist_ok=True)
    git(repository.path, "update-ref", f"refs/fmha/commits/{sha}", sha)
    with pytest.raises(HostError, match=r"the commit has|empty filename in tree entry"):
        repository.check_out(sha, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    assert not [*victim.iterdir()]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("way", ["sent", "fetched"])
def test_git_itself_takes_no_such_tree(way: str, place: tuple[Repository, Path, Path]):
    repository, source, victim = place
    sha = committed(source, filled(HOSTILE["a link and a folder of one name"], os.fsencode(victim)))
    git(source, "update-ref", "refs/heads/evil", sha)
    with (source / "pack").open("w+b") as pack:
        command = ["git", "pack-objects", "--revs", "--stdout", "-q"]
        subprocess.run(command, cwd=source, input=f"{sha}\n".encode(), stdout=pack, check=True)
        pack.seek(0)
        ways = {
            "sent": lambda: repository.receive([sha], pack),
            "fetched": lambda: repository.fetch(str(source), "refs/heads/evil", sha),
        }
        with pytest.raises(HostError):
            ways[way]()
    assert not repository.has(sha)


@pytest.mark.parametrize(
    "url", ["ext::sh -c touch% {mark}", "fd::17", "bundle-helper::x", "--upload-pack=touch {mark}"]
)
def test_a_url_starts_no_program(url: str, place: tuple[Repository, Path, Path], tmp_path: Path):
    repository, _, _ = place
    with pytest.raises(HostError):
        repository.fetch(url.format(mark=tmp_path / "mark"), "refs/heads/main", "0" * 40)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("sha", ["--output={victim}", "-h", "main", "HEAD", "a" * 39, "A" * 40, f"{'a' * 40}^", ""])
def test_nothing_but_the_name_of_a_commit_gets_to_git(sha: str, place: tuple[Repository, Path, Path], tmp_path: Path):
    repository, source, _ = place
    victim = tmp_path / "thesis.txt"
    victim.write_text("years of work")
    sha = sha.format(victim=victim)
    good = committed(source, [(FILE, b"a", b"1")])
    for action in (
        lambda: repository.has(sha), lambda: repository.adopt(sha), lambda: repository.keep(sha),
        lambda: repository.check_out(sha, tmp_path / "tree"), lambda: repository.prove(sha, tmp_path / "tree"),
        lambda: repository.blobs(sha, ".py"), lambda: repository.approve(sha), lambda: repository.forget(sha),
        lambda: repository.changed(good, sha, ["kernel"]), lambda: repository.changed(sha, good, ["kernel"]),
        lambda: repository.fetch(str(source), "refs/heads/main", sha),
    ):  # fmt: skip
        with pytest.raises(HostError, match="is no commit"):
            action()
    assert victim.read_text() == "years of work"


def test_a_file_that_is_not_written_whole_is_told_as_that(place: tuple[Repository, Path, Path], tmp_path: Path):
    """The kernel takes what still fits and says so by a number: as on a full disk, and for more than 2 GiB at once."""
    repository, source, _ = place
    sha = committed(source, [(FILE, b"large", bytes(100_000))])
    shutil.copytree(source / ".git" / "objects", repository.path / "objects", dirs_exist_ok=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            repository.check_out(sha, tmp_path / "tree")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "tree" / "large").stat().st_size == 65_536


def test_a_link_that_no_kernel_makes_is_not_read(place: tuple[Repository, Path, Path], tmp_path: Path):
    """A judge looks where links lead before it reads anything: its memory is as large as what it reads of them."""
    _, source, _ = place
    sha = committed(source, [(LINK, b"a", bytes(1 << 28))])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=f"has a link of {1 << 28} bytes, 'a'"):
        refuse_links(source, sha)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 16


def bomb(root: Path, levels: int) -> str:
    """A commit of a few objects with ten to the power of `levels` files."""
    below = made(root, "blob", b"x")
    mode = FILE
    for _ in range(levels):
        names = (b"%s %d\0%s" % (mode.encode(), name, bytes.fromhex(below)) for name in range(10))
        below, mode = made(root, "tree", b"".join(names)), FOLDER
    command = ["git", "commit-tree", "-m", "bomb", below]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, env=os.environ | WHO, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("look", ["the host's worktree", "the host's modules", "before it is sent", "a judge's files"])
def test_a_tree_without_end_is_not_listed_to_its_end(
    look: str, place: tuple[Repository, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """10^12 files in fourteen objects: git is ended where it says too much, and nobody keeps what it said."""
    repository, source, _ = place
    monkeypatch.setenv("FMHA_CACHE", str(tmp_path / "cache"))
    sha = bomb(source, 12)
    shutil.copytree(source / ".git" / "objects", repository.path / "objects", dirs_exist_ok=True)
    looks = {
        "the host's worktree": lambda: repository.check_out(sha, tmp_path / "tree"),
        "the host's modules": lambda: repository.blobs(sha, ".py"),
        "before it is sent": lambda: commit_transfer.check(source, sha),
        "a judge's files": lambda: laid_out(source, sha, "judge"),
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((HostError, UserError), match="more than 200000 files and folders"):
        looks[look]()
    assert not (tmp_path / "tree").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (MOST_BYTES >> 10) * 3


def test_as_many_files_as_a_commit_may_have_are_listed(place: tuple[Repository, Path, Path]):
    repository, source, _ = place
    sha = bomb(source, 5)
    shutil.copytree(source / ".git" / "objects", repository.path / "objects", dirs_exist_ok=True)
    assert len(repository.blobs(sha, "")) == 10**5
