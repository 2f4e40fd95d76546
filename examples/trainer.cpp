// Trains a small byte-level GPT on real text under four recipes (bf16, nvfp4, nvfp4_no_rht, mxfp4): same seed, same
// batches, MLP products through libnvfp4. Prints a table and writes a plot of the losses.
//
//   trainer [--text FILE] [--out DIR] [--minutes 3.4 | --steps N] [--recipes a,b] [--threads N] [--batch N]
//           [--checkpoint-every N] [--stop-after N] [--resume] [--gpu [--block]]
//
// With --minutes the number of steps is chosen from the measured speed, the same for every recipe. An interrupted run
// (--stop-after, or a killed process) goes on with --resume and gives the losses of an unbroken one. --gpu runs the MLP
// products on the first GPU, with --block in mode BLOCK, which gives the losses of the CPU to the last bit.
#include "trainer/model.hpp"
#include "trainer/plot.hpp"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <sys/stat.h>

using namespace trainer;
using Clock = std::chrono::steady_clock;

static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Config {
    std::string text = "examples/data/kjv-new-testament.txt", out = "out";
    std::vector<std::string> recipes = {"bf16", "nvfp4", "nvfp4_no_rht", "mxfp4"};
    double minutes = 3.4;
    int steps = 0, batch = 8, threads = 0, checkpoint_every = 100, stop_after = 0;
    std::uint64_t seed = 1;
    bool resume = false, gpu = false, block = false;
};

static Config parse(int argc, char** argv) {
    Config c;
    for (int i = 1; i < argc; ++i) {
        const std::string flag = argv[i];
        if (flag == "--resume") { c.resume = true; continue; }
        if (flag == "--gpu") { c.gpu = true; continue; }
        if (flag == "--block") { c.block = true; continue; }
        if (i + 1 == argc) throw std::runtime_error(flag + " needs a value (or is unknown)");
        const std::string value = argv[++i];
        if (flag == "--text") c.text = value;
        else if (flag == "--out") c.out = value;
        else if (flag == "--minutes") c.minutes = std::stod(value);
        else if (flag == "--steps") c.steps = std::stoi(value);
        else if (flag == "--batch") c.batch = std::stoi(value);
        else if (flag == "--threads") c.threads = std::stoi(value);
        else if (flag == "--seed") c.seed = std::stoull(value);
        else if (flag == "--checkpoint-every") c.checkpoint_every = std::stoi(value);
        else if (flag == "--stop-after") c.stop_after = std::stoi(value);
        else if (flag == "--recipes") {
            c.recipes.clear();
            std::stringstream list(value);
            for (std::string name; std::getline(list, name, ',');) c.recipes.push_back(name);
        } else throw std::runtime_error("unknown option " + flag);
    }
    if (c.batch < 1 || c.steps < 0 || c.minutes <= 0 || c.recipes.empty())
        throw std::runtime_error("batch, minutes and the number of recipes must be positive");
    return c;
}

// The text in blocks of 4 KiB, every twentieth held out.
struct Text {
    std::string bytes;
    std::vector<std::size_t> train, held_out;
    static constexpr std::size_t kBlock = 4096;
    explicit Text(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        if (!file) throw std::runtime_error("cannot read the text " + path);
        bytes.assign(std::istreambuf_iterator<char>(file), {});
        for (unsigned char c : bytes)
            if (c >= 128) throw std::runtime_error(path + " is not ASCII");
        for (std::size_t at = 0, i = 0; at + kBlock <= bytes.size(); at += kBlock, ++i)
            (i % 20 == 19 ? held_out : train).push_back(at);
        if (held_out.size() < 2) throw std::runtime_error(path + " is shorter than 160 KiB");
    }
    const std::uint8_t* at(std::size_t i) const { return reinterpret_cast<const std::uint8_t*>(bytes.data()) + i; }
    // Batch of a step: a pure function of seed and step, so that every recipe and every resumed run sees the same.
    std::vector<const std::uint8_t*> batch(std::uint64_t seed, int step, int n, int context) const {
        std::mt19937_64 random(seed * 1000003 + std::uint64_t(step));
        std::vector<const std::uint8_t*> out;
        for (int i = 0; i < n; ++i)
            out.push_back(at(train[random() % train.size()] + random() % (kBlock - context - 1)));
        return out;
    }
};

static double held_out_loss(Gpt& model, const Text& text, int batch, int context) {
    std::vector<const std::uint8_t*> rows;
    for (std::size_t at : text.held_out)
        for (std::size_t i = 0; i + context < Text::kBlock && rows.size() < 256; i += 4 * context)
            rows.push_back(text.at(at + i));
    double sum = 0;
    std::size_t n = rows.size() / batch * batch;
    if (n == 0) throw std::runtime_error("batch " + std::to_string(batch) + " is larger than the held-out set");
    for (std::size_t i = 0; i < n; i += batch) sum += model.loss(&rows[i], batch, false, 0);
    return sum / double(n / batch);
}

