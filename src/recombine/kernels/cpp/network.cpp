// The whole decoder: a matrix from the code to `first` × `first` pixels, transposed convolutions, and a convolution to
// one channel. Threads run chunks of images through the whole network; sums over images are stored per chunk and
// added in order, so that results do not depend on the number of threads.
//
// Parameters and their gradients are stored in one vector, in torch's order:
// (code, channel, y, x), bias; (in, out, y, x), bias of each layer; (channel, y, x), bias of the last.
#include <algorithm>
#include <vector>

#include "layers.h"
#include "vector.h"

namespace {

struct Network {
    long code, first, channels;
    std::vector<Layer> layers;

    // Code length, first size, channels, depth, and for each block whether it doubles the size.
    explicit Network(const long* numbers) : code(numbers[0]), first(numbers[1]), channels(numbers[2]) {
        for (long at = 0; at < numbers[3]; ++at) layers.push_back({last().height, channels, numbers[4 + at] != 0});
    }

    Shape start() const { return {first, first, channels}; }
    Shape last() const { return layers.empty() ? start() : layers.back().to(); }
    long pixels() const { return first * first; }
    long first_size() const { return code * channels * pixels(); }

    // Sum of a size over all layers before a given one.
    template <class Size>
    long before(std::size_t layer, Size&& size) const {
        long at = 0;
        for (std::size_t i = 0; i < layer; ++i) at += size(layers[i]);
        return at;
    }

    // Offsets of a layer in the parameter vector …
    long weight(std::size_t layer) const {
        const auto size = [&](const Layer& own) { return own.kernel() * own.matrix() + channels; };
        return first_size() + channels + before(layer, size);
    }
    long bias(std::size_t layer) const { return weight(layer) + layers[layer].kernel() * layers[layer].matrix(); }
    long parameters() const { return weight(layers.size()) + 9 * channels + 1; }

    // … in the prepared weights (the first matrix, forward and backward weights of each layer, the last taps) …
    long prepared(std::size_t layer) const {
        return first_size() + before(layer, [](const Layer& own) { return 2 * own.taps() * own.matrix(); });
    }
    long prepared() const { return prepared(layers.size()) + 9 * channels; }

    // … in the stages of a batch of images (the layer's input) …
    long stage(std::size_t layer, long images) const {
        return images * before(layer, [](const Layer& own) { return own.from().image(); });
    }
    long stages(long images) const { return stage(layers.size(), images) + last().image() * images; }

    // … and in a chunk's sums: inputs of each layer (and of the last one) by channel, weights, and the last taps.
    long sums(std::size_t layer) const {
        const auto size = [](const Layer& own) { return own.taps() * own.matrix(); };
        return (layers.size() + 1) * channels + before(layer, size);
    }
    long sums() const { return sums(layers.size()) + 9 * channels; }
};

// (row, column, tap) to (tap, row, column), or to (tap, column, row)
void lay_out(const float* from, float* to, long rows, long columns, long taps, bool turned) {
    for (long tap = 0; tap < taps; ++tap)
        for (long row = 0; row < rows; ++row)
            for (long column = 0; column < columns; ++column)
                to[tap * rows * columns + (turned ? column * rows + row : row * columns + column)] =
                    from[(row * columns + column) * taps + tap];
}

// (tap, number) to (number, tap)
void collect(const float* from, float* to, long taps, long count) {
    for (long at = 0; at < count; ++at)
        for (long tap = 0; tap < taps; ++tap) to[at * taps + tap] = from[tap * count + at];
}

}  // namespace

