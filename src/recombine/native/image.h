// Images of one shape, (y, x, channel), with a border of zeros one pixel wide.
#pragma once

#include <cstring>

struct Shape {
    long height, width, channels;
    long pitch() const { return (width + 2) * channels; }   // floats of a row
    long image() const { return (height + 2) * pitch(); }
};

inline void clear_border(float* image, const Shape& s) {
    const auto clear = [](float* at, long count) { std::memset(at, 0, count * sizeof(float)); };
    clear(image, s.pitch());
    clear(image + (s.height + 1) * s.pitch(), s.pitch());
    for (long y = 1; y <= s.height; ++y) {
        clear(image + y * s.pitch(), s.channels);
        clear(image + y * s.pitch() + (s.width + 1) * s.channels, s.channels);
    }
}
