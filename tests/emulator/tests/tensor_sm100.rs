//! NVFP4 kernels for sm_100 (tcgen05), compiled by nvcc and run end to end: every result
//! equals the chained hardware steps, bit for bit.

mod support;
mod tensor;
use support::Arg::*;
use tensor::*;

#[test]
fn one_cta_gemm_over_a_ring_of_stages() {
    let Some(ptx) = kernel("nvfp4_sm100.cu", "100a") else {
        return;
    };
    let g = support::Gpu::new("sm_100");
    let f = g.module(&ptx);
    for (m, n, k) in [(128, 128, 256), (200, 136, 1280), (72, 264, 768)] {
        let p = Fp4Problem::random(m, n, k, 1);
        let d = g.filled(m * n * 4, 0xFF);
        let (map_a, a) = packed_map(&g, &p.a, m, k, 128);
        let (map_b, b) = packed_map(&g, &p.b, n, k, 128);
        let (sfa, sfb) = (g.upload(&tiled_scales(&p.sa, m, k)), g.upload(&tiled_scales(&p.sb, n, k)));
        let grid = [n.div_ceil(128) as u32, m.div_ceil(128) as u32, 1];
        let args = [map_a, map_b, Ptr(sfa), Ptr(sfb), Ptr(d), I32(m as i32), I32(n as i32), I32(k as i32 / 256)];
        let r = f.get("nvfp4_gemm").try_launch(grid, [192, 1, 1], [1, 1, 1], 2 * (2 * 16384 + 4096) + 1024, &args);
        assert_eq!(r, 0, "{:?}", nvfp4_emulator::driver::launch::last_fault());
        p.check(&g.download::<u32>(d, m * n), &format!("{m} x {n} x {k}"));
        let _ = (a, b);
    }
}

#[test]
fn pairs_of_ctas_share_one_tile() {
    let Some(ptx) = kernel("nvfp4_pair_sm100.cu", "100a") else {
        return;
    };
    let g = support::Gpu::new("sm_100");
    let f = g.module(&ptx);
    for (m, n, k) in [(256, 128, 256), (400, 200, 1024)] {
        let p = Fp4Problem::random(m, n, k, 2);
        let d = g.filled(m * n * 4, 0xFF);
        let (map_a, _) = packed_map(&g, &p.a, m, k, 128);
        let (map_b, _) = packed_map(&g, &p.b, n, k, 64);
        // Scale tiles as lines of 128 words; what lies behind the last one is filled with zeros.
        let scales = |linear: &[u8], rows: usize| {
            let tiles = tiled_scales(linear, rows, k);
            map_2d(2, g.upload(&tiles), 128, tiles.len() / 512, 512, [128, 4], 0)
        };
        let (map_sfa, map_sfb) = (scales(&p.sa, m), scales(&p.sb, n));
        let grid = [2 * m.div_ceil(256) as u32, n.div_ceil(128) as u32, 1];
        let args = [map_a, map_b, map_sfa, map_sfb, Ptr(d), I32(m as i32), I32(n as i32), I32(k as i32 / 256)];
        let shared = 2 * (16384 + 8192 + 4096) + 1024;
        let r = f.get("nvfp4_gemm_pair").try_launch(grid, [192, 1, 1], [2, 1, 1], shared, &args);
        assert_eq!(r, 0, "{:?}", nvfp4_emulator::driver::launch::last_fault());
        p.check(&g.download::<u32>(d, m * n), &format!("pair {m} x {n} x {k}"));
    }
}

/// Value of an E2M1 code.
fn e2m1(code: u8) -> f64 {
    let v = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code as usize & 7];
    if code & 8 != 0 {
        -v
    } else {
        v
    }
}

#[test]
fn conversions_land_in_memory_order() {
    let Some(ptx) = kernel("convert_sm100.cu", "100a") else {
        return;
    };
    let g = support::Gpu::new("sm_100");
    let f = g.module(&ptx);
    let threads = 256;
    let mut r = Random(3);
    let x: Vec<f32> = (0..16 * threads)
        .map(|i| {
            let v = r.next() as f32 / (1u64 << 31) as f32 * 14.0 - 7.0;
            [v, v / 64.0, v.round() / 2.0, v * 100.0][i % 7 % 4]
        })
        .collect();
    let random: Vec<u32> = (0..4 * threads).map(|_| r.next() << 1 ^ r.next()).collect();
    let (dx, dr) = (g.upload(&x), g.upload(&random));
    let sizes = [8, 8, 32, 16, 16, 16];
    let out: Vec<u64> = sizes.iter().map(|s| g.filled(s * threads, 0xFF)).collect();
    let mut args = vec![Ptr(dx), Ptr(dr)];
    args.extend(out.iter().map(|&p| Ptr(p)));
    f.get("convert").launch(2, threads as u32 / 2, 0, &args);
    let bytes: Vec<Vec<u8>> = out.iter().zip(sizes).map(|(&p, s)| g.download(p, s * threads)).collect();
    let nibble = |v: &[u8], i: usize| v[i / 2] >> (4 * (i % 2)) & 15;
    for (i, &v) in x.iter().enumerate() {
        // Nearest code by distance, ties to the even one; the sign is the input's.
        let near = (0..8u8)
            .min_by(|&p, &q| {
                let d = |c| (v.abs().min(6.0) as f64 - e2m1(c)).abs();
                d(p).total_cmp(&d(q)).then((p & 1).cmp(&(q & 1)))
            })
            .unwrap()
            | (v.is_sign_negative() as u8) << 3;
        assert_eq!(nibble(&bytes[0], i), near, "element {i}: {v}");
        let half = u16::from_le_bytes([bytes[2][2 * i], bytes[2][2 * i + 1]]);
        let back = f32::from_bits(nvfp4_emulator::convert::f16_to_f32(half));
        assert_eq!(back as f64, e2m1(near), "element {i} back");
        // Stochastic: neighbours of the value, chosen by the documented byte.
        let a = v.abs().min(6.0) as f64;
        let lo = (0..8u8).rev().find(|&c| e2m1(c) <= a).unwrap();
        let byte = random[i / 4] >> [0, 16, 8, 24][i % 4] & 0xFF;
        let up = lo < 7 && {
            let f = (a - e2m1(lo)) / (e2m1(lo + 1) - e2m1(lo));
            (256.0 * f).floor() + byte as f64 >= 256.0
        };
        let want = (lo + up as u8) | (v.is_sign_negative() as u8) << 3;
        assert_eq!(nibble(&bytes[1], i), want, "element {i}: {v} with random byte {byte}");
        let fp8 = |c: u8| f32::from_bits(nvfp4_emulator::convert::e4m3_to_f32(c));
        let got = fp8(bytes[3][i]);
        let best = (0..255u8).map(fp8).filter(|f| !f.is_nan()).map(|f| (f - v).abs()).fold(f32::MAX, f32::min);
        assert_eq!((got - v).abs(), best, "element {i}: {v} to {got}");
        let got = fp8(bytes[4][i]);
        let up = (0..255u8).map(fp8).filter(|f| *f >= v).fold(448.0, f32::min);
        let down = (0..255u8).map(fp8).filter(|f| *f <= v).fold(-448.0, f32::max);
        assert!(got == up || got == down, "element {i}: {v} to {got}");
        let power = 2f64.powi(bytes[5][i] as i32 - 127);
        let a = v.abs() as f64;
        assert!(power >= a && (power / 2.0 < a || bytes[5][i] == 0), "element {i}: {v} to {power}");
    }
}
