#include "memory/images.hpp"

namespace ptxm {

u64 Images::add(const Image& image) {
    next_ += kStep;
    images_.emplace(next_, image);
    return next_;
}

const Image* Images::find(u64 handle) const {
    const auto it = images_.find(handle);
    return it == images_.end() ? nullptr : &it->second;
}

bool Images::drop(u64 handle) { return images_.erase(handle) > 0; }

}  // namespace ptxm
