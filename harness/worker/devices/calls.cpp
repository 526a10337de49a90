// What the host does for a call of `attention` whose plan is known: what its tensors are, and the plan's launches over
// their addresses. In Python the two cost twice as much as the driver takes for a launch.
// harness/worker/devices/cuda.py has the same in Python, for where nobody has compiled this.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "native/launching.hpp"
#include "native/planner.hpp"

namespace {

using u64 = std::uint64_t;
using i64 = std::int64_t;

// Of DLPack's ABI, as its header says it for version 1.3: what a tensor is, and the function that tells it without
// owning it.
struct Tensor {
    void* data;
    std::int32_t device_type, device_id;
    std::int32_t dimensions;
    std::uint8_t code, bits;
    std::uint16_t lanes;
    i64 *shape, *strides;
    u64 byte_offset;
};
struct Exchange {
    std::uint32_t major, minor;
    Exchange* previous;
    void* managed[3];
    int (*describe)(void* object, Tensor* out);
    void* stream;
};

constexpr int kMostTensors = 32, kMostDimensions = 8;
constexpr u64 kAlignment = 16;  // of what a tensor map begins with

// A reference that ends with its scope.
struct Held {
    PyObject* object;
    explicit Held(PyObject* o) : object(o) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { Py_XDECREF(object); }
    explicit operator bool() const { return object; }
};

// Whether tensors of `type` have memory of their own, unlike a FakeTensor: torch's own types and theirs have a builtin
// function for __torch_dispatch__, which says no.
bool has_memory(PyTypeObject* type) {
    const Held dispatch(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__torch_dispatch__"));
    if (!dispatch) PyErr_Clear();
    return dispatch && PyCFunction_Check(dispatch.object);
}

// What `type` offers; null without an error where it offers nothing that is known here.
Exchange* exchange_of(PyTypeObject* type) {
    static PyTypeObject* known = nullptr;  // with the GIL held; a type is kept so that no other gets its address
    static Exchange* found = nullptr;
    if (type == known) return found;
    if (!has_memory(type)) return nullptr;
    const Held capsule(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
    if (!capsule) {
        PyErr_Clear();
        return nullptr;
    }
    auto* const offered = static_cast<Exchange*>(PyCapsule_GetPointer(capsule.object, "dlpack_exchange_api"));
    if (!offered || offered->major != 1 || !offered->describe) {
        PyErr_Clear();
        return nullptr;
    }
    Py_INCREF(type);
    Py_XDECREF(known);
    known = type;
    return found = offered;
}

// read(tensors) -> (form, addresses), or None where one of them is no tensor that DLPack tells of, or has no memory.
// The form is what a plan depends on: which tensors there are, shapes, strides, dtypes, devices, and how far off its
// alignment an address is.
PyObject* read(PyObject*, PyObject* tensors) {
    if (!PyTuple_Check(tensors) || PyTuple_GET_SIZE(tensors) > kMostTensors) Py_RETURN_NONE;
    i64 form[kMostTensors * (3 + 2 * kMostDimensions)];
    u64 addresses[kMostTensors] = {};
    Py_ssize_t length = 0;
    const Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    for (Py_ssize_t place = 0; place < count; ++place) {
        PyObject* const object = PyTuple_GET_ITEM(tensors, place);
        if (object == Py_None) continue;
        const Exchange* const exchange = exchange_of(Py_TYPE(object));
        if (!exchange) Py_RETURN_NONE;
        Tensor t;
        if (exchange->describe(object, &t)) {
            PyErr_Clear();
            Py_RETURN_NONE;
        }
        if (t.dimensions > kMostDimensions) Py_RETURN_NONE;
        const bool empty = std::find(t.shape, t.shape + t.dimensions, 0) != t.shape + t.dimensions;
        addresses[place] = empty ? 0 : reinterpret_cast<u64>(t.data) + t.byte_offset;
        if (!empty && !t.data) Py_RETURN_NONE;
        form[length++] = place << 40 | static_cast<i64>(addresses[place] % kAlignment) << 32 | t.dimensions;
        form[length++] = static_cast<i64>(t.device_type) << 32 | static_cast<std::uint32_t>(t.device_id);
        form[length++] = t.code | t.bits << 8 | t.lanes << 16;
        for (int d = 0; d < t.dimensions; ++d) {
            form[length++] = t.shape[d];
            form[length++] = t.shape[d] > 1 && !empty ? t.strides[d] : 1;  // no step is taken along the others
        }
    }
    return Py_BuildValue("y#y#", form, length * sizeof(i64), addresses, count * sizeof(u64));
}

struct Field {
    u64 place;   // in memory: of a pointer, or of a tensor map
    u64 source;  // which of a call's addresses it is
    u64 beyond;  // bytes from there; not of an address 0, which is none
};

struct Launches {
    PyObject_HEAD vectorcallfunc call;
    int (*launch)(const void* config, void* function, void** arguments, void** extra);
    int (*move)(void* map, void* address);
    int (*current)(void** context);
    int (*enter)(void* context);
    void *context, **arguments;
    std::vector<Field>*maps, *pointers;
    std::vector<u64>* known;  // the addresses that the maps have
};

bool take(PyObject* given, std::vector<Field>& fields) {
    const Held items(PySequence_Fast(given, "fields: expected a sequence"));
    if (!items) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.object); ++i) {
        unsigned long long place, source, beyond;
        if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items.object, i), "KKK", &place, &source, &beyond)) return false;
        fields.push_back({place, source, beyond});
    }
    return true;
}

