// Draws loss curves as a PNG: axes, a legend, one line a recipe. The file is a plain uncompressed PNG, so nothing but
// the standard library is needed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace trainer {

struct Curve {
    std::string name;
    std::vector<std::pair<double, double>> points;
};

class Image {
public:
    Image(int width, int height) : w_(width), h_(height), rgb_(std::size_t(width) * height * 3, 255) {}
    void set(int x, int y, std::uint32_t color) {
        if (x < 0 || y < 0 || x >= w_ || y >= h_) return;
        std::uint8_t* p = &rgb_[(std::size_t(y) * w_ + x) * 3];
        p[0] = std::uint8_t(color >> 16); p[1] = std::uint8_t(color >> 8); p[2] = std::uint8_t(color);
    }
    void line(double x0, double y0, double x1, double y1, std::uint32_t color, int thick = 1) {
        const int n = 1 + int(std::max(std::fabs(x1 - x0), std::fabs(y1 - y0)));
        for (int i = 0; i <= n; ++i) {
            const int x = int(x0 + (x1 - x0) * i / n), y = int(y0 + (y1 - y0) * i / n);
            for (int a = 0; a < thick; ++a) for (int b = 0; b < thick; ++b) set(x + a, y + b, color);
        }
    }
    // 5x7 letters, drawn twice their size.
    void text(int x, int y, const std::string& words, std::uint32_t color) {
        for (char c : words) {
            const char* rows = glyph(c);
            for (int r = 0; r < 7; ++r)
                for (int k = 0; k < 5; ++k)
                    if (rows[r] >> (4 - k) & 1)
                        for (int a = 0; a < 2; ++a) for (int b = 0; b < 2; ++b) set(x + 2 * k + a, y + 2 * r + b, color);
            x += 12;
        }
    }
    bool write(const std::string& path) const {
        std::FILE* f = std::fopen(path.c_str(), "wb");
        if (!f) return false;
        std::vector<std::uint8_t> raw;  // scan lines, each after a filter byte 0
        for (int y = 0; y < h_; ++y) {
            raw.push_back(0);
            raw.insert(raw.end(), rgb_.begin() + std::ptrdiff_t(y) * w_ * 3, rgb_.begin() + std::ptrdiff_t(y + 1) * w_ * 3);
        }
        std::vector<std::uint8_t> z = {0x78, 0x01};  // zlib stream of stored blocks
        std::uint32_t a = 1, b = 0;
        for (std::uint8_t v : raw) { a = (a + v) % 65521; b = (b + a) % 65521; }
        for (std::size_t at = 0; at < raw.size();) {
            const std::size_t n = std::min<std::size_t>(65535, raw.size() - at);
            z.push_back(at + n == raw.size());
            for (std::size_t v : {n, ~n}) { z.push_back(std::uint8_t(v)); z.push_back(std::uint8_t(v >> 8)); }
            z.insert(z.end(), raw.begin() + std::ptrdiff_t(at), raw.begin() + std::ptrdiff_t(at + n));
            at += n;
        }
        big_endian(z, b << 16 | a);
        std::fwrite("\x89PNG\r\n\x1a\n", 1, 8, f);
        std::vector<std::uint8_t> head;
        big_endian(head, std::uint32_t(w_));
        big_endian(head, std::uint32_t(h_));
        for (std::uint8_t v : {8, 2, 0, 0, 0}) head.push_back(v);
        chunk(f, "IHDR", head);
        chunk(f, "IDAT", z);
        chunk(f, "IEND", {});
        return std::fclose(f) == 0;
    }

private:
    static void big_endian(std::vector<std::uint8_t>& to, std::uint32_t v) {
        for (int s = 24; s >= 0; s -= 8) to.push_back(std::uint8_t(v >> s));
    }
    static void chunk(std::FILE* f, const char* type, const std::vector<std::uint8_t>& data) {
        std::vector<std::uint8_t> out;
        big_endian(out, std::uint32_t(data.size()));
        out.insert(out.end(), type, type + 4);
        out.insert(out.end(), data.begin(), data.end());
        std::uint32_t crc = ~0u;
        for (std::size_t i = 4; i < out.size(); ++i) {
            crc ^= out[i];
            for (int k = 0; k < 8; ++k) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        }
        big_endian(out, ~crc);
        std::fwrite(out.data(), 1, out.size(), f);
    }
    static const char* glyph(char c) {
        struct Letter { char c; char rows[8]; };
        static const Letter letters[] = {
            {'0', "\x0e\x11\x13\x15\x19\x11\x0e"}, {'1', "\x04\x0c\x04\x04\x04\x04\x0e"}, {'2', "\x0e\x11\x01\x02\x04\x08\x1f"},
            {'3', "\x1f\x02\x04\x02\x01\x11\x0e"}, {'4', "\x02\x06\x0a\x12\x1f\x02\x02"}, {'5', "\x1f\x10\x1e\x01\x01\x11\x0e"},
            {'6', "\x06\x08\x10\x1e\x11\x11\x0e"}, {'7', "\x1f\x01\x02\x04\x08\x08\x08"}, {'8', "\x0e\x11\x11\x0e\x11\x11\x0e"},
            {'9', "\x0e\x11\x11\x0f\x01\x02\x0c"}, {'a', "\0\0\x0e\x01\x0f\x11\x0f"}, {'b', "\x10\x10\x16\x19\x11\x11\x1e"},
            {'d', "\x01\x01\x0d\x13\x11\x11\x0f"}, {'e', "\0\0\x0e\x11\x1f\x10\x0e"}, {'f', "\x06\x09\x08\x1c\x08\x08\x08"},
            {'h', "\x10\x10\x16\x19\x11\x11\x11"}, {'l', "\x0c\x04\x04\x04\x04\x04\x0e"}, {'m', "\0\0\x1a\x15\x15\x11\x11"},
            {'n', "\0\0\x16\x19\x11\x11\x11"}, {'o', "\0\0\x0e\x11\x11\x11\x0e"}, {'p', "\0\0\x1e\x11\x1e\x10\x10"},
            {'r', "\0\0\x16\x19\x10\x10\x10"}, {'s', "\0\0\x0e\x10\x0e\x01\x1e"}, {'t', "\x08\x08\x1c\x08\x08\x09\x06"},
            {'v', "\0\0\x11\x11\x11\x0a\x04"}, {'x', "\0\0\x11\x0a\x04\x0a\x11"}, {'y', "\0\0\x11\x11\x0f\x01\x0e"},
            {'_', "\0\0\0\0\0\0\x1f"}, {'.', "\0\0\0\0\0\x0c\x0c"}, {'/', "\0\x01\x02\x04\x08\x10\0"},
            {'-', "\0\0\0\x1f\0\0\0"}};
        for (const auto& letter : letters) if (letter.c == c) return letter.rows;
        return "\0\0\0\0\0\0\0";
    }
    int w_, h_;
    std::vector<std::uint8_t> rgb_;
};

