"""The tree of a run is its commit, byte for byte, whatever git on the host is told to make of files."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fmha.harness.supervisor import tree as trees
from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import HostError
from tests.harness.support import git
from tests.remote.conftest import Client

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
ATTRIBUTES = "*.txt text eol=crlf ident\n*.h filter=evil\n*.py filter=evil\n"
HOST = """[core]
	autocrlf = true
	eol = crlf
	symlinks = false
	fileMode = false
	attributesFile = {folder}/attributes
	excludesFile = {folder}/excludes
	hooksPath = {folder}/hooks
	fsmonitor = {folder}/hooks/post-checkout
	sparseCheckout = true
[init]
	templateDir = {folder}/template
	defaultObjectFormat = sha256
[filter "evil"]
	smudge = sed s/fmha/evil/g
	clean = cat
	required = true
[safe]
	bareRepository = explicit
[extensions]
	worktreeConfig = true
[checkout]
	workers = 0
"""


def hostile(folder: Path) -> str:
    """A git configuration that would change files in every way that git has; what it names lies in `folder`."""
    for name, text in (
        ("attributes", "* filter=evil\n"),
        ("excludes", "*\n"),
        ("template/info/attributes", "* filter=evil working-tree-encoding=UTF-16\n"),
        ("template/info/exclude", "*\n"),
        ("template/info/sparse-checkout", "/kernel/\n"),
        ("template/config", '[filter "evil"]\n\tsmudge = sed s/fmha/evil/g\n[core]\n\tsymlinks = false\n'),
        ("hooks/post-checkout", "#!/bin/sh\necho hook >>matrix.yaml\n"),
        ("template/hooks/post-checkout", "#!/bin/sh\necho hook >>matrix.yaml\n"),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return HOST.format(folder=folder)


def blobs(root: Path, sha: str) -> dict[str, str]:
    """Mode and id of every file of a commit, by path."""
    listing = subprocess.run(
        ["git", "ls-tree", "-r", "-z", "--full-tree", sha], cwd=root, capture_output=True, check=True
    ).stdout.decode()
    return {entry.partition("\t")[2]: entry.partition("\t")[0] for entry in listing.split("\0") if entry}


def on_disk(tree: Path, names: dict[str, str]) -> dict[str, str]:
    """The same, of files; git hashes them as they are."""
    files = [name for name in names if not (tree / name).is_symlink()]
    hashed = subprocess.run(
        ["git", "hash-object", "--no-filters", "--stdin-paths"],
        cwd=tree,
        input="\n".join(files),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"GIT_DIR": "/nonexistent"},
    ).stdout.split()
    found = {}
    for name, blob in zip(files, hashed, strict=True):
        found[name] = f"{'100755' if os.access(tree / name, os.X_OK) else '100644'} blob {blob}"
    for name in names.keys() - set(files):
        target = os.readlink(tree / name)
        blob = subprocess.run(
            ["git", "hash-object", "--stdin"], input=target, capture_output=True, text=True, check=True
        )
        found[name] = f"120000 blob {blob.stdout.strip()}"
    return found


def test_what_git_on_the_host_is_configured_to_do_changes_no_file(client: Client, tmp_path: Path):
    folder = client.server.folder / "hostile"
    folder.mkdir()
    (client.root / ".gitattributes").write_text(ATTRIBUTES)
    (client.root / "notes.txt").write_text("$Id$\nfmha\n")
    (client.root / "link").symlink_to("kernel/include")
    (client.root / "tool").write_text("#!/bin/sh\n")
    (client.root / "tool").chmod(0o755)
    for words in (("add", "-A"), ("commit", "-q", "-m", "attributes")):
        git(client.root, *words)
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(folder=str(folder / "fmha")))
    configuration = client.server.home / ".gitconfig"
    configuration.write_text(hostile(folder))
    folder.chmod(0o777)
    try:
        done = client.run("run-matrix", "--host", "gpu", "--detach", "-q")
        assert done.returncode == 4, done.stderr
        run = done.stdout.strip()
        assert client.run("attach", run).returncode == 0
        tree = folder / "fmha" / "runs" / run / "tree"
        expected = blobs(client.root, "HEAD")
        assert on_disk(tree, expected) == expected
    finally:
        configuration.unlink()
        client.discard(folder)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Repository, str, Path]:
    """A host's repository with a commit of every kind of file, and a tree of it."""
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    (source / "deep" / "er").mkdir(parents=True)
    (source / ".gitignore").write_text("*.ignored\n")
    for name in ("plain", "deep/er/file", "a name with\nnewline", os.fsdecode(b"no utf-8 \xff"), "empty"):
        (source / name).write_text("" if name == "empty" else f"of {name!r}")
    (source / "runs").write_text("#!/bin/sh\n")
    (source / "runs").chmod(0o755)
    (source / "link").symlink_to("deep/er")
    (source / "broken").symlink_to("nowhere")
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "files")
    repository = Repository(tmp_path / "host")
    return repository, received(repository, source), tmp_path / "tree"


