"""Ordinary Python on the emulator: kernels that a script or a test launches run there, with tensors on the CPU.

`machine` runs launches and keeps what they said, `triton_driver` stands where Triton's driver for CUDA would,
`torch_device` has torch put on the CPU what is asked of a GPU. docs/use/scripts.md is the guide.
"""
