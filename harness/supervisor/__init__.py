"""What runs on a host beside the GPU: shipped there by the client, standard library only; see
docs/understand/remote-runs.md.

Nothing here imports anything of fmha but `fmha.harness.worker.processes.groups`, `fmha.harness.isolate` and the errors
that this raises, which travel with it.
"""

GREETING = '{"fmha":1}\n'  # the first that an agent says
# What a policy of a key that only runs commits (forced.py) takes from a job as it is.
OF_THE_JOB = ("environment", "python", "env", "nvcc", "slurm", "protected")