// launches(configured, addresses, *more): `configured` is bytes, of each launch the addresses of its function and of
// its config; `addresses` are those that `read` gives, `more` follow them. Returns the driver's answer, 0 for success;
// of tensor maps negative.
PyObject* call(PyObject* self, PyObject* const* given, std::size_t flags, PyObject*) {
    auto& l = *reinterpret_cast<Launches*>(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count < 2 || !PyBytes_Check(given[0]) || !PyBytes_Check(given[1])) {
        PyErr_SetString(PyExc_TypeError, "launches: expected bytes, bytes and addresses");
        return nullptr;
    }
    u64 at[2 * kMostTensors] = {};
    const std::size_t read = PyBytes_GET_SIZE(given[1]) / sizeof(u64);
    if (read + count - 2 > std::size(at)) {
        PyErr_SetString(PyExc_ValueError, "launches: more addresses than there can be");
        return nullptr;
    }
    std::memcpy(at, PyBytes_AS_STRING(given[1]), read * sizeof(u64));
    for (Py_ssize_t i = 2; i < count; ++i) at[read + i - 2] = PyLong_AsUnsignedLongLong(given[i]);
    if (PyErr_Occurred()) return nullptr;
    const auto address_of = [&](const Field& f) { return at[f.source] ? at[f.source] + f.beyond : 0; };
    u64 launches[16];
    const std::size_t words = PyBytes_GET_SIZE(given[0]) / sizeof(u64);
    if (words > std::size(launches)) {
        PyErr_SetString(PyExc_ValueError, "launches: more launches than there can be");
        return nullptr;
    }
    std::memcpy(launches, PyBytes_AS_STRING(given[0]), words * sizeof(u64));
    // Another GPU's context may be the thread's, or none, and stays that.
    void* before = nullptr;
    int answer = l.current(&before);
    const bool elsewhere = before != l.context;
    if (!answer && elsewhere) answer = l.enter(l.context);
    if (answer) return PyLong_FromLong(answer);
    // A launch waits where the GPU is far behind, and another thread may be what it waits for.
    Py_BEGIN_ALLOW_THREADS;
    {
        const std::lock_guard alone(fmha::launching);
        for (std::size_t i = 0; i < l.maps->size() && !answer; ++i) {
            const u64 address = address_of((*l.maps)[i]);
            if (!address || address == (*l.known)[i]) continue;
            answer = -l.move(reinterpret_cast<void*>((*l.maps)[i].place), reinterpret_cast<void*>(address));
            (*l.known)[i] = answer ? 0 : address;
        }
        for (const Field& f : *l.pointers) *reinterpret_cast<u64*>(f.place) = address_of(f);
        for (std::size_t i = 0; i + 1 < words && !answer; i += 2)
            answer = l.launch(reinterpret_cast<void*>(launches[i + 1]), reinterpret_cast<void*>(launches[i]),
                              l.arguments, nullptr);
    }
    Py_END_ALLOW_THREADS;
    if (elsewhere) l.enter(before);
    return PyLong_FromLong(answer);
}

