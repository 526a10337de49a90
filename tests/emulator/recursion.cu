// Device functions that call themselves. test_recursion.py compiles it.
struct Span {
    char tag;  // a gap behind it, which nobody writes
    int first, last;
    float weight[3];
};

__device__ int fibonacci(int n) { return n < 2 ? 1 : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __global__ void fibonaccis(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 11); }

// Every frame has an array of its own, and a callee writes into its caller's.
__device__ __noinline__ int queens(int n, int row, const int* columns, int* found) {
    if (row == n) return ++*found;
    int mine[8], placed = 0;
    for (int i = 0; i < row; i++) mine[i] = columns[i];
    for (int column = 0; column < n; column++) {
        bool free = true;
        for (int i = 0; i < row; i++) free = free && mine[i] != column && abs(mine[i] - column) != row - i;
        if (!free) continue;
        mine[row] = column;
        placed += queens(n, row + 1, mine, found) > 0;
    }
    return placed;
}
extern "C" __global__ void solutions(int* out) {
    int found = 0;
    queens(1 + threadIdx.x % 6, 0, &found, &found);
    out[threadIdx.x] = found;
}

// A struct by value and as result, two functions that call each other, and one called from two places.
__device__ Span right_of(Span s, double scale);
__device__ __noinline__ Span left_of(Span s, double scale) {
    if (s.last - s.first < 2) return s;
    const int middle = (s.first + s.last) / 2;
    Span l = right_of({'l', s.first, middle, {s.weight[0] + 1, s.weight[1], s.weight[2]}}, scale * 2);
    Span r = right_of({'r', middle, s.last, {s.weight[0], s.weight[1] + 1, s.weight[2]}}, scale / 2);
    for (int i = 0; i < 3; i++) l.weight[i] += r.weight[i] * (i + 1);
    l.weight[2] += scale;
    l.last = r.last;
    return l;
}
__device__ __noinline__ Span right_of(Span s, double scale) {
    Span t = left_of(s, scale + 1);
    t.weight[1] += t.tag == 'l';
    return t;
}
extern "C" __global__ void spans(float* out) {
    Span a = left_of({'x', 0, int(threadIdx.x % 13), {0, 0, 0}}, 1), b = right_of({'l', 3, 7, {1, 1, 1}}, 3);
    for (int i = 0; i < 3; i++) {
        out[threadIdx.x * 6 + i] = a.weight[i];
        out[threadIdx.x * 6 + 3 + i] = b.weight[i];
    }
}

// One recursion within another.
__device__ __noinline__ int depth(int n) { return n ? 1 + depth(n / 2) : 0; }
__device__ __noinline__ int tree(int n) { return n ? depth(n) + tree(n / 3) * 2 + depth(n + tree(n / 4)) : 1; }
extern "C" __global__ void trees(int* out) { out[threadIdx.x] = tree(5 * threadIdx.x); }

// By addresses in a table.
typedef int (*Step)(int);
__device__ int odd(int n), even(int n);
__device__ Step steps[2] = {even, odd};
__device__ int odd(int n) { return n ? 3 * steps[n / 2 & 1](n / 2) + 1 : 7; }
__device__ int even(int n) { return n ? steps[n / 2 & 1](n / 2) + n : 5; }
extern "C" __global__ void parities(int* out) { out[threadIdx.x] = steps[threadIdx.x & 1](threadIdx.x); }

// All lanes come together in each frame.
__device__ __noinline__ int lane_sum(int value, int step) {
    if (step == 0) return value;
    const int other = __shfl_xor_sync(~0u, value, step);
    return lane_sum(value + other, step / 2) + value * 0;
}
extern "C" __global__ void sums(int* out) { out[threadIdx.x] = lane_sum(threadIdx.x * threadIdx.x, 16); }

__device__ __noinline__ int ackermann(int m, int n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
extern "C" __global__ void ackermanns(int* out, int m, int n) { out[threadIdx.x] = ackermann(m, n); }

// The array of a frame holds nothing from the frame that was there before.
__device__ __noinline__ int item(const int* p, int at) { return p[at & 3]; }
__device__ __noinline__ int remembers(int n, int at) {
    int here[4];
    if (n > 1) {
        for (int i = 0; i < 4; i++) here[i] = n;
        return remembers(n - 1, at) + remembers(n - 2, at) + item(here, at);
    }
    if (n == 1) here[at & 3] = 1;
    return item(here, at);
}
extern "C" __global__ void remembered(int* out, int n) { out[threadIdx.x] = remembers(n, threadIdx.x); }
