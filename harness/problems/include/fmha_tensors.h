// What a torch extension's host code is compiled against: tensors that have a shape, a type and an address, and no
// memory. What it allocates, fills and launches is written down, in order, for fmha.harness.problems.extension.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace fmha {

// An address names its buffer: kAddress in the high bits, then the buffer's number, then the offset.
constexpr std::uint64_t kAddress = 0x4d00000000000000, kOffsetBits = 40;

inline std::ostringstream& events() {
    static std::ostringstream written;
    return written;
}

inline std::uint64_t& next_buffer() {
    static std::uint64_t number = 1;
    return number;
}

inline std::uint64_t allocated(std::int64_t bytes) {
    const std::uint64_t address = kAddress | next_buffer()++ << kOffsetBits;
    events() << "alloc " << address << ' ' << bytes << '\n';
    return address;
}

// A stream's or an event's handle as it is written down; 0 is the stream that torch launches on, the default one.
inline std::uint64_t number(const void* handle) {
    const auto value = reinterpret_cast<std::uint64_t>(handle);
    return value == reinterpret_cast<std::uint64_t>(cudaStreamLegacy) ? 0 : value;
}

inline void fill(std::uint64_t address, int size, std::uint64_t pattern, std::int64_t count,
                 cudaStream_t stream = nullptr) {
    events() << "fill " << address << ' ' << size << ' ' << pattern << ' ' << count << ' ' << number(stream) << '\n';
}

inline void copy(std::uint64_t to, std::uint64_t from, std::int64_t bytes, cudaStream_t stream = nullptr) {
    events() << "copy " << to << ' ' << from << ' ' << bytes << ' ' << number(stream) << '\n';
}

[[noreturn]] inline void refuse(const std::string& what) { throw std::runtime_error(what); }

template <class... Words>
std::string words(const Words&... said) {
    std::ostringstream made;
    (made << ... << said);
    return made.str();
}

}  // namespace fmha

namespace c10 {

using Half = __half;
using BFloat16 = __nv_bfloat16;

enum class ScalarType : int { Byte, Char, Short, Int, Long, Half, Float, Double, Bool = 11, BFloat16 = 15 };
enum class DeviceType : int { CPU, CUDA };
enum class MemoryFormat : int { Contiguous, Preserve };

inline std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << "type " << static_cast<int>(type); }

inline int elementSize(ScalarType type) {
    switch (type) {
        case ScalarType::Short:
        case ScalarType::Half:
        case ScalarType::BFloat16: return 2;
        case ScalarType::Int:
        case ScalarType::Float: return 4;
        case ScalarType::Long:
        case ScalarType::Double: return 8;
        default: return 1;
    }
}

template <class T>
struct TypeOf;
#define FMHA_TYPE(ctype, name)                                \
    template <>                                               \
    struct TypeOf<ctype> {                                    \
        static constexpr ScalarType value = ScalarType::name; \
    };
FMHA_TYPE(std::uint8_t, Byte)
FMHA_TYPE(std::int8_t, Char)
FMHA_TYPE(std::int16_t, Short)
FMHA_TYPE(int, Int)
FMHA_TYPE(std::int64_t, Long)
FMHA_TYPE(long long, Long)
FMHA_TYPE(Half, Half)
FMHA_TYPE(float, Float)
FMHA_TYPE(double, Double)
FMHA_TYPE(bool, Bool)
FMHA_TYPE(BFloat16, BFloat16)
#undef FMHA_TYPE
template <class T>
struct TypeOf<const T> : TypeOf<T> {};

struct Device {
    DeviceType kind = DeviceType::CUDA;
    Device(DeviceType type = DeviceType::CUDA, int = 0) : kind(type) {}
    DeviceType type() const { return kind; }
    int index() const { return 0; }
    bool is_cuda() const { return kind == DeviceType::CUDA; }
    bool is_cpu() const { return kind == DeviceType::CPU; }
    bool operator==(const Device& other) const { return kind == other.kind; }
    bool operator!=(const Device& other) const { return kind != other.kind; }
};

