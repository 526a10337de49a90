"""The wall's guards, each taken away, and the test that notices it.

    python -m tests.planted_guards              # all
    python -m tests.planted_guards --jobs 14 --only sandbox

docs/reference/wall.md has what each was built against. A guard goes in a copy of the tree, and the tests of its row are
run until one fails, which has to pass on the tree as it is.
"""

from __future__ import annotations

import argparse
import queue
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.planted import NotBegunError, Planted, lay_out, noticed_by

WALL = "tests/evidence/test_wall.py::test_"
VERDICT = "tests/evidence/test_verdict.py::test_"
ENCLOSED = "tests/isolate/test_enclosed.py"
TREES = "tests/remote/test_hostile_trees.py"
KEY = "tests/remote/test_forced_key.py::test_"
OTHER_END = "tests/remote/test_other_end.py::test_"
STALE = "tests/worker/test_never_stale.py::test_"
PLANNED = "tests/worker/test_planned_builds.py::test_"
ISOLATE, LANDLOCK, SUPERVISOR = "harness/isolate/__init__.py", "harness/isolate/landlock.py", "harness/supervisor"


def guard(name: str, file: str, old: str, new: str, *tests: str) -> Planted:
    """Without it `new` stands where `old` does."""
    return Planted(name, file, old, new, tests)