// Everything a run needs to go on. Random bits and batches are functions of (seed, step).
struct Checkpoint {
    static constexpr std::uint64_t kMagic = 0x314B43345046564E;  // "NVFP4CK1"
    static void save(const std::string& path, std::uint64_t seed, int batch, int step, int steps, const Gpt& model,
                     const AdamW& adam, const Curve& curve) {
        std::ofstream f(path + ".new", std::ios::binary);
        auto put = [&f](const void* p, std::size_t n) { f.write(static_cast<const char*>(p), std::streamsize(n)); };
        const std::uint64_t head[7] = {kMagic, seed, std::uint64_t(batch), std::uint64_t(step), std::uint64_t(steps),
                                       model.weights.size(), curve.points.size()};
        put(head, sizeof head);
        for (const auto* v : {&model.weights, &adam.m, &adam.v}) put(v->data(), v->size() * sizeof(float));
        put(curve.points.data(), curve.points.size() * sizeof curve.points[0]);
        f.close();
        if (!f || std::rename((path + ".new").c_str(), path.c_str()) != 0)
            throw std::runtime_error("cannot write the checkpoint " + path);
    }
    // Returns false when there is none; throws when it belongs to another run.
    static bool load(const std::string& path, std::uint64_t seed, int batch, int& step, int& steps, Gpt& model,
                     AdamW& adam, Curve& curve) {
        std::ifstream f(path, std::ios::binary);
        if (!f) return false;
        std::uint64_t head[7] = {};
        f.read(reinterpret_cast<char*>(head), sizeof head);
        if (!f || head[0] != kMagic || head[5] != model.weights.size())
            throw std::runtime_error(path + " is not a checkpoint of this model");
        if (head[1] != seed || head[2] != std::uint64_t(batch))
            throw std::runtime_error(path + " was made with seed " + std::to_string(head[1]) + " and batch " + std::to_string(head[2]));
        step = int(head[3]);
        steps = int(head[4]);
        for (auto* v : {&model.weights, &adam.m, &adam.v})
            f.read(reinterpret_cast<char*>(v->data()), std::streamsize(v->size() * sizeof(float)));
        curve.points.resize(head[6]);
        f.read(reinterpret_cast<char*>(curve.points.data()), std::streamsize(head[6] * sizeof curve.points[0]));
        if (!f) throw std::runtime_error(path + " is cut short");
        return true;
    }
};

struct Result {
    Curve curve;
    double train = 0, held_out = 0, tokens_per_second = 0;
    bool finished = false;
};

static constexpr float kPeakRate = 2e-3f;

static Result train(const Config& config, const Text& text, Pool& pool, Place& place,
                    const std::string& recipe, int steps, Clock::time_point start, double share_done, double share) {
    const Shape shape;
    Gpt model(shape, pool, place, recipe.c_str(), config.seed);
    AdamW adam(model.weights.size());
    Result result;
    result.curve.name = recipe;
    const std::string path = config.out + "/" + recipe + ".ckpt";
    int step = 0;
    if (config.resume && Checkpoint::load(path, config.seed, config.batch, step, steps, model, adam, result.curve))
        std::cout << recipe << ": resumed at step " << step << " of " << steps << "\n";
    const int first = step;
    const auto began = Clock::now();
    double window = 0;
    int in_window = 0;
    for (; step < steps; ++step) {
        const auto batch = text.batch(config.seed, step, config.batch, shape.context);
        const double loss = model.loss(batch.data(), config.batch, true, std::uint64_t(step) * 64);
        if (!std::isfinite(loss)) throw std::runtime_error(recipe + ": loss is not finite at step " + std::to_string(step));
        adam.step(pool, model.weights, model.gradients, step, steps, kPeakRate);
        result.curve.points.push_back({step, loss});
        window += loss;
        ++in_window;
        const int done = step + 1 - first;
        if ((step + 1) % 10 == 0 || step + 1 == steps) {
            const double per_step = seconds_since(began) / done, total = seconds_since(start);
            const double fraction = share_done + share * (step + 1) / steps;
            std::printf("\r%-13s step %4d/%d  loss %.4f  %6.0f tokens/s  left %3.0f s   ", recipe.c_str(), step + 1, steps,
                        window / in_window, config.batch * shape.context / per_step, total * (1 - fraction) / fraction);
            std::fflush(stdout);
            window = in_window = 0;
        }
        if (config.checkpoint_every && (step + 1) % config.checkpoint_every == 0 && step + 1 < steps)
            Checkpoint::save(path, config.seed, config.batch, step + 1, steps, model, adam, result.curve);
        if (config.stop_after && step + 1 >= config.stop_after) {
            Checkpoint::save(path, config.seed, config.batch, step + 1, steps, model, adam, result.curve);
            std::printf("\n%s: stopped after step %d; go on with --resume\n", recipe.c_str(), step + 1);
            return result;
        }
    }
    result.tokens_per_second = (steps - first) * config.batch * shape.context / std::max(1e-9, seconds_since(began));
    Checkpoint::save(path, config.seed, config.batch, step, steps, model, adam, result.curve);
    const auto& points = result.curve.points;
    const std::size_t tail = std::min<std::size_t>(points.size(), 50);
    for (std::size_t i = points.size() - tail; i < points.size(); ++i) result.train += points[i].second / double(tail);
    result.held_out = held_out_loss(model, text, config.batch, shape.context);
    result.finished = true;
    std::printf("\n");
    return result;
}