// Loss in nats a byte over training steps.
inline bool plot(const std::string& path, const std::vector<Curve>& curves) {
    const int width = 960, height = 600, left = 90, right = 30, top = 40, bottom = 60;
    double x1 = 1, lo = 1e9, hi = -1e9;
    for (const auto& c : curves)
        for (std::size_t i = 0; i < c.points.size(); ++i) {
            x1 = std::max(x1, c.points[i].first);
            lo = std::min(lo, c.points[i].second);
            hi = std::max(hi, c.points[i].second);
        }
    const double step = hi - lo > 1.2 ? 0.5 : 0.2;  // between grid lines
    lo = std::floor(lo / step) * step;
    hi = std::min(std::ceil(hi / step) * step, lo + 6 * step);
    Image image(width, height);
    auto px = [&](double x) { return left + x / x1 * (width - left - right); };
    auto py = [&](double y) { return top + (hi - std::min(y, hi)) / (hi - lo) * (height - top - bottom); };
    for (double y = lo; y <= hi + 1e-9; y += step) {
        image.line(left, py(y), width - right, py(y), 0xDDDDDD);
        char label[16];
        std::snprintf(label, sizeof label, "%.1f", y);
        image.text(left - 50, int(py(y)) - 7, label, 0x333333);
    }
    double stride = 10;
    for (int i = 0; x1 / stride > 6; ++i) stride *= i % 3 == 1 ? 2.5 : 2;  // 10, 20, 50, 100, ...
    for (double x = 0; x <= x1; x += stride)
        image.text(int(px(x)) - 6 * int(std::to_string(int(x)).size()), height - bottom + 12, std::to_string(int(x)), 0x333333);
    image.line(left, top, left, height - bottom, 0x333333);
    image.line(left, height - bottom, width - right, height - bottom, 0x333333);
    image.text(left, 12, "loss nats/byte", 0x333333);
    image.text(width / 2 - 30, height - 26, "step", 0x333333);
    const std::uint32_t colors[] = {0x222222, 0x1F77B4, 0xD62728, 0x2CA02C};
    for (std::size_t k = 0; k < curves.size(); ++k) {
        const auto& p = curves[k].points;
        for (std::size_t i = 1; i < p.size(); ++i)
            image.line(px(p[i - 1].first), py(p[i - 1].second), px(p[i].first), py(p[i].second), colors[k % 4], 2);
        const int y = top + 20 + int(k) * 24;
        image.line(width - 260, y + 7, width - 225, y + 7, colors[k % 4], 3);
        image.text(width - 215, y, curves[k].name, 0x333333);
    }
    return image.write(path);
}

}  // namespace trainer
