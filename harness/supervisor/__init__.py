"""What runs on a host beside the GPU: shipped there by the client, standard library only. docs/remote.md is its contract.

Nothing here imports anything of `harness` but `harness.worker.process`, which travels with it (harness/hosts/shipment.py).
"""