// Seconds a step of each recipe takes, from a few steps; these weights are thrown away.
static std::vector<double> measure(const Config& config, const Text& text, Pool& pool, Place& place) {
    std::vector<double> times;
    for (const auto& recipe : config.recipes) {
        const Shape shape;
        Gpt model(shape, pool, place, recipe.c_str(), config.seed);
        AdamW adam(model.weights.size());
        double best = 1e9;
        for (int i = 0; i < 4; ++i) {
            const auto start = Clock::now();
            const auto batch = text.batch(config.seed, i, config.batch, shape.context);
            model.loss(batch.data(), config.batch, true, 0);
            adam.step(pool, model.weights, model.gradients, i, 4, 0.0f);
            if (i) best = std::min(best, seconds_since(start));
        }
        times.push_back(best);
    }
    return times;
}

int main(int argc, char** argv) try {
    const Config config = parse(argc, argv);
    const Text text(config.text);
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    Pool pool(config.threads ? unsigned(config.threads) : cores);
    Place place{config.gpu ? nvfp4::Context::cuda() : nvfp4::Context::cpu(pool.threads()), nullptr, config.block};
    if (config.gpu) place.gpu = std::make_unique<Gpu>(0);
    mkdir(config.out.c_str(), 0777);
    const auto start = Clock::now();
    const std::vector<double> times = measure(config, text, pool, place);
    double all = 0;
    for (double t : times) all += t;
    const int steps = config.steps ? config.steps : std::max(20, int(config.minutes * 60 * 0.93 / all));
    std::printf("libnvfp4 %s, %u threads, %zu bytes of text, %d steps of %d tokens for each of %zu recipes\n",
                nvfp4_version_string(), pool.threads(), text.bytes.size(), steps, config.batch * Shape().context,
                config.recipes.size());
    std::vector<Result> results;
    double done = 0;
    for (std::size_t i = 0; i < config.recipes.size(); ++i) {
        results.push_back(train(config, text, pool, place, config.recipes[i], steps, start, done / all, times[i] / all));
        done += times[i];
    }
    std::vector<Curve> curves;
    std::printf("\n%-13s %10s %10s %22s %10s\n", "recipe", "train", "held-out", "gap to first (nats, %)", "tokens/s");
    for (const auto& r : results) {
        if (!r.finished) continue;
        const double gap = r.held_out - results[0].held_out;
        std::printf("%-13s %10.4f %10.4f %+12.4f %+8.2f%% %10.0f\n", r.curve.name.c_str(), r.train, r.held_out,
                    results[0].finished ? gap : NAN, results[0].finished ? 100 * gap / results[0].held_out : NAN, r.tokens_per_second);
        Curve smooth{r.curve.name, {}};  // means of 20 steps
        for (std::size_t at = 0; at + 20 <= r.curve.points.size(); at += 20) {
            double sum = 0;
            for (std::size_t k = at; k < at + 20; ++k) sum += r.curve.points[k].second;
            smooth.points.push_back({double(at + 10), sum / 20});
        }
        curves.push_back(smooth);
        std::ofstream csv(config.out + "/" + r.curve.name + ".csv");
        csv << "step,loss\n";
        csv.precision(17);
        for (const auto& p : r.curve.points) csv << p.first << "," << p.second << "\n";
    }
    if (!curves.empty()) {
        if (!plot(config.out + "/loss.png", curves)) throw std::runtime_error("cannot write " + config.out + "/loss.png");
        std::printf("\nloss curves: %s/loss.png   (%.0f s in all)\n", config.out.c_str(), seconds_since(start));
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << "trainer: " << error.what() << "\n";
    return 1;
}