extern "C" {

// Sizes, in floats, of parameters, prepared weights, all stages of a batch and a chunk's sums; and rows of an image.
void recombine_sizes(const long* numbers, long batch, long* sizes) {
    const Network net(numbers);
    sizes[0] = net.parameters();
    sizes[1] = net.prepared();
    sizes[2] = net.stages(batch);
    sizes[3] = net.sums();
    sizes[4] = net.last().height;
}

// Rearrange weights into the layout that the kernels read.
void recombine_prepare(const long* numbers, const float* vector, float* prepared) {
    const Network net(numbers);
    lay_out(vector, prepared, net.code, net.channels, net.pixels(), false);  // to (pixel, code, channel)
    thread_local std::vector<float> taps;
    for (std::size_t i = 0; i < net.layers.size(); ++i) {
        const Layer& layer = net.layers[i];
        const long count = layer.kernel(), size = layer.taps() * layer.matrix();
        for (const bool back : {false, true}) {
            float* target = prepared + net.prepared(i) + (back ? size : 0);
            if (layer.winograd()) taps.resize(count * layer.matrix());
            lay_out(vector + net.weight(i), layer.winograd() ? taps.data() : target, layer.channels, layer.channels,
                    count, back);
            if (layer.winograd()) winograd_kernel(taps.data(), target, layer.matrix(), !back);
        }
    }
    const std::size_t last = net.layers.size();
    collect(vector + net.weight(last), prepared + net.prepared(last), net.channels, 9);
}

// Compute all stages and outputs of images begin … end - 1, regardless of the chunk index.
void recombine_forward(const long* numbers, const float* vector, const float* prepared, const float* codes,
                       float* stages, float* output, long batch, long begin, long end, long) {
    const Network net(numbers);
    const long images = end - begin;
    const Shape start = net.start();
    float* image = stages + begin * start.image();
    for (long at = 0; at < images; ++at) clear_border(image + at * start.image(), start);
    for (long pixel = 0; pixel < net.pixels(); ++pixel) {
        const long at = (pixel / net.first + 1) * start.pitch() + (pixel % net.first + 1) * net.channels;
        project(codes + begin * net.code, prepared + pixel * net.code * net.channels, vector + net.first_size(),
                image + at, net.code, net.channels, start.image(), images);
    }
    for (std::size_t i = 0; i < net.layers.size(); ++i) {
        const Layer& layer = net.layers[i];
        const float* from = stages + net.stage(i, batch) + begin * layer.from().image();
        float* to = stages + net.stage(i + 1, batch) + begin * layer.to().image();
        (layer.winograd() ? winograd_convolve : convolve)(layer, from, prepared + net.prepared(i), vector + net.bias(i),
                                                          to, images);
    }
    const std::size_t last = net.layers.size();
    const Shape shape = net.last();
    readout(shape, stages + net.stage(last, batch) + begin * shape.image(), prepared + net.prepared(last),
            vector[net.parameters() - 1], output + begin * shape.height * shape.width, images);
}

// Compute the sums of a chunk (images begin … end - 1); `below` is the gradient before the first ReLU.
void recombine_backward(const long* numbers, const float* prepared, const float* stages, const float* gradient,
                        float* below, float* sums, long batch, long begin, long end, long chunk) {
    const Network net(numbers);
    sums += chunk * net.sums();
    const long images = end - begin, channels = net.channels;
    thread_local std::vector<float> one, other;
    one.resize(net.last().image() * images);  // no layer has smaller outputs than inputs
    other.resize(net.last().image() * images);
    std::memset(sums, 0, net.sums() * sizeof(float));
    const std::size_t last = net.layers.size();
    const Shape shape = net.last();
    float* z = last ? one.data() : below + begin * shape.image();
    readout_gradients(shape, stages + net.stage(last, batch) + begin * shape.image(), prepared + net.prepared(last),
                      gradient + begin * shape.height * shape.width, z, sums + net.sums(last), sums + last * channels,
                      images);
    for (std::size_t i = last; i-- > 0;) {
        const Layer& layer = net.layers[i];
        const float* from = stages + net.stage(i, batch) + begin * layer.from().image();
        const float* back = prepared + net.prepared(i) + layer.taps() * layer.matrix();
        float* x = i ? (z == one.data() ? other.data() : one.data()) : below + begin * layer.from().image();
        (layer.winograd() ? winograd_weight_gradient : weight_gradient)(layer, from, z, sums + net.sums(i), images);
        (layer.winograd() ? winograd_input_gradient : input_gradient)(layer, z, back, from, x, sums + i * channels,
                                                                      images);
        z = x;
    }
}

// Add up the chunks' sums, in order, into the gradient vector. The first chunk's sums are overwritten.
void recombine_finish(const long* numbers, const float* codes, const float* below, const float* gradient, float* sums,
                      long chunks, float* vector, long batch) {
    const Network net(numbers);
    const long size = net.sums(), code = net.code, first = net.first, channels = net.channels;
    for (long chunk = 1; chunk < chunks; ++chunk)
        for (long at = 0; at < size; ++at) sums[at] += sums[chunk * size + at];
    thread_local std::vector<float> turned;
    turned.resize(std::max(channels * net.pixels(), 9 * channels * channels));
    const Shape start = net.start();
    for (long row = 0; row < code; ++row) {
        std::memset(turned.data(), 0, channels * net.pixels() * sizeof(float));
        for (long image = 0; image < batch; ++image) {
            const float one = codes[image * code + row];
            for (long y = 0; y < first; ++y) {
                const float* from = below + image * start.image() + (y + 1) * start.pitch() + channels;
                float* to = turned.data() + y * first * channels;
                for (long at = 0; at < first * channels; at += LANES)
                    store(to + at, load(to + at) + one * load(from + at));
            }
        }
        collect(turned.data(), vector + row * channels * net.pixels(), net.pixels(), channels);
    }
    std::memcpy(vector + net.first_size(), sums, channels * sizeof(float));
    for (std::size_t i = 0; i < net.layers.size(); ++i) {
        const Layer& layer = net.layers[i];
        const float* taps = sums + net.sums(i);
        if (layer.winograd()) {
            winograd_kernel_gradient(taps, turned.data(), layer.matrix());
            taps = turned.data();
        }
        collect(taps, vector + net.weight(i), layer.kernel(), layer.matrix());
        std::memcpy(vector + net.bias(i), sums + (i + 1) * channels, channels * sizeof(float));
    }
    const std::size_t last = net.layers.size();
    collect(sums + net.sums(last), vector + net.weight(last), 9, channels);
    double total = 0;
    for (long at = 0; at < batch * net.last().height * net.last().width; ++at) total += gradient[at];
    vector[net.parameters() - 1] = static_cast<float>(total);
}
}
