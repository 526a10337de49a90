// Prints CuTe's own layouts of the tcgen05 family, one a line: name, rows, columns, then rows x columns numbers.
// Tensor memory positions are lane << 16 | column (of 32 bits, or of 8 bits for scale factors); shared memory positions
// are bytes.
#include <cstdio>
#include <cute/atom/copy_traits_sm100.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cute/tensor.hpp>

using namespace cute;

template <class F>
void print_table(const char* name, int rows, int columns, F f) {
    std::printf("%s %d %d", name, rows, columns);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c) std::printf(" %d", static_cast<int>(f(r, c)));
    std::printf("\n");
}

// Bit addresses of tensor memory: a lane is TMEM::DP_b of them.
int word_of(int bit, int width = 32) {
    constexpr int lane = TMEM::DP_b{};
    return bit / lane << 16 | bit % lane / width;
}

// Thread and register -> the word that it holds; a packed register's low half.
template <class Op>
void load(const char* name, int registers) {
    using T = Copy_Traits<Op>;
    typename T::DstLayout destination;
    typename T::ValID word;
    print_table(name, 32, registers, [&](int t, int r) { return word_of(word(destination(t, 32 * r))); });
}
#define LOAD(shape, n, registers)                                        \
    load<SM100_TMEM_LOAD_##shape##n##x>("ld." #shape "." #n, registers); \
    load<SM100_TMEM_LOAD_##shape##n##x_16b>("ld16." #shape "." #n, registers);

template <class Fragment, int M, int N>
void fragment(const char* name) {
    auto layout = Fragment::make(make_shape(make_shape(Int<M>{}, Int<N>{}), Int<1>{}, Int<1>{})).layout();
    print_table(name, M, N, [&](int r, int c) { return layout(make_coord(r, c), 0, 0); });
}

// Half-precision A: addresses count 16-bit elements, two a column.
template <class Fragment, int M>
void a_fragment(const char* name) {
    auto layout = Fragment::make(make_shape(make_shape(Int<M>{}, Int<16>{}), Int<1>{}, Int<1>{})).layout();
    constexpr int lane = TMEM::DP<half_t>{};
    print_table(name, M, 8, [&](int r, int c) {
        const int at = layout(make_coord(r, 2 * c), 0, 0);
        return at / lane << 16 | at % lane / 2;
    });
}

template <int Rows, int Scales, bool A>
void scales(const char* name) {
    using Fragment = UMMA::tmem_sf_frg<uint8_t, 32, 1, A>;
    auto layout =
        Fragment::make(make_shape(make_shape(Int<Rows>{}, make_shape(Int<32>{}, Int<Scales>{})), Int<1>{}, Int<1>{}))
            .layout();
    constexpr int lane = TMEM::DP<uint8_t>{};
    // The first mode is ((32, Rows / 32), copies): copy p of row r is element r + Rows p.
    print_table(name, 4 * Rows, Scales, [&](int r, int s) {
        const int at = get<0>(layout)(r + 4 * Rows * 32 * s);
        return at / lane << 16 | at % lane;
    });
}

template <class Op, int Rows, int Words, int Copies>
void copy_rows(const char* name) {
    typename Copy_Traits<Op>::ValID address;
    print_table(name, Rows * Copies, Words, [&](int r, int c) {
        return word_of(address(r % Rows + Rows * 32 * c + Rows * Words * 32 * (r / Rows)));
    });
}

template <class Op>
void copy_01_23(const char* name) {
    typename Copy_Traits<Op>::ValID address;  // (32 rows, 128 bits, 2 halves, 2 copies)
    print_table(name, 128, 4,
                [&](int r, int c) { return word_of(address(r % 32 + 32 * 32 * c + 32 * 128 * (r / 32))); });
}

// Metadata of a sparse A, a group of elements a column: lane << 16 | bit. Addresses count elements, of `Halves` half
// bits each. Row r of copy c is row r + M c.
template <class Fragment, int M, int K, int Group, int Halves>
void metadata(const char* name) {
    auto layout = get<0>(Fragment::make(make_shape(make_shape(Int<M>{}, Int<K>{}), Int<1>{}, Int<1>{})).layout());
    // Element (r, k) is number r + M k; the copies of .ws follow.
    print_table(name, 128, K / Group, [&](int r, int g) {
        const int at = layout(r % M + M * (Group * g + K * (r / M)));
        return word_of(Halves == 1 ? at / 2 : at * (Halves / 2), 1);
    });
}

template <class Atom, class T, int K>
void shared(const char* name) {
    // The atoms swizzle byte addresses; this form of them swizzles offsets of elements.
    auto layout = as_position_independent_swizzle_layout(tile_to_shape(Atom{}, Shape<_128, Int<K>>{}));
    print_table(name, 128, K, [&](int mn, int k) { return layout(mn, k) * static_cast<int>(sizeof(T)); });
}
#define SHARED(atom, type, k) shared<UMMA::Layout_##atom##_Atom<type>, type, k>("smem." #atom "." #type);

