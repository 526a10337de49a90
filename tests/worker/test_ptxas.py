from fmha.harness.contract.protocol import Resources
from fmha.harness.worker.compilers.ptxas import parse_resources

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_100a'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem
ptxas info    : Compiling entry function 'mine' for 'sm_100a'
ptxas info    : Function properties for helper
    8 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads
ptxas info    : Function properties for mine
    96 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 2 barriers, 1040 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 2.937 ms
"""


def test_reads_the_entry_s_own_figures():
    assert parse_resources(LOG, "mine") == Resources(255, 16, 24, 96, 1040)
    assert parse_resources(LOG, "other") == Resources(10, 0, 0, 0, 256)


def test_no_shared_memory_is_zero():
    assert parse_resources(LOG.replace(", 256 bytes smem", ""), "other") == Resources(10, 0, 0, 0, 0)


def test_an_entry_that_is_not_there():
    assert parse_resources(LOG, "missing") is None
    assert parse_resources("", "mine") is None
