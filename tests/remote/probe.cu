// Kernels that go wrong on a real GPU: one never ends, one takes the context down with it.

extern "C" __global__ void spin(volatile unsigned *flag) {
  while (*flag == 0) {
  }
}

extern "C" __global__ void poison(unsigned *nowhere) { *nowhere = 1; }
