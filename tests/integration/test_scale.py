"""A cluster that is simulated, and the code that schedules on it: tools/scale.py."""

from __future__ import annotations

import pytest

from fmha.harness.stages.cluster import READS_A_SECOND
from tools.scale import Site, simulate

SMALL = Site(nodes=12, configurations=80)


def test_every_configuration_runs_once() -> None:
    found = simulate(SMALL)
    assert (found["results"], found["errors"], found["run_again"], found["run_twice"]) == (80, 0, 0, 0)
    assert found["of_the_least_possible"] < 1.2  # in simulated seconds
    assert found["slurm_commands"]["sbatch"] == 1


def test_what_a_task_was_running_runs_again_when_it_does() -> None:
    """Not in another array, behind the last task of this one."""
    found = simulate(Site(nodes=12, configurations=80, preempted=60.0, spread=0.2))
    assert found["lost_tasks"] > 0
    assert found["run_again"] > 0
    assert (found["results"], found["errors"], found["run_twice"]) == (80, 0, 0)
    assert found["slurm_commands"]["sbatch"] == 1


def test_a_node_that_is_lost_costs_no_result() -> None:
    found = simulate(Site(nodes=12, configurations=80, failures=1000.0, spread=0.2, late=2.0))
    assert found["lost_tasks"] > 0
    assert (found["results"], found["errors"], found["run_twice"]) == (80, 0, 0)


@pytest.mark.parametrize("nodes", [12, 100])
def test_many_tasks_do_not_ask_the_file_server_more(nodes: int) -> None:
    """It once was 1,024,000 questions of 512 tasks for 1,000 configurations, and 5,000 a second of the login node."""
    found = simulate(Site(nodes=nodes, configurations=120, median=10.0))
    files = found["files"]
    assert files["tasks: listdir"] <= 120 + 2 * nodes
    assert files["tasks: link"] <= 120 + nodes
    assert files["tasks: exists"] <= 120 + nodes
    assert found["login_node_files_a_second"] <= READS_A_SECOND + 10
