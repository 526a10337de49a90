"""A real Slurm on loopback: munged, slurmctld, and slurmd for each of a few nodes with names of their own.

Everything lies in one folder, with a key, sockets and ports of its own; nothing of the machine's own Slurm is touched.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.integration.processes import eventually
from tests.remote.server import free_port

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacct", "sacctmgr")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
NODES = ("n1", "n2", "n3", "n4", "n5", "n6")
URGENT = "urgent"  # a partition whose jobs send those of the others back into the queue
MEGABYTES = 4000  # of each node, as Slurm is told
MEMORY = Path("/sys/fs/cgroup/memory")  # the controller of version 1, as it is mounted
CONFIG = """\
ClusterName=fmha
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munged.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/{task}
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=5
KillWait=1
"""
ACCOUNTED = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={folder}/munged.sock
AccountingStorageEnforce=associations,qos
"""
DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munged.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser={user}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mariadb}
StorageUser=slurm
StorageLoc=accounting
CommitDelay=1
"""


@dataclass
class Slurm:
    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.folder / "slurm.conf"

    def start(self, name: str, *within: str) -> None:
        """One of munged, slurmctld and the nodes; `within` is a command that starts it."""
        munge = [f"--key-file={self.folder}/munge.key", f"--socket={self.folder}/munged.sock", "--force", "-F"]
        munge += [f"--{what}-file={self.folder}/munge.{what}" for what in ("pid", "log", "seed")]
        command = {
            "munged": ["munged", *munge],
            "mariadbd": ["mariadbd", f"--defaults-file={self.folder}/mariadb.cnf"],
            "slurmdbd": ["slurmdbd", "-D"],
            "slurmctld": ["slurmctld", "-D"],
        }.get(name, ["slurmd", "-D", "-N", name])
        program = shutil.which(command[0], path=PATH)
        assert program
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                [*within, program, *command[1:]], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """Without a word, and of a node everything that runs there."""
        daemon = self.daemons.pop(name)
        victims = self.left_over(name) if name in NODES else []
        steps = {parent for process in victims for parent in process.parents() if parent.name() == "slurmstepd"}
        # Who would report the end of a task goes before the task.
        for process in (psutil.Process(daemon.pid), *steps, *victims):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        daemon.wait()

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ready(self) -> bool:
        command = ["sinfo", "--noheader", "--format=%T %D"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout.split() == ["idle", str(len(NODES))]

    def left_over(self, node: str = "") -> list[psutil.Process]:
        """What the nodes, or this one, have started and still lives."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mine = process.environ()
                where = mine.get("SLURMD_NODENAME")
                if mine.get("SLURM_CONF") == str(self.config) and where and where == (node or where):
                    found.append(process)
        return found

    def clear(self) -> None:
        """After the daemons: ends who would report to them for ever, and removes the nodes' control groups."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == str(self.config) and process.name() == "slurmstepd":
                    process.kill()
                    process.wait()
        for node in NODES:
            for folder, _, _ in os.walk(MEMORY / f"slurm_{node}", topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    @property
    def limits_memory(self) -> bool:
        """Whether nodes can hold a job to the memory that it has asked for."""
        return os.access(MEMORY, os.W_OK)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"SLURM_CONF": str(self.config), "PATH": PATH}


def _database(made: Slurm, host: str, user: str) -> str:
    """Starts what accounts for jobs, a MariaDB and slurmdbd; what slurm.conf says of it. Whoever is on this machine may
    enter the database."""
    folder, ports = made.folder, {"dbd": free_port(), "mariadb": free_port()}
    (folder / "mariadb.cnf").write_text(
        f"[mariadbd]\nuser={user}\ndatadir={folder}/mariadb\nsocket={folder}/mariadb.sock\n"
        f"pid-file={folder}/mariadb.pid\nport={ports['mariadb']}\nbind-address=127.0.0.1\nskip-grant-tables\n"
        "innodb-buffer-pool-size=32M\ninnodb-log-file-size=8M\n"
    )
    program = shutil.which("mariadb-install-db", path=PATH)
    assert program
    made.ask(program, f"--defaults-file={folder}/mariadb.cnf", "--auth-root-authentication-method=normal")
    made.start("mariadbd")
    path = folder / "slurmdbd.conf"
    path.write_text(DATABASE.format(folder=folder, host=host, user=user, **ports))
    path.chmod(0o600)
    assert eventually(lambda: _listens(ports["mariadb"])), (folder / "mariadbd.out").read_text()[-3000:]
    made.start("slurmdbd")
    assert eventually(lambda: _listens(ports["dbd"])), (folder / "slurmdbd.log").read_text()[-3000:]
    return ACCOUNTED.format(folder=folder, **ports)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def cluster(folder: Path, accounting: bool = False) -> Iterator[Slurm]:
    """Stopped with everything that it started. With `accounting` every job has an account that slurmdbd knows."""
    if not os.environ.get("FMHA_SLURM"):
        pytest.skip("set FMHA_SLURM=1 to have a Slurm started: these take nine minutes")
    programs = PROGRAMS + (ACCOUNTING if accounting else ())
    if missing := [name for name in programs if not shutil.which(name, path=PATH)]:
        packages = "slurm-wlm and munge" + (", slurmdbd and mariadb-server" if accounting else "")
        pytest.skip(f"no Slurm: {missing[0]} is missing; install {packages}")
    made = Slurm(folder)
    (folder / "state").mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n")
    host, user = socket.gethostname().partition(".")[0], pwd.getpwuid(os.geteuid()).pw_name
    task = "cgroup" if made.limits_memory else "none"
    text = CONFIG.format(folder=folder, host=host, user=user, port=free_port(), task=task)
    for name in NODES:
        (folder / f"spool.{name}").mkdir()
        text += (
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1 RealMemory={MEGABYTES}\n"
        )
    text += "PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=1\n"
    text += f"PartitionName={URGENT} Nodes=ALL State=UP PriorityTier=2 PreemptMode=OFF\n"
    try:
        made.start("munged")
        assert eventually((folder / "munged.sock").exists)
        made.config.write_text(text)
        if accounting:
            made.config.write_text(text + _database(made, host, user))
        for name in ("slurmctld", *NODES):
            made.start(name)
        assert eventually(made.ready), (folder / "slurmctld.log").read_text()[-3000:]
        yield made
    finally:
        for process in made.left_over():
            with contextlib.suppress(psutil.Error):
                process.kill()
        for daemon in made.daemons.values():
            daemon.send_signal(signal.SIGTERM)
        for daemon in made.daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        made.clear()