GUARDS = (
    guard(
        "a judge's files are held against git's objects",
        "harness/stages/laid_out.py",
        "if tree.is_dir() and not trees.differences(entries, tree, ignored):",
        "if tree.is_dir():",
        "tests/evidence/test_laid_out.py",
    ),
    guard(
        "the process that judges is the judge's commit's",
        "harness/stages/apart.py",
        "    if judge != mine:",
        "    if False:",
        f"{VERDICT}a_judge_that_is_another_than_was_asked_for_does_not_start_itself_again",
    ),
    guard(
        "links that lead out are refused before anything is read",
        "harness/stages/apart.py",
        "        refuse_links(root, head)  # before",
        "        pass  # before",
        f"{WALL}a_tree_that_leads_out_is_not_judged",
        "tests/remote/test_strangers_requests.py",
    ),
    guard(
        "the planner is in a sandbox",
        "harness/worker/planner/process.py",
        '        cwd=tree / "harness",\n        environment=os.environ | {"PYTHONPATH"',
        '        cwd=tree / "harness", policy="off",\n        environment=os.environ | {"PYTHONPATH"',
        f"{WALL}the_kernels_side_writes_nothing_of_the_judges",
    ),
    guard(
        "compilers are in a sandbox",
        "harness/worker/compilers/enclosed.py",
        "enclose(timed, grant, cwd=self.root, environment=given)",
        'enclose(timed, grant, cwd=self.root, environment=given, policy="off")',
        "tests/worker/test_enclosed_compilers.py",
    ),
    guard(
        "executors are in a sandbox",
        "harness/worker/devices/behind.py",
        'enclose(command, grant, cwd=Path("/"), environment=os.environ)',
        'enclose(command, grant, cwd=Path("/"), environment=os.environ, policy="off")',
        "tests/worker/test_across.py",
    ),
    guard(
        "adapters are in a sandbox",
        "harness/worker/subjects/adapter_process.py",
        "enclose(command, grant, cwd=self._root, environment=given)",
        'enclose(command, grant, cwd=self._root, environment=given, policy="off")',
        "tests/worker/test_adapter.py",
    ),
    guard(
        "a sandbox that is required is had or told",
        ISOLATE,
        'if found.mechanism == "none" and policy not in ("auto", "off"):',
        "if False:",
        f"{ENCLOSED}::test_without_either_it_is_said_or_refused",
    ),
    guard(
        "a sandbox is not granted the home",
        ISOLATE,
        "    if holding := [",
        "    if False and [",
        f"{ENCLOSED}::test_the_home_is_not_granted_whole",
    ),
    guard(
        "secrets of the environment stay outside of a sandbox",
        ISOLATE,
        "and not any(word in name for word in _SECRET)",
        "",
        f"{ENCLOSED}::test_secrets_of_the_environment_stay_outside",
    ),
    guard("Landlock's sandbox has rules for files", LANDLOCK, "    _restrict(how)\n", "", ENCLOSED),
    guard(
        "a sandbox has a filter of system calls",
        LANDLOCK,
        "    _filter(code)\n    os.execvpe",
        "    os.execvpe",
        ENCLOSED,
    ),
    guard(
        "bubblewrap's sandbox has a network of its own",
        "harness/isolate/bubblewrap.py",
        '"--unshare-all", "--die-with-parent"',
        '"--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent"',
        f"{ENCLOSED}::test_bubblewraps_namespaces_are_its_own",
    ),
    guard(
        "the kernel's settings are not written in a sandbox",
        "harness/isolate/bubblewrap.py",
        'return ["--remount-ro", "/proc"]',
        "return []",
        f"{ENCLOSED}::test_settings_of_the_kernel_are_not_opened_to_write",
    ),
    guard(
        "the account's folder is nobody else's",
        "harness/account.py",
        "            _refuse_others(path)\n",
        "            pass\n",
        "tests/harness/test_account.py",
    ),
    guard(
        "the account's folder is in no checkout",
        "harness/account.py",
        "    if outside is not None and found.resolve().is_relative_to(outside.resolve()):",
        "    if False:",
        "tests/harness/test_account.py",
    ),
    guard(
        "under another judge nobody is dialled whom the checkout names",
        "harness/hosts/early.py",
        ' if _named(arguments, "--judge") in (None, OWN) else None',
        "",
        "tests/harness/test_early.py",
    ),
    guard(
        "a commit is 40 hexadecimal digits",
        f"{SUPERVISOR}/requests.py",
        'text(40, r"[0-9a-f]{40}",',
        'text(400, r".*",',
        "tests/remote/test_requests.py",
    ),
    guard(
        "a tree has no two entries of one name",
        f"{SUPERVISOR}/tree.py",
        "if path in entries or path in folders:",
        "if False:",
        TREES,
    ),
    guard(
        "a tree has nothing below a link",
        f"{SUPERVISOR}/tree.py",
        "if above and above not in folders:",
        "if False:",
        TREES,
    ),
    guard("a tree has no links that lead out", f"{SUPERVISOR}/tree.py", "    if out:\n", "    if False:\n", TREES),
    guard(
        "a tree has no file of git's",
        f"{SUPERVISOR}/tree.py",
        "        if _forbidden(name):",
        "        if False:",
        TREES,
    ),
    guard(
        "git checks the objects that are sent",
        f"{SUPERVISOR}/repository.py",
        '"index-pack", "--stdin", "--fix-thin", "--strict"]',
        '"index-pack", "--stdin", "--fix-thin"]',
        f"{TREES}::test_git_itself_takes_no_such_tree",
    ),
    guard(
        "git starts no program for a URL",
        f"{SUPERVISOR}/repository.py",
        '_PROTOCOLS = "file:git:http:https:ssh"',
        '_PROTOCOLS = "file:git:http:https:ssh:ext:fd"',
        f"{TREES}::test_a_url_starts_no_program",
    ),
    guard(
        "a changed pyc is not run",
        f"{SUPERVISOR}/bytecode.py",
        'return data if hashlib.sha256(data).hexdigest() == manifest["files"].get(name) else None',
        "return data",
        "tests/remote/test_bytecode.py::test_a_changed_pyc_of_the_host_is_not_run",
    ),
    guard(
        "a harness of the commit's own is in a sandbox as a whole",
        f"{SUPERVISOR}/enclosure.py",
        "    if walled and not is_own(job):",
        "    if walled:",
        "tests/remote/test_own_harness.py",
    ),
    guard(
        "of a run's tree Python finds the package alone",
        f"{SUPERVISOR}/run.py",
        "        found = str(self._directory.path / modules.FOLDER)\n        settings",
        "        found = str(self._judge)\n        settings",
        "tests/remote/test_own_harness.py::test_it_reaches_its_run_alone",
    ),
    guard(
        "a key takes no more of a host than its owner lets it",
        f"{SUPERVISOR}/forced.py",
        "    if asked > most:",
        "    if False:",
        f"{KEY}it_takes_no_more_of_the_host_than_its_owner_lets_it",
    ),
    guard(
        "a key has a number of runs",
        f"{SUPERVISOR}/forced.py",
        '        if taken >= key["runs"]:',
        "        if False:",
        f"{KEY}a_run_of_it_ends_when_its_time_is_over",
    ),
    guard(
        "a run of a key has a time",
        f"{SUPERVISOR}/run.py",
        "                if self._left < 0:",
        "                if False:",
        f"{KEY}a_run_of_it_ends_when_its_time_is_over",
    ),
    guard(
        "an answer has a deadline",
        "harness/hosts/line.py",
        "min(began + slowest, deadline if deadline is not None else math.inf)",
        "began + slowest",
        f"{OTHER_END}one_answer_has_one_limit_however_it_drips",
    ),
    guard(
        "the second signal ends a command",
        "harness/cli/__init__.py",
        "        signal.signal(stop, _leave)",
        "        signal.signal(stop, signal.SIG_IGN)",
        f"{OTHER_END}any_command_ends_at_the_second_signal",
    ),
    guard(
        "logs end",
        "harness/stages/administration.py",
        "LOGS_SECONDS, MOST_LOGS_BYTES\n",
        "LOGS_SECONDS, 10 * MOST_LOGS_BYTES\n",
        f"{OTHER_END}logs_that_never_stop_are_cut_off",
    ),
    guard(
        "nesting has a bound",
        "harness/depth.py",
        "    if _most(text) <= SAFE:",
        "    if True:",
        f"{OTHER_END}a_matrix_that_is_nested_without_end_is_told_as_that",
    ),
    guard(
        "who looks starts nothing that a checkout names",
        "harness/config/settings.py",
        "        if not self.here:",
        "        if True:",
        f"{OTHER_END}looking_starts_nothing_that_a_checkout_names",
    ),
    guard(
        "the core's digest is of what was compiled",
        "harness/judge/core_digest.py",
        "        return of_module(installed())",
        '        return hashlib.sha256(b"").hexdigest()',
        "tests/harness/test_judge.py",
    ),
    guard(
        "git's own folder stays outside of a sandbox",
        ISOLATE,
        "    hidden = system_paths.gits(read, map(str, grant.read))",
        "    hidden: list[str] = []",
        f"{ENCLOSED}::test_gits_own_folder_of_a_checkout_is_not_read",
    ),
    guard(
        "nor are those of repositories further down",
        "harness/isolate/system_paths.py",
        "    return sorted(own.union(*map(_repositories, inside)))",
        "    return sorted(own)",
        f"{ENCLOSED}::test_repositories_further_down_are_not_read",
    ),
    guard(
        "a link longer than a path is not read",
        "harness/supervisor/tree.py",
        "    if entry.mode == LINK and size > MOST_LINK:",
        "    if False:",
        f"{TREES}::test_a_link_that_no_kernel_makes_is_not_read",
    ),
    guard(
        "what was built is compared with the commit",
        "harness/stages/pipeline.py",
        "    progress.otherwise = _otherwise(prepared, progress.builds, observer)\n",
        "",
        "tests/harness/test_as_committed.py::test_a_run_names_what_is_not_the_commits",
    ),
    guard(
        "lines that go on are joined before a question is looked for",
        "harness/worker/compilers/build_inputs.py",
        '[text, *(joined.sub("", text) for joined in _JOINED)]',
        "[text]",
        f"{STALE}a_question_is_understood_however_it_is_written",
    ),
    guard(
        "whoever asks about a file has read it",
        "harness/worker/compilers/reads.py",
        "    for name in _ASKING:",
        "    for name in ():",
        f"{STALE}what_another_compiler_looks_for_is_never_stale",
    ),
    guard(
        "PTX of a plan is compiled anew where what it was read from has changed",
        "harness/worker/compilers/build_steps.py",
        "    if not still_there(task.root, variant.sources, hand):",
        "    if not hand:",
        f"{PLANNED}what_has_changed_since_the_plan_is_compiled_anew",
    ),
    guard(
        "launches of a plan are asked for again where what they were read from has changed",
        "harness/worker/subjects/adapter.py",
        'if still_there(self.tree, self.sources, AtHand("", read, scratch, started, before)):',
        "if read:",
        f"{PLANNED}what_has_changed_since_the_plan_is_compiled_anew",
    ),
    guard(
        "a file of another inode than was read is another file",
        "harness/worker/compilers/read.py",
        "all(_as_seen(root, path, told.read[path]) for path in stored)",
        "all(_as_seen(root, path, facts_of(path)) for path in stored)",
        f"{PLANNED}what_is_older_than_the_plan_and_comes_after_it_is_compiled_anew",
    ),
    guard(
        "what was looked for in the root is looked for in each checkout's",
        "harness/worker/compilers/build_inputs.py",
        'if path == base or path.startswith(base + "/") else path',
        'if path.startswith(base + "/") else path',
        f"{STALE}what_another_compiler_looks_for_counts_in_each_checkout",
    ),
    guard(
        "a source is no option",
        "harness/worker/compilers/build_steps.py",
        "        _refuse_other_than_a_file(variant.source)\n",
        "",
        f"{STALE}a_source_is_a_file_and_nothing_else",
    ),
    guard(
        "an archive's index is the account's",
        "harness/archive/index.py",
        'return account.folder(INDEXES) / f"{name}.sqlite3"',
        'return folder / ".index.sqlite3"',
        "tests/evidence/test_index.py::test_an_index_that_a_commit_brings_is_not_opened[a link]",
    ),
    guard(
        "an adapter's words have a mark",
        "harness/worker/subjects/adapter_process.py",
        'print(f"{MARK}{text}", file=sys.stderr, flush=True)',
        'print(f"{text}", file=sys.stderr, flush=True)',
        "tests/worker/test_adapter.py::test_what_it_prints_is_no_answer",
    ),
)


