// Memory of a CUDA GPU through the driver, found at run time: the program itself links to no CUDA library.
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace trainer {

class Gpu {
public:
    explicit Gpu(int ordinal) {
        void* driver = dlopen("libcuda.so.1", RTLD_NOW);
        if (!driver) throw std::runtime_error("--gpu: libcuda.so.1 was not found; this machine has no CUDA driver");
        find(driver, "cuMemAlloc_v2", alloc_);
        find(driver, "cuMemFree_v2", free_);
        find(driver, "cuMemcpyHtoD_v2", to_);
        find(driver, "cuMemcpyDtoH_v2", from_);
        int (*init)(unsigned), (*device)(int*, int), (*retain)(void**, int), (*current)(void*);
        find(driver, "cuInit", init);
        find(driver, "cuDeviceGet", device);
        find(driver, "cuDevicePrimaryCtxRetain", retain);
        find(driver, "cuCtxSetCurrent", current);
        int handle = 0;
        void* context = nullptr;
        check(init(0), "cuInit");
        check(device(&handle, ordinal), "cuDeviceGet");
        check(retain(&context, handle), "cuDevicePrimaryCtxRetain");
        check(current(context), "cuCtxSetCurrent");
    }

    // Floats on the GPU.
    class Array {
    public:
        Array() = default;
        Array(const Array&) = delete;
        Array& operator=(const Array&) = delete;
        Array(Array&& other) noexcept : gpu_(other.gpu_), at_(other.at_), count_(other.count_) {
            other.gpu_ = nullptr;
        }
        ~Array() {
            if (gpu_ && at_) gpu_->free_(at_);
        }
        // At least `count` floats; what was there is lost where it grows.
        float* room(const Gpu& gpu, std::size_t count) {
            if (count > count_) {
                if (at_) gpu.free_(at_);
                at_ = 0;
                gpu_ = &gpu;
                check(gpu.alloc_(&at_, count * sizeof(float)), "cuMemAlloc");
                count_ = count;
            }
            return reinterpret_cast<float*>(at_);
        }
        float* put(const Gpu& gpu, const float* from, std::size_t count) {
            float* to = room(gpu, count);
            check(gpu.to_(at_, from, count * sizeof(float)), "cuMemcpyHtoD");
            return to;
        }
        // Waits for what the default stream has been given.
        void get(const Gpu& gpu, float* to, std::size_t count) const {
            check(gpu.from_(to, at_, count * sizeof(float)), "cuMemcpyDtoH");
        }

    private:
        const Gpu* gpu_ = nullptr;
        unsigned long long at_ = 0;
        std::size_t count_ = 0;
    };

private:
    template <class F>
    static void find(void* driver, const char* name, F& function) {
        function = reinterpret_cast<F>(dlsym(driver, name));
        if (!function) throw std::runtime_error(std::string("--gpu: libcuda.so.1 has no ") + name);
    }
    static void check(int status, const char* what) {
        if (status) throw std::runtime_error(std::string("--gpu: ") + what + " failed with " + std::to_string(status));
    }
    int (*alloc_)(unsigned long long*, std::size_t);
    int (*free_)(unsigned long long);
    int (*to_)(unsigned long long, const void*, std::size_t);
    int (*from_)(void*, unsigned long long, std::size_t);
};

}  // namespace trainer