def received(repository: Repository, source: Path) -> str:
    repository.ensure()
    sha = subprocess.run(["git", "rev-parse", "HEAD"], cwd=source, capture_output=True, text=True, check=True).stdout
    git(source, "push", "-q", str(repository.path), f"HEAD:refs/fmha/commits/{sha.strip()}")
    return sha.strip()


def test_every_kind_of_file_is_written_and_proved(made: tuple[Repository, str, Path]):
    repository, sha, tree = made
    repository.check_out(sha, tree)
    assert (tree / os.fsdecode(b"no utf-8 \xff")).read_text().startswith("of ")
    assert os.readlink(tree / "link") == "deep/er"
    assert os.access(tree / "runs", os.X_OK)
    assert not os.access(tree / "plain", os.X_OK) or os.geteuid() == 0
    (tree / "x.ignored").write_text("as the commit's own .gitignore says")
    (tree / "folder").mkdir()
    repository.prove(sha, tree)


def test_what_git_is_configured_to_do_by_the_host_or_the_repository_changes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, home = tmp_path / "source", tmp_path / "home"
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    (source / ".gitattributes").write_text(ATTRIBUTES)
    (source / "notes.txt").write_text("$Id$\nfmha\n")
    (source / "code.py").write_text("import fmha\n")
    (source / "link").symlink_to("notes.txt")
    (source / "tool").write_text("#!/bin/sh\n")
    (source / "tool").chmod(0o755)
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "attributes")
    home.mkdir()
    (home / ".gitconfig").write_text(hostile(tmp_path / "hostile"))
    repository, tree = Repository(tmp_path / "host"), tmp_path / "tree"
    with monkeypatch.context() as there:
        there.setenv("HOME", str(home))
        repository.ensure()
    sha = received(repository, source)
    with (repository.path / "config").open("a") as configuration:
        configuration.write(hostile(tmp_path / "hostile"))
    monkeypatch.setenv("HOME", str(home))
    repository.check_out(sha, tree)
    monkeypatch.undo()
    expected = blobs(source, sha)
    assert on_disk(tree, expected) == expected
    (tree / "added").write_text("what the host's excludes would hide")
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(HostError, match="added"):
        repository.prove(sha, tree)