def noticed(planted: Planted, trees: queue.SimpleQueue[Path]) -> tuple[str, float]:
    """By which test, empty where by none, and after how many seconds; in one of the trees, each of which has one
    mistake at a time."""
    folder = trees.get()
    start = time.monotonic()
    try:
        found = noticed_by(planted, folder) or noticed_by(planted, folder, night=True)
        return found, time.monotonic() - start
    except (NotBegunError, SystemExit) as error:
        return f"error: {str(error).splitlines()[0]}", time.monotonic() - start
    finally:
        trees.put(folder)


def main() -> int:
    """0 where every guard is missed once it is gone, 1 otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORDS", help="guards whose names have these words")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time  [default: 1]")
    options = parser.parse_args()
    chosen = [item for item in GUARDS if options.only in item.name]
    missed = 0
    trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="guards-") as name, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(min(options.jobs, len(chosen))):
            tree = Path(name) / str(number) / "tree"
            lay_out(tree)
            commit = "git init -q && git add -A && git -c user.name=x -c user.email=x@y commit -qm start"
            subprocess.run(commit, shell=True, cwd=tree, check=True)
            trees.put(tree)
        for item, (test, seconds) in zip(chosen, pool.map(lambda one: noticed(one, trees), chosen), strict=True):
            missed += not test or test.startswith("error")
            print(f"| {item.name} | {f'`{test}`' if test else '**nothing**'} | {seconds:.0f} s |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