int main() {
    using float32 = float;
    LOAD(32dp32b, 1, 1)
    LOAD(32dp32b, 8, 8)
    LOAD(32dp32b, 64, 64) LOAD(32dp32b, 128, 128) LOAD(16dp64b, 1, 1) LOAD(16dp64b, 4, 4) LOAD(16dp64b, 32, 32)
        LOAD(16dp64b, 128, 128) LOAD(16dp128b, 1, 2) LOAD(16dp128b, 4, 8) LOAD(16dp128b, 16, 32) LOAD(16dp128b, 64, 128)
            LOAD(16dp256b, 1, 4) LOAD(16dp256b, 2, 8) LOAD(16dp256b, 8, 32) LOAD(16dp256b, 32, 128) LOAD(16dp32b, 1, 1)
                LOAD(16dp32b, 4, 4) LOAD(16dp32b, 32, 32) LOAD(16dp32b, 128, 128)
                    fragment<UMMA::tmem_frg_1sm<float>, 64, 256>("d.F.64.256");
    fragment<UMMA::tmem_frg_1sm<float>, 128, 256>("d.D.128.256");
    fragment<UMMA::tmem_frg_2sm<float>, 64, 256>("d.B.64.256");
    fragment<UMMA::tmem_frg_2sm<float>, 128, 256>("d.A.128.256");
    fragment<UMMA::tmem_frg_ws_1sm<float>, 32, 256>("d.G.32.256");
    fragment<UMMA::tmem_frg_ws_1sm<float>, 64, 128>("d.E.64.128");
    fragment<UMMA::tmem_frg_ws_1sm<float>, 128, 64>("d.D.128.64");
    a_fragment<UMMA::tmem_frg_1sm<half_t, half_t, UMMA::TmemAllocMode::NonInterleaved>, 64>("a.F.64");
    a_fragment<UMMA::tmem_frg_1sm<half_t, half_t, UMMA::TmemAllocMode::NonInterleaved>, 128>("a.D.128");
    a_fragment<UMMA::tmem_frg_2sm<half_t, half_t, UMMA::TmemAllocMode::Duplicated>, 128>("a.A.128");
    scales<128, 1, true>("sf.a.1");
    scales<128, 2, true>("sf.a.2");
    scales<128, 4, true>("sf.a.4");
    scales<256, 4, false>("sf.b.4");
    metadata<UMMA::tmem_e_frg<half_t>, 128, 32, 4, 2>("e.f16.128");
    metadata<UMMA::tmem_e_frg<float32>, 128, 16, 2, 4>("e.tf32.128");
    metadata<UMMA::tmem_e_frg<uint8_t>, 128, 64, 4, 2>("e.f8f6f4.128");
    metadata<UMMA::tmem_e_frg<float_e2m1_t>, 128, 128, 8, 1>("e.mxf4.128");
    metadata<UMMA::tmem_e_frg_ws<half_t>, 64, 32, 4, 2>("e.f16.64");
    metadata<UMMA::tmem_e_frg_ws<float32>, 32, 16, 2, 4>("e.tf32.32");
    metadata<UMMA::tmem_e_frg_ws<uint8_t>, 32, 64, 4, 2>("e.f8f6f4.32");
    using namespace SM100::TMEM::UTCCP;
    copy_rows<SM100_UTCCP_128dp256bit_1cta, 128, 8, 1>("cp.128x256b");
    copy_rows<SM100_UTCCP_128dp128bit_1cta, 128, 4, 1>("cp.128x128b");
    copy_rows<SM100_UTCCP_4x32dp128bit_1cta, 32, 4, 4>("cp.32x128b.warpx4");
    copy_rows<SM100_UTCCP_2x64dp128bitlw0213_1cta, 64, 4, 2>("cp.64x128b.warpx2::02_13");
    copy_01_23<SM100_UTCCP_2x64dp128bitlw0123_1cta>("cp.64x128b.warpx2::01_23");
    SHARED(K_INTER, half_t, 16)
    SHARED(K_SW32, half_t, 16)
    SHARED(K_SW64, half_t, 32) SHARED(K_SW128, half_t, 64) SHARED(K_INTER, uint8_t, 32) SHARED(K_SW32, uint8_t, 32)
        SHARED(K_SW64, uint8_t, 64) SHARED(K_SW128, uint8_t, 128) SHARED(K_INTER, float32, 8) SHARED(K_SW32, float32, 8)
            SHARED(K_SW64, float32, 16) SHARED(K_SW128, float32, 32) SHARED(MN_INTER, half_t, 16)
                SHARED(MN_SW32, half_t, 16) SHARED(MN_SW64, half_t, 16) SHARED(MN_SW128, half_t, 16)
                    SHARED(MN_INTER, uint8_t, 32) SHARED(MN_SW32, uint8_t, 32) SHARED(MN_SW64, uint8_t, 32)
                        SHARED(MN_SW128, uint8_t, 32) SHARED(MN_SW128_32B, float32, 8)
}
