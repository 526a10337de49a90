"""Small kernels that run both on the emulator and on a GPU, so that silicon can judge the emulator.

catalogue.py      the probes: kernel, inputs, launch, how results are compared
*.cu, scalar.py   the kernels; scalar.py writes CUDA from a table of one instruction a row
copy.cuh          what the kernels that copy tensors share
memory.py         PTX of atomics, copies, and what warps and CTAs decide together
masks.py          PTX: every .sync instruction, lanes of one warp under masks of their own
carries.py        PTX: every chain of two and three instructions through the carry flag
groups.py         cooperative groups and CUB over fewer lanes than a warp (groups.cu)
programs.py       whole programs of those instructions, made at random: what diverges, what a warp does together
build.py          nvcc: .cu -> PTX, which the emulator runs, -> cubin of that same PTX, which the GPU runs
run_gpu.py        CUDA driver through ctypes -> results.npz
run_emulator.py   emulator.Device -> the same arrays
compare.py        table and results/probes-h200.json
textures.py       one program of textures and surfaces (textures.cu), on a GPU and here, word by word
gpu/              results of GPUs, checked in: tests/emulator/test_probes.py holds the emulator to them, and to those of
                  textures tests/emulator/textures/test_texture_probes.py
"""