def test_what_git_does_not_unpack_to_the_end_is_no_tree(
    made: tuple[Repository, str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whether git fails with it or not."""
    repository, sha, tree = made
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for code in (0, 1):
        cut = f'{shutil.which("git")} "$@" | head -c 60; echo torn >&2; exit {code}'
        program.write_text(f'#!/bin/sh\ncase " $* " in *" --batch "*) {cut} ;; esac\nexec {shutil.which("git")} "$@"\n')
        program.chmod(0o755)
        with pytest.raises(HostError, match="git cat-file failed on the host: torn"):
            repository.check_out(sha, tree.with_name(f"cut{code}"))
        program.unlink()


def same_size_and_time(path: Path) -> None:
    state = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def replaced(path: Path, by: Callable[[Path], object]) -> None:
    path.unlink()
    by(path)


CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "contents of the same size and time": ("plain", lambda tree: same_size_and_time(tree / "plain")),
    "gone": ("plain", lambda tree: (tree / "plain").unlink()),
    "executable": ("plain", lambda tree: (tree / "plain").chmod(0o755)),
    "not executable": ("runs", lambda tree: (tree / "runs").chmod(0o644)),
    "a link to the same contents": (
        "plain",
        lambda tree: [(tree / "plain").rename(tree / "x.ignored"), (tree / "plain").symlink_to("x.ignored")],
    ),
    "a file for a link": ("link", lambda tree: replaced(tree / "link", lambda path: path.write_text("deep/er"))),
    "another link": ("broken", lambda tree: replaced(tree / "broken", lambda path: path.symlink_to("elsewhere"))),
    "a folder": ("plain", lambda tree: replaced(tree / "plain", Path.mkdir)),
    "a FIFO": ("plain", lambda tree: replaced(tree / "plain", os.mkfifo)),
    "added": ("deep/added", lambda tree: (tree / "deep" / "added").write_text("")),
    "added, a FIFO": ("deep/added", lambda tree: os.mkfifo(tree / "deep" / "added")),
    "ignored only by what was added": (
        ".gitignore",
        lambda tree: (tree / ".gitignore").write_text("*\n"),
    ),
}


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_tree_that_is_not_the_commit_is_found_out(made: tuple[Repository, str, Path], change: str):
    repository, sha, tree = made
    repository.check_out(sha, tree)
    name, do = CHANGES[change]
    do(tree)
    with pytest.raises(HostError, match="was changed") as caught:
        repository.prove(sha, tree)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("target", ["/etc/hostname", "../../outside", "../deep/../../outside", "up/../outside"])
def test_links_that_lead_out_of_the_commit_are_refused(tmp_path: Path, target: str):
    """What they lead to is in no commit. `up` leads to the root of the tree from where its text seems to be below."""
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    git(source, "init", "-q", "-b", "main")
    (source / "deep" / "file").write_text("")
    (source / "deep" / "up").symlink_to("..")
    (source / "deep" / "link").symlink_to(target)
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "links")
    repository = Repository(tmp_path / "host")
    sha = received(repository, source)
    with pytest.raises(HostError, match="lead out of it: 'deep/link'"):
        repository.check_out(sha, tmp_path / "tree")


def test_replaced_objects_are_not_looked_at(made: tuple[Repository, str, Path]):
    """`git replace` on the host would have another commit's files under this one's name."""
    repository, sha, tree = made
    other = subprocess.run(
        ["git", "commit-tree", "-m", "other", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"],
        cwd=repository.path,
        capture_output=True,
        text=True,
        env=os.environ | {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        check=True,
    ).stdout.strip()
    git(repository.path, "replace", sha, other)
    repository.check_out(sha, tree)
    assert (tree / "plain").is_file()


def test_of_another_tree_is_taken_what_is_the_same(made: tuple[Repository, str, Path], tmp_path: Path):
    """What it has otherwise, or as something else, comes from git; and so does all of one that is gone."""
    repository, sha, first = made
    repository.check_out(sha, first)
    second, third, fourth = (tmp_path / name for name in ("second", "third", "fourth"))
    entries = repository._entries(sha)
    assert trees.alike(entries, first).keys() == entries.keys()
    repository.check_out(sha, second, first)
    (first / "plain").write_text("of 'plan'")
    (first / "runs").chmod(0o644)
    (first / "empty").unlink()
    os.mkfifo(first / "empty")
    for name in ("link", "broken"):
        (first / name).unlink()
    (first / "link").symlink_to("/etc")
    (first / "broken").write_text("nowhere")
    (first / "deep" / "er" / "file").unlink()
    (first / "deep" / "er").rmdir()
    (first / "deep" / "er").symlink_to("/dev")
    same = {b"a name with\nnewline", b"no utf-8 \xff", b".gitignore", b"runs"}
    assert trees.alike(entries, first).keys() == same
    repository.check_out(sha, third, first)
    repository.check_out(sha, fourth, tmp_path / "gone")
    for tree in (second, third, fourth):
        repository.prove(sha, tree)


def test_of_another_tree_no_more_is_held_than_there_is_room_for(
    made: tuple[Repository, str, Path], monkeypatch: pytest.MonkeyPatch
):
    repository, sha, tree = made
    repository.check_out(sha, tree)
    entries = repository._entries(sha)
    monkeypatch.setattr(trees, "MOST_ALIKE", 20)
    found = trees.alike(entries, tree)
    assert 0 < sum(map(len, found.values())) <= 20 + len("deep/er") + len("nowhere")
    assert len(found) < len(entries)


def test_what_a_blob_is_not_is_not_taken_for_it(tmp_path: Path):
    """Whoever sends the contents may be a git of somebody else's making."""
    blob = hashlib.sha1(b"blob 3\0abc").hexdigest()
    trees.write({b"file": trees.TreeEntry(trees.PLAIN, blob)}, [b"abc"], tmp_path)
    assert (tmp_path / "file").read_bytes() == b"abc"
    with pytest.raises(HostError, match=r"files are there already .*: 'file'"):
        trees.write({b"other": trees.TreeEntry(trees.PLAIN, blob)}, [b"abc"], tmp_path)
    (tmp_path / "file").unlink()
    with pytest.raises(HostError, match="other contents of 'file'"):
        trees.write({b"file": trees.TreeEntry(trees.PLAIN, blob)}, [b"abd"], tmp_path)
    assert not any(tmp_path.iterdir())
