"""Two network namespaces with a router between them, which can be told to lose every packet without a word."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

CLIENT, SERVER = "10.213.1.2", "10.213.2.2"


@dataclass(frozen=True)
class Network:
    """`client` and `server` are command prefixes that enter the two ends; the server's has the address SERVER."""

    client: tuple[str, ...]
    server: tuple[str, ...]
    router: tuple[str, ...]

    def cut(self) -> None:
        """From now on what either end sends is lost in the middle: no reset, no ICMP message, links stay up."""
        self._forward(0)

    def heal(self) -> None:
        self._forward(1)

    def _forward(self, on: int) -> None:
        _run(*self.router, "sh", "-c", f"echo {on} >/proc/sys/net/ipv4/ip_forward")


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Skips where namespaces cannot be made. They last as long as the processes that hold them."""
    if os.geteuid() != 0:
        pytest.skip("makes network namespaces, which needs root")
    if missing := [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]:
        pytest.skip(f"no {' and no '.join(missing)}: install iproute2 and util-linux")
    with contextlib.ExitStack() as stack:
        client, router, server = (stack.enter_context(_namespace()) for _ in range(3))
        made = Network(_inside(client), _inside(server), _inside(router))
        for place, (near, far), end in ((client, ("c0", "r0"), CLIENT), (server, ("s0", "r1"), SERVER)):
            gateway = end.rpartition(".")[0] + ".1"
            link = ("ip", "link", "add", near, "netns", str(place), "type", "veth", "peer", "name", far, "netns")
            if subprocess.run([*link, str(router)], capture_output=True, check=False).returncode != 0:
                pytest.skip("this kernel makes no veth pair")
            for inside, name, address in ((_inside(place), near, end), (made.router, far, gateway)):
                _run(*inside, "ip", "address", "add", f"{address}/24", "dev", name)
                _run(*inside, "ip", "link", "set", name, "up")
            _run(*_inside(place), "ip", "link", "set", "lo", "up")
            _run(*_inside(place), "ip", "route", "add", "default", "via", gateway)
        made.heal()
        yield made


@contextlib.contextmanager
def _namespace() -> Iterator[int]:
    """A process that holds a network namespace of its own; its pid."""
    script = "echo there; exec sleep infinity"
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "there\n":
            pytest.skip("no network namespace can be made here")
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def _inside(pid: int) -> tuple[str, ...]:
    return ("nsenter", f"--net=/proc/{pid}/ns/net", "--")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