class IntArrayRef {
public:
    IntArrayRef() : data_(nullptr), size_(0) {}  // nvcc's front end takes {} for {0} where there is none
    IntArrayRef(const std::int64_t* data, std::size_t size) : data_(data), size_(size) {}
    IntArrayRef(const std::vector<std::int64_t>& from) : data_(from.data()), size_(from.size()) {}
    IntArrayRef(const std::initializer_list<std::int64_t>& from) : data_(from.begin()), size_(from.size()) {}
    std::size_t size() const { return size_; }
    bool empty() const { return !size_; }
    std::int64_t operator[](std::size_t at) const { return data_[at]; }
    std::int64_t back() const { return data_[size_ - 1]; }
    const std::int64_t* data() const { return data_; }
    const std::int64_t* begin() const { return data_; }
    const std::int64_t* end() const { return data_ + size_; }
    std::vector<std::int64_t> vec() const { return {begin(), end()}; }
    IntArrayRef slice(std::size_t from, std::size_t count) const { return {data_ + from, count}; }
    IntArrayRef slice(std::size_t from) const { return slice(from, size_ - from); }
    bool operator==(const IntArrayRef& other) const { return vec() == other.vec(); }
    bool operator!=(const IntArrayRef& other) const { return !(*this == other); }

private:
    const std::int64_t* data_;
    std::size_t size_;
};

struct TensorOptions {
    ScalarType type = ScalarType::Float;
    TensorOptions() = default;
    TensorOptions(ScalarType given) : type(given) {}
    TensorOptions dtype(ScalarType given) const { return TensorOptions(given); }
    template <class Device>
    TensorOptions device(Device, int = 0) const {
        return *this;
    }
    TensorOptions requires_grad(bool = true) const { return *this; }
    TensorOptions layout(int) const { return *this; }
};

using Scalar = double;

}  // namespace c10

namespace at {

using namespace c10;

// The bytes of a number of that type.
inline std::uint64_t pattern_of(double value, ScalarType type) {
    std::uint64_t bits = 0;
    const auto put = [&](auto made) { std::memcpy(&bits, &made, sizeof made); };
    switch (type) {
        case ScalarType::Double: put(value); break;
        case ScalarType::Float: put(static_cast<float>(value)); break;
        case ScalarType::Half: put(__float2half(static_cast<float>(value))); break;
        case ScalarType::BFloat16: put(__float2bfloat16(static_cast<float>(value))); break;
        case ScalarType::Long: put(static_cast<std::int64_t>(value)); break;
        case ScalarType::Int: put(static_cast<std::int32_t>(value)); break;
        case ScalarType::Short: put(static_cast<std::int16_t>(value)); break;
        case ScalarType::Bool: put(static_cast<std::uint8_t>(value != 0)); break;
        default: put(static_cast<std::uint8_t>(value));
    }
    return bits;
}

class Tensor {
public:
    Tensor() = default;
    Tensor(std::uint64_t address, ScalarType type, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides)
        : address_(address), type_(type), sizes_(std::move(sizes)), strides_(std::move(strides)) {}

    static Tensor made(IntArrayRef sizes, ScalarType type) {
        Tensor tensor(0, type, sizes.vec(), dense(sizes.vec()));
        tensor.address_ = fmha::allocated(tensor.numel() * elementSize(type));
        return tensor;
    }

    bool defined() const { return address_ != 0; }
    std::int64_t dim() const { return static_cast<std::int64_t>(sizes_.size()); }
    std::int64_t ndimension() const { return dim(); }
    std::int64_t size(std::int64_t at) const { return sizes_.at(index(at)); }
    std::int64_t stride(std::int64_t at) const { return strides_.at(index(at)); }
    IntArrayRef sizes() const { return sizes_; }
    IntArrayRef strides() const { return strides_; }
    std::int64_t numel() const {
        std::int64_t count = 1;
        for (const auto size : sizes_) count *= size;
        return count;
    }
    std::int64_t element_size() const { return elementSize(type_); }
    std::int64_t itemsize() const { return elementSize(type_); }
    std::int64_t nbytes() const { return numel() * element_size(); }
    ScalarType scalar_type() const { return type_; }
    ScalarType dtype() const { return type_; }
    ScalarType type() const { return type_; }
    TensorOptions options() const { return TensorOptions(type_); }
    Device device() const { return {}; }
    int get_device() const { return 0; }
    bool is_cuda() const { return true; }
    bool is_cpu() const { return false; }
    bool is_floating_point() const { return !(type_ <= ScalarType::Long || type_ == ScalarType::Bool); }
    bool is_contiguous(MemoryFormat = MemoryFormat::Contiguous) const { return strides_ == dense(sizes_); }

