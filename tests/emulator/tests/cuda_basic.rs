//! CUDA kernels compiled by nvcc, run end to end through the driver API.

mod support;
use support::{compile, Arg::*, Gpu};

const BASIC: &str = r#"
#include <cstdint>
#include <cstdio>
__device__ float gtab[4] = {1, 2, 3, 4};
__constant__ int ctab[4] = {5, 6, 7, 8};
extern "C" __global__ void axpy(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void __launch_bounds__(256) block_sum(const int* x, int* out, int n) {
  __shared__ int s[256];
  int t = threadIdx.x, v = 0;
  for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) v += x[i];
  s[t] = v;
  __syncthreads();
  for (int k = 128; k; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
  if (t == 0) atomicAdd(out, s[0]);
}
extern "C" __global__ void warp_ops(const int* x, int* o) {
  int t = threadIdx.x, v = x[t];
  for (int m = 16; m; m >>= 1) v += __shfl_xor_sync(~0u, v, m);
  o[t] = v;
  o[32 + t] = __ballot_sync(~0u, x[t] & 1);
  o[64 + t] = __reduce_max_sync(~0u, x[t]);
  o[96 + t] = __shfl_up_sync(~0u, x[t], 3);
  o[128 + t] = __match_any_sync(~0u, x[t] % 5);
  if (t & 1) o[160 + t] = __popc(__activemask()); else o[160 + t] = -t;
  o[192 + t] = __any_sync(~0u, x[t] == 7) * 2 + __all_sync(~0u, x[t] >= 0);
}
__device__ __noinline__ float slow(float x, int n) { float s = 0; for (int i = 0; i < n; i++) s += sinf(x * i); return s; }
extern "C" __global__ void diverge(const int* x, float* o, int* last) {
  int i = threadIdx.x, n = x[i];
  float s = 0;
  for (int k = 0; k < n; k++) { if (k % 3 == i % 3) continue; s += k; if (s > 100) break; }
  switch (n % 7) { case 0: s += 1; break; case 1: s *= 2; break; case 2: s -= 5; break; case 3: s = -s; break; case 4: s += 0.5f; break; default: s = s * s; }
  o[i] = s + slow(0.5f, n & 3) + gtab[n & 3] + ctab[n & 3];
  float arr[8];
  for (int k = 0; k < 8; k++) arr[k] = k * n;
  o[i + 32] = arr[(n + i) & 7];
  if (i == 31) { *last = n; return; }
  __syncwarp(0x7fffffff);
  o[i + 64] = 1;
}
"#;

#[test]
fn elementwise_shared_and_atomics() {
    let Some(ptx) = compile("basic", BASIC, "90") else { return };
    let g = Gpu::new("sm_90");
    let m = g.module(&ptx);
    let n = 1000usize;
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let y: Vec<f32> = (0..n).map(|i| 1.0 - i as f32).collect();
    let (dx, dy) = (g.upload(&x), g.upload(&y));
    m.get("axpy").launch(8, 128, 0, &[Ptr(dx), Ptr(dy), F32(3.0), I32(n as i32)]);
    let got: Vec<f32> = g.download(dy, n);
    for i in 0..n {
        assert_eq!(got[i], 3f32.mul_add(x[i], y[i]), "element {i}");
    }
    let v: Vec<i32> = (0..5000).map(|i| i * 7 % 31 - 9).collect();
    let (dv, out) = (g.upload(&v), g.filled(4, 0));
    m.get("block_sum").launch(5, 256, 0, &[Ptr(dv), Ptr(out), I32(5000)]);
    assert_eq!(g.download::<i32>(out, 1)[0], v.iter().sum::<i32>());
}

#[test]
fn warp_operations() {
    let Some(ptx) = compile("basic", BASIC, "90") else { return };
    let g = Gpu::new("sm_90");
    let m = g.module(&ptx);
    let x: Vec<i32> = (0..32).map(|i| (i * 13 + 5) % 29).collect();
    let (dx, o) = (g.upload(&x), g.filled(224 * 4, 0xff));
    m.get("warp_ops").launch(1, 32, 0, &[Ptr(dx), Ptr(o)]);
    let r: Vec<i32> = g.download(o, 224);
    let sum: i32 = x.iter().sum();
    let ballot = (0..32).fold(0u32, |b, i| b | ((x[i] & 1) as u32) << i);
    for t in 0..32usize {
        assert_eq!(r[t], sum);
        assert_eq!(r[32 + t] as u32, ballot);
        assert_eq!(r[64 + t], *x.iter().max().unwrap());
        assert_eq!(r[96 + t], if t >= 3 { x[t - 3] } else { x[t] });
        let same = (0..32).fold(0u32, |b, i| b | ((x[i] % 5 == x[t] % 5) as u32) << i);
        assert_eq!(r[128 + t] as u32, same);
        assert_eq!(r[160 + t], if t & 1 == 1 { 16 } else { -(t as i32) });
        assert_eq!(r[192 + t], x.contains(&7) as i32 * 2 + 1);
    }
}

#[test]
fn divergence_calls_and_local_arrays() {
    let Some(ptx) = compile("basic", BASIC, "90") else { return };
    let g = Gpu::new("sm_90");
    let m = g.module(&ptx);
    let x: Vec<i32> = (0..32).map(|i| (i * 11) % 37).collect();
    let (dx, o, last) = (g.upload(&x), g.filled(96 * 4, 0), g.filled(4, 0));
    m.get("diverge").launch(1, 32, 0, &[Ptr(dx), Ptr(o), Ptr(last)]);
    let r: Vec<f32> = g.download(o, 96);
    for i in 0..32usize {
        let n = x[i];
        let mut s = 0f32;
        for k in 0..n {
            if k % 3 == i as i32 % 3 {
                continue;
            }
            s += k as f32;
            if s > 100.0 {
                break;
            }
        }
        s = match n % 7 {
            0 => s + 1.0,
            1 => s * 2.0,
            2 => s - 5.0,
            3 => -s,
            4 => s + 0.5,
            _ => s * s,
        };
        let slow: f32 = (0..n & 3).map(|k| (0.5 * k as f32).sin()).sum();
        let want = s + slow + (n & 3) as f32 + 1.0 + ((n & 3) + 5) as f32;
        assert!((r[i] - want).abs() <= 1e-5 * want.abs(), "lane {i}: {} against {want}", r[i]);
        assert_eq!(r[32 + i], (((n + i as i32) & 7) * n) as f32);
        assert_eq!(r[64 + i], if i == 31 { 0.0 } else { 1.0 });
    }
    assert_eq!(g.download::<i32>(last, 1)[0], x[31]);
}
