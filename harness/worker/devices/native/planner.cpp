// A call of sizes that no call had before: decided, prepared and launched without Python, which takes a hundred times
// as long for it. harness/attention/decision.py and harness/kernel_side/launch.py decide the same in Python, for calls
// that this leaves to them; tests/harness/test_planner.py holds the two to equal launches, parameters and all.
#define PY_SSIZE_T_CLEAN
#include "planner.hpp"

#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <new>

#include "decide.hpp"
#include "launch.hpp"
#include "launching.hpp"
#include "parse.hpp"

namespace fmha::planner {
namespace {

struct Planner {
    PyObject_HEAD Tables* tables;
    Driver driver;
    void* context;
    i64 most_scratch;
};

// A call that was planned. Its memory is of its own, as its launches may come from several threads.
struct State {
    FmhaParams params;
    Made made;
    i64 stored, statistics;  // tensors, and bytes of one
    u64 known[3];            // the addresses that the maps have
};
struct Planned {
    PyObject_HEAD vectorcallfunc call;
    Planner* planner;
    State* state;
    PyObject* outputs;
    Py_ssize_t variant, splits;
};

extern PyTypeObject planned_type;
PyObject* make_launches(PyObject* self, PyObject* const* given, std::size_t flags, PyObject*);

// Shapes as torch takes them: a tuple, and the strides of a contiguous tensor of it.
PyObject* shaped(const i64* sizes, int count) {
    PyObject* const shape = PyTuple_New(count);
    PyObject* const strides = PyTuple_New(count);
    i64 step = 1;
    for (int d = count - 1; shape && strides && d >= 0; --d) {
        PyTuple_SET_ITEM(shape, d, PyLong_FromLongLong(sizes[d]));
        PyTuple_SET_ITEM(strides, d, PyLong_FromLongLong(step));
        step *= sizes[d];
    }
    return Py_BuildValue("NN", shape, strides);
}

// (o, o of the kernel's rows or None, statistics or None, bytes of scratch memory, whether CTAs draw row tiles)
PyObject* outputs_of(const Call& call, const Made& made, i64 stored) {
    i64 o[4], statistics[4];
    int rows = 0;
    if (call.packed_q()) {
        o[rows++] = call.total_q;
    } else {
        o[rows++] = call.batch;
        o[rows++] = call.t;
    }
    o[rows++] = call.heads;
    statistics[0] = stored;
    std::copy(o, o + rows, statistics + 1);
    o[rows] = call.width;
    PyObject* const narrow = shaped(o, rows + 1);
    o[rows] = call.head_dim;
    PyObject* const wide = call.width == call.head_dim ? Py_NewRef(Py_None) : shaped(o, rows + 1);
    PyObject* const stats = stored ? shaped(statistics, rows + 1) : Py_NewRef(Py_None);
    return Py_BuildValue("NNNLO", narrow, wide, stats, static_cast<long long>(made.scratch.bytes()),
                         made.draws ? Py_True : Py_False);
}

bool loaded(const Made& made, const Decision& d) {
    return made.forward.function && (made.combine.function || (d.splits == 1 && !d.balance_ctas));
}

// plan(form, scale, left, right, longest_q, longest_k, normalise, output_bf16, stored, splits): a Planned; an int, the
// place of a variant that has to be loaded first; None for what is left to Python.
PyObject* plan(PyObject* self, PyObject* const* given, Py_ssize_t count) {
    const Planner& planner = *reinterpret_cast<Planner*>(self);
    if (count != 10 || !PyBytes_Check(given[0])) {
        PyErr_SetString(PyExc_TypeError, "plan: expected the form of tensors and nine options");
        return nullptr;
    }
    Options options;
    options.scale = PyFloat_AsDouble(given[1]);
    i64* const numbers[] = {&options.left, &options.right, &options.longest_q, &options.longest_k};
    for (int i = 0; i < 4; ++i) *numbers[i] = PyLong_AsLongLong(given[2 + i]);
    options.normalise = PyLong_AsLong(given[6]) != 0;
    options.output_bf16 = PyLong_AsLong(given[7]) != 0;
    options.stored = PyLong_AsLongLong(given[8]);
    options.splits = PyLong_AsLongLong(given[9]);
    if (PyErr_Occurred()) return nullptr;
    Tensor tensors[kPlaces];
    const std::span words(reinterpret_cast<const i64*>(PyBytes_AS_STRING(given[0])),
                          PyBytes_GET_SIZE(given[0]) / sizeof(i64));
    if (!read_form(words, tensors)) Py_RETURN_NONE;
    const auto call = call_of(tensors, options);
    if (!call) Py_RETURN_NONE;
    const auto decision = decide(*planner.tables, *call);
    if (!decision) Py_RETURN_NONE;
    if (!fits(*call, *decision, planner.most_scratch)) Py_RETURN_NONE;
    const Made made = made_of(*planner.tables, *call, *decision);
    if (made.scratch.bytes() > planner.most_scratch) Py_RETURN_NONE;
    if (!loaded(made, *decision)) return PyLong_FromSize_t(decision->variant);
    auto* const planned = reinterpret_cast<Planned*>(planned_type.tp_alloc(&planned_type, 0));
    if (!planned) return nullptr;
    planned->call = make_launches;
    planned->state = new (std::align_val_t(alignof(State))) State{};
    State& state = *planned->state;
    state.made = made;
    state.stored = options.stored;
    state.statistics = 4 * (call->packed_q() ? call->total_q : call->batch * call->t) * call->heads;
    fill(state.params, planner.tables->variants[decision->variant], *call, *decision);
    planned->planner = reinterpret_cast<Planner*>(Py_NewRef(self));
    planned->variant = decision->variant;
    planned->splits = decision->balance_ctas ? kBalanced : decision->splits;
    planned->outputs = outputs_of(*call, made, options.stored);
    if (planned->outputs) return reinterpret_cast<PyObject*>(planned);
    Py_DECREF(planned);
    return nullptr;
}

int encode(const Driver& driver, const MapSpec& spec, u64 address, FmhaTensorMap& map) {
    static constexpr u32 kSteps[5] = {1, 1, 1, 1, 1};
    return driver.encode(&map, kBfloat16, spec.rank, reinterpret_cast<void*>(address), spec.dims, spec.strides,
                         spec.box, kSteps, kInterleaveNone, kSwizzle128, kPromote128, kFillNone);
}

// Sets the maps; the driver's answer, negative.
int set_maps(const Driver& driver, State& state, const u64 (&at)[kPlaces]) {
    const MapSpec* const specs[] = {&state.made.q, &state.made.k, &state.made.v};
    FmhaTensorMap* const maps[] = {&state.params.q, &state.params.k, &state.params.v};
    for (int i = 0; i < 3; ++i) {
        if (!at[i] || at[i] == state.known[i]) continue;
        const int answer = state.known[i] ? driver.move(maps[i], reinterpret_cast<void*>(at[i]))
                                          : encode(driver, *specs[i], at[i], *maps[i]);
        state.known[i] = answer ? 0 : at[i];
        if (answer) return -answer;
    }
    return 0;
}

template <class T>
T* pointer(u64 address) {
    return reinterpret_cast<T*>(address);
}

void set_pointers(State& state, const u64 (&at)[kPlaces], const u64 (&more)[4]) {
    FmhaParams& p = state.params;
    const auto [o, statistics, scratch, drawn] = more;
    p.o = pointer<void>(o);
    const auto statistic = [&](i64 place) { return pointer<float>(statistics + place * state.statistics); };
    p.row_max = state.stored == 3 ? statistic(0) : nullptr;
    p.row_sum = state.stored == 3 ? statistic(1) : nullptr;
    p.lse = state.stored ? statistic(state.stored - 1) : nullptr;
    const Scratch& s = state.made.scratch;
    if (scratch) {
        p.partial_o = pointer<float>(scratch);
        p.partial_max = pointer<float>(scratch + s.partial_o);
        p.partial_sum = pointer<float>(scratch + s.partial_o + s.partial_max);
        if (s.shares) p.shares = pointer<int32_t>(scratch + s.partial_o + s.partial_max + s.partial_sum);
    }
    p.kv_lens = pointer<const int32_t>(at[kKvLens]);
    p.query_offsets = pointer<const int32_t>(at[kQueryOffsets]);
    p.sink = pointer<const float>(at[kSink]);
    p.block_table = pointer<const int32_t>(at[kBlockTable]);
    p.cu_seqlens_q = pointer<const int32_t>(at[kCuSeqlensQ]);
    p.cu_seqlens_k = pointer<const int32_t>(at[kCuSeqlensK]);
    p.drawn = pointer<uint32_t>(drawn);
}

int launch(const Driver& driver, const Launch& made, FmhaParams& params, u64 stream) {
    LaunchAttribute serial{kProgrammaticStreamSerialization, 0, {}};
    serial.value.serial = 1;
    const auto part = [](i64 size) { return static_cast<u32>(size); };
    const LaunchConfig config{
        {part(made.grid.x), part(made.grid.y), part(made.grid.z)},
        {part(made.threads), 1, 1},
        part(made.shared_bytes),
        reinterpret_cast<void*>(stream),
        &serial,
        made.overlaps ? 1u : 0u,
    };
    void* arguments[] = {&params};
    return driver.launch(&config, made.function, arguments, nullptr);
}

// planned(stream, addresses, o, statistics, scratch, drawn): the driver's answer, 0 for success; of tensor maps
// negative. `addresses` are those that `read` gives; 0 is none.
PyObject* make_launches(PyObject* self, PyObject* const* given, std::size_t flags, PyObject*) {
    const auto& planned = *reinterpret_cast<Planned*>(self);
    const Planner& planner = *planned.planner;
    State& state = *planned.state;
    if (PyVectorcall_NARGS(flags) != 6 || !PyBytes_Check(given[1])) {
        PyErr_SetString(PyExc_TypeError, "planned: expected a stream, addresses as bytes, and four addresses");
        return nullptr;
    }
    u64 at[kPlaces] = {};
    if (PyBytes_GET_SIZE(given[1]) != sizeof at) {
        PyErr_SetString(PyExc_ValueError, "planned: expected the addresses of all tensors that there can be");
        return nullptr;
    }
    std::memcpy(at, PyBytes_AS_STRING(given[1]), sizeof at);
    const u64 stream = PyLong_AsUnsignedLongLong(given[0]);
    u64 more[4];
    for (int i = 0; i < 4; ++i) more[i] = PyLong_AsUnsignedLongLong(given[2 + i]);
    if (PyErr_Occurred()) return nullptr;
    // Another GPU's context may be the thread's, or none, and stays that.
    void* before = nullptr;
    int answer = planner.driver.current(&before);
    const bool elsewhere = before != planner.context;
    if (!answer && elsewhere) answer = planner.driver.enter(planner.context);
    if (answer) return PyLong_FromLong(answer);
    // A launch waits where the GPU is far behind, and another thread may be what it waits for.
    Py_BEGIN_ALLOW_THREADS;
    {
        const std::lock_guard alone(launching);
        answer = set_maps(planner.driver, state, at);
        set_pointers(state, at, more);
        if (!answer) answer = launch(planner.driver, state.made.forward, state.params, stream);
        if (!answer && state.made.combine.function)
            answer = launch(planner.driver, state.made.combine, state.params, stream);
    }
    Py_END_ALLOW_THREADS;
    if (elsewhere) planner.driver.enter(before);
    return PyLong_FromLong(answer);
}

void end_planned(PyObject* self) {
    auto& planned = *reinterpret_cast<Planned*>(self);
    if (planned.state) operator delete(planned.state, std::align_val_t(alignof(State)));
    Py_XDECREF(planned.planner);
    Py_XDECREF(planned.outputs);
    Py_TYPE(self)->tp_free(self);
}

// Rows of numbers from a sequence of sequences.
template <class Row>
bool take_rows(PyObject* given, Py_ssize_t columns, std::vector<Row>& rows, Row (*made)(const std::vector<double>&)) {
    PyObject* const items = PySequence_Fast(given, "planner: expected a sequence of rows");
    if (!items) return false;
    bool right = true;
    for (Py_ssize_t i = 0; right && i < PySequence_Fast_GET_SIZE(items); ++i) {
        PyObject* const row = PySequence_Fast(PySequence_Fast_GET_ITEM(items, i), "planner: expected a row");
        right = row && PySequence_Fast_GET_SIZE(row) == columns;
        std::vector<double> values;
        for (Py_ssize_t j = 0; right && j < columns; ++j)
            values.push_back(PyFloat_AsDouble(PySequence_Fast_GET_ITEM(row, j)));
        if (right) rows.push_back(made(values));
        Py_XDECREF(row);
    }
    Py_DECREF(items);
    if (!right && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "planner: a row of another length");
    return right && !PyErr_Occurred();
}

i64 whole(double value) { return static_cast<i64>(value); }

// Planner(entries, context, most_scratch, variants, shapes, paces, rates): the addresses of the driver's functions, in
// the order of Driver; the context of launches; the bytes of partial results that fit; and the tables of sizes.hpp.
PyObject* make(PyTypeObject* type, PyObject* given, PyObject*) {
    unsigned long long launch, move, current, enter, encode, context;
    long long most_scratch;
    PyObject *variants, *shapes, *paces, *rates;
    if (!PyArg_ParseTuple(given, "(KKKKK)KLOOOO", &launch, &move, &current, &enter, &encode, &context, &most_scratch,
                          &variants, &shapes, &paces, &rates))
        return nullptr;
    auto* const planner = reinterpret_cast<Planner*>(type->tp_alloc(type, 0));
    if (!planner) return nullptr;
    planner->tables = new Tables;
    Tables& tables = *planner->tables;
    planner->driver = {
        reinterpret_cast<decltype(Driver::launch)>(launch), reinterpret_cast<decltype(Driver::move)>(move),
        reinterpret_cast<decltype(Driver::current)>(current), reinterpret_cast<decltype(Driver::enter)>(enter),
        reinterpret_cast<decltype(Driver::encode)>(encode)};
    planner->context = reinterpret_cast<void*>(context);
    planner->most_scratch = most_scratch;
    using Values = const std::vector<double>&;
    const bool right =
        take_rows<Variant>(variants, 10, tables.variants,
                           [](Values v) {
                               return Variant{whole(v[0]), whole(v[1]), whole(v[2]), whole(v[3]), whole(v[4]),
                                              whole(v[5]), whole(v[6]), whole(v[7]), whole(v[8]), whole(v[9])};
                           }) &&
        take_rows<Shape>(
            shapes, 5, tables.shapes,
            [](Values v) { return Shape{whole(v[0]), whole(v[1]), whole(v[2]), whole(v[3]), whole(v[4])}; }) &&
        take_rows<Pace>(paces, 6, tables.paces,
                        [](Values v) { return Pace{whole(v[0]), whole(v[1]), whole(v[2]), v[3], v[4], v[5]}; }) &&
        take_rows<Rates>(rates, 10, tables.rates, [](Values v) {
            return Rates{whole(v[0]), v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]};
        });
    if (right) return reinterpret_cast<PyObject*>(planner);
    Py_DECREF(planner);
    return nullptr;
}

// load(place, forward, suffix, combine): functions of the variant at `place`; `combine` goes by the bits of its suffix,
// and is 0 where there is none.
PyObject* load(PyObject* self, PyObject* given) {
    Tables& tables = *reinterpret_cast<Planner*>(self)->tables;
    unsigned long long place, forward, suffix, combine;
    if (!PyArg_ParseTuple(given, "KKKK", &place, &forward, &suffix, &combine)) return nullptr;
    if (place >= tables.variants.size() || suffix >= tables.variants[place].combine.size()) {
        PyErr_SetString(PyExc_ValueError, "load: no such variant, or no such combine kernel");
        return nullptr;
    }
    Variant& variant = tables.variants[place];
    variant.forward = reinterpret_cast<void*>(forward);
    if (combine) variant.combine[suffix] = reinterpret_cast<void*>(combine);
    Py_RETURN_NONE;
}

void end_planner(PyObject* self) {
    delete reinterpret_cast<Planner*>(self)->tables;
    Py_TYPE(self)->tp_free(self);
}

PyMethodDef methods[] = {
    {"plan", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(plan)), METH_FASTCALL,
     "A call, from the form of its tensors and its options; a variant's place; or None."},
    {"load", load, METH_VARARGS, "The functions of a variant."},
    {},
};
PyMemberDef members[] = {
    {"outputs", T_OBJECT_EX, offsetof(Planned, outputs), READONLY, "Shapes, scratch memory, and whether CTAs draw."},
    {"variant", T_PYSSIZET, offsetof(Planned, variant), READONLY, "The place of the variant."},
    {"splits", T_PYSSIZET, offsetof(Planned, splits), READONLY, "How many, -1 for balanced ones."},
    {},
};
PyTypeObject planner_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject planned_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

bool add_planner(PyObject* module) {
    planner_type.tp_name = "fmha.harness.worker.devices._calls.Planner";
    planner_type.tp_doc = "Plans calls of any sizes on one GPU.";
    planner_type.tp_basicsize = sizeof(Planner);
    planner_type.tp_flags = Py_TPFLAGS_DEFAULT;
    planner_type.tp_methods = methods;
    planner_type.tp_new = make;
    planner_type.tp_dealloc = end_planner;
    planned_type.tp_name = "fmha.harness.worker.devices._calls.Planned";
    planned_type.tp_doc = "A call, planned.";
    planned_type.tp_basicsize = sizeof(Planned);
    planned_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    planned_type.tp_vectorcall_offset = offsetof(Planned, call);
    planned_type.tp_call = PyVectorcall_Call;
    planned_type.tp_members = members;
    planned_type.tp_dealloc = end_planned;
    if (PyType_Ready(&planner_type) || PyType_Ready(&planned_type)) return false;
    return !PyModule_AddObjectRef(module, "Planner", reinterpret_cast<PyObject*>(&planner_type));
}

}  // namespace fmha::planner