    void* data_ptr() const { return reinterpret_cast<void*>(address_); }
    const void* const_data_ptr() const { return data_ptr(); }
    void* mutable_data_ptr() const { return data_ptr(); }
    template <class T>
    T* data_ptr() const {
        if (TypeOf<T>::value != type_)
            fmha::refuse(fmha::words("data_ptr: the tensor is of ", type_, ", not of ", TypeOf<T>::value));
        return static_cast<T*>(data_ptr());
    }
    template <class T>
    T* data() const {
        return data_ptr<T>();
    }
    template <class T>
    const T* const_data_ptr() const {
        return data_ptr<T>();
    }
    template <class T>
    T* mutable_data_ptr() const {
        return data_ptr<T>();
    }

    Tensor contiguous(MemoryFormat = MemoryFormat::Contiguous) const {
        if (is_contiguous()) return *this;
        fmha::refuse("contiguous() of a tensor that is not: torch would copy it, and only what is launched is judged");
    }
    Tensor to(ScalarType type) const {
        if (type == type_) return *this;
        fmha::refuse("to() another type: torch would compute it, and only what is launched is judged");
    }
    Tensor cuda() const { return *this; }
    Tensor detach() const { return *this; }
    Tensor clone() const {
        Tensor made = Tensor::made(sizes_, type_);
        fmha::copy(made.address_, contiguous().address_, nbytes());
        return made;
    }
    Tensor& zero_() { return fill_(0); }
    Tensor& fill_(double value) {
        fmha::fill(contiguous().address_, elementSize(type_), pattern_of(value, type_), numel());
        return *this;
    }
    Tensor view(IntArrayRef wanted) const {
        std::vector<std::int64_t> sizes = wanted.vec();
        std::int64_t known = 1, *free = nullptr;
        for (auto& size : sizes) (size < 0 ? (void)(free = &size) : (void)(known *= size));
        if (free) *free = known ? numel() / known : 0;
        const Tensor from = contiguous();
        Tensor made(from.address_, type_, sizes, dense(sizes));
        if (made.numel() != numel()) fmha::refuse("view: the shape has another number of elements");
        return made;
    }
    Tensor reshape(IntArrayRef wanted) const { return view(wanted); }
    Tensor flatten() const { return view({-1}); }
    Tensor unsqueeze(std::int64_t at) const {
        Tensor made = *this;
        const auto where = at < 0 ? at + dim() + 1 : at;
        made.sizes_.insert(made.sizes_.begin() + where, 1);
        made.strides_ = dense(made.sizes_);
        return is_contiguous() ? made : contiguous();
    }
    Tensor transpose(std::int64_t one, std::int64_t other) const {
        Tensor made = *this;
        std::swap(made.sizes_.at(index(one)), made.sizes_.at(index(other)));
        std::swap(made.strides_.at(index(one)), made.strides_.at(index(other)));
        return made;
    }
    Tensor t() const { return dim() < 2 ? *this : transpose(0, 1); }

private:
    static std::vector<std::int64_t> dense(const std::vector<std::int64_t>& sizes) {
        std::vector<std::int64_t> strides(sizes.size(), 1);
        for (std::size_t at = sizes.size(); at-- > 1;)
            strides[at - 1] = strides[at] * std::max<std::int64_t>(1, sizes[at]);
        return strides;
    }
    std::size_t index(std::int64_t at) const { return static_cast<std::size_t>(at < 0 ? at + dim() : at); }