// Launches(entries, context, arguments, maps, pointers): the addresses of cuLaunchKernelEx, cuTensorMapReplaceAddress,
// cuCtxGetCurrent and cuCtxSetCurrent; the context of the launches; the address of the array of one pointer to the
// parameters, and the fields within these.
PyObject* make(PyTypeObject* type, PyObject* given, PyObject*) {
    unsigned long long launch, move, current, enter, context, arguments;
    PyObject *maps, *pointers;
    if (!PyArg_ParseTuple(given, "(KKKK)KKOO", &launch, &move, &current, &enter, &context, &arguments, &maps,
                          &pointers))
        return nullptr;
    PyObject* const made = type->tp_alloc(type, 0);
    if (!made) return nullptr;
    auto& l = *reinterpret_cast<Launches*>(made);
    l.call = call;
    l.launch = reinterpret_cast<decltype(l.launch)>(launch);
    l.move = reinterpret_cast<decltype(l.move)>(move);
    l.current = reinterpret_cast<decltype(l.current)>(current);
    l.enter = reinterpret_cast<decltype(l.enter)>(enter);
    l.context = reinterpret_cast<void*>(context);
    l.arguments = reinterpret_cast<void**>(arguments);
    l.maps = new std::vector<Field>, l.pointers = new std::vector<Field>;
    l.known = new std::vector<u64>;
    bool right = take(maps, *l.maps) && take(pointers, *l.pointers);
    for (const auto* fields : {l.maps, l.pointers})
        for (const Field& f : *fields)
            if (right && f.source >= 2 * kMostTensors) {
                PyErr_SetString(PyExc_ValueError, "launches: a field of an address beyond those that there can be");
                right = false;
            }
    l.known->resize(l.maps->size());
    if (right) return made;
    Py_DECREF(made);
    return nullptr;
}

void end(PyObject* self) {
    auto& l = *reinterpret_cast<Launches*>(self);
    delete l.maps;
    delete l.pointers;
    delete l.known;
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject launches_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyMethodDef functions[] = {
    {"read", read, METH_O,
     "The form of a tuple of tensors and None, a key, and their addresses; None where it cannot be told."},
    {},
};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_calls", "The host's part of a call, compiled.", -1, functions};

}  // namespace

PyMODINIT_FUNC PyInit__calls() {
    launches_type.tp_name = "fmha.harness.worker.devices._calls.Launches";
    launches_type.tp_doc = "Kept launches over addresses that each call names.";
    launches_type.tp_basicsize = sizeof(Launches);
    launches_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
    launches_type.tp_vectorcall_offset = offsetof(Launches, call);
    launches_type.tp_call = PyVectorcall_Call;
    launches_type.tp_new = make;
    launches_type.tp_dealloc = end;
    if (PyType_Ready(&launches_type)) return nullptr;
    PyObject* const made = PyModule_Create(&module);
    if (made && !PyModule_AddObjectRef(made, "Launches", reinterpret_cast<PyObject*>(&launches_type)) &&
        fmha::planner::add_planner(made))
        return made;
    Py_XDECREF(made);
    return nullptr;
}