    std::uint64_t address_ = 0;
    ScalarType type_ = ScalarType::Float;
    std::vector<std::int64_t> sizes_, strides_;
};

inline Tensor empty(IntArrayRef sizes, TensorOptions options = {}) { return Tensor::made(sizes, options.type); }
inline Tensor full(IntArrayRef sizes, double value, TensorOptions options = {}) {
    return empty(sizes, options).fill_(value);
}
inline Tensor zeros(IntArrayRef sizes, TensorOptions options = {}) { return full(sizes, 0, options); }
inline Tensor ones(IntArrayRef sizes, TensorOptions options = {}) { return full(sizes, 1, options); }
inline Tensor empty_like(const Tensor& like, TensorOptions options) { return empty(like.sizes(), options); }
inline Tensor empty_like(const Tensor& like) { return empty(like.sizes(), like.options()); }
inline Tensor zeros_like(const Tensor& like, TensorOptions options) { return zeros(like.sizes(), options); }
inline Tensor zeros_like(const Tensor& like) { return zeros(like.sizes(), like.options()); }
inline Tensor ones_like(const Tensor& like) { return ones(like.sizes(), like.options()); }
inline Tensor full_like(const Tensor& like, double value) { return full(like.sizes(), value, like.options()); }
inline Device device_of(const Tensor& tensor) { return tensor.device(); }

namespace cuda {
struct CUDAStream {
    cudaStream_t stream() const { return nullptr; }
    operator cudaStream_t() const { return nullptr; }
};
inline CUDAStream getCurrentCUDAStream(int = 0) { return {}; }
inline CUDAStream getDefaultCUDAStream(int = 0) { return {}; }
struct CUDAGuard {
    template <class Given>
    explicit CUDAGuard(Given&&) {}
};
using OptionalCUDAGuard = CUDAGuard;
}  // namespace cuda

template <class T>
using optional = std::optional<T>;
using std::nullopt;
}  // namespace at

namespace c10::cuda {
using at::cuda::CUDAGuard;
using at::cuda::CUDAStream;
using at::cuda::getCurrentCUDAStream;
using at::cuda::getDefaultCUDAStream;
using OptionalCUDAGuard = CUDAGuard;
}  // namespace c10::cuda

namespace torch {
using namespace at;
constexpr auto kFloat32 = ScalarType::Float, kFloat = kFloat32, kFloat64 = ScalarType::Double, kDouble = kFloat64;
constexpr auto kFloat16 = ScalarType::Half, kHalf = kFloat16, kBFloat16 = ScalarType::BFloat16;
constexpr auto kInt64 = ScalarType::Long, kLong = kInt64, kInt32 = ScalarType::Int, kInt = kInt32;
constexpr auto kInt16 = ScalarType::Short, kInt8 = ScalarType::Char, kUInt8 = ScalarType::Byte,
               kBool = ScalarType::Bool;
constexpr auto kCUDA = DeviceType::CUDA, kCPU = DeviceType::CPU;
inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions device(Device) { return {}; }
}  // namespace torch
namespace at {
using torch::kBFloat16, torch::kBool, torch::kCPU, torch::kCUDA, torch::kDouble, torch::kFloat, torch::kHalf;
using torch::kInt, torch::kLong;
}  // namespace at

#define TORCH_CHECK(condition, ...) \
    if (!(condition)) ::fmha::refuse(::fmha::words("TORCH_CHECK(" #condition ") ", ##__VA_ARGS__))
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define AT_ASSERTM TORCH_CHECK
#define AT_ASSERT TORCH_CHECK
#define AT_ERROR(...) ::fmha::refuse(::fmha::words(__VA_ARGS__))
#define C10_CUDA_CHECK(call) static_cast<void>(call)
#define AT_CUDA_CHECK C10_CUDA_CHECK
#define C10_CUDA_KERNEL_LAUNCH_CHECK() static_cast<void>(0)
#define FMHA_CASE(ctype, name, ...) \
    case ::c10::ScalarType::name: { \
        using scalar_t = ctype;     \
        (__VA_ARGS__)();            \
        break;                      \
    }
#define FMHA_DISPATCH(type, label, cases) \
    switch (type) { cases default : ::fmha::refuse(std::string(label) + ": not for type"); }
#define FMHA_FLOATS(...) FMHA_CASE(float, Float, __VA_ARGS__) FMHA_CASE(double, Double, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(type, label, ...) FMHA_DISPATCH(type, label, FMHA_FLOATS(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(type, label, ...) \
    FMHA_DISPATCH(type, label, FMHA_FLOATS(__VA_ARGS__) FMHA_CASE(::c10::Half, Half, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(one, other, type, label, ...)                \
    FMHA_DISPATCH(type, label,                                                       \
                  FMHA_FLOATS(__VA_ARGS__) FMHA_CASE(::c10::Half, Half, __VA_ARGS__) \
                      FMHA_CASE(::c10::BFloat16, BFloat16, __VA_ARGS__))
