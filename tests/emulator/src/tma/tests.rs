//! Box copies against per-element definitions, and the rules of encoding.

use super::reduce::{combine, ReduceOp};
use super::*;

const BASE: u64 = 0x7000_0000_0000;

fn params<'a>(data_type: u32, dims: &'a [u64], strides: &'a [u64], boxes: &'a [u32], swizzle: u32) -> TiledParams<'a> {
    TiledParams {
        data_type,
        rank: dims.len() as u32,
        address: BASE,
        dims,
        strides,
        boxes,
        element_strides: &[1; 5][..dims.len()],
        interleave: 0,
        swizzle,
        l2_promotion: 0,
        oob_fill: 0,
    }
}

fn map(p: &TiledParams) -> TensorMap {
    TensorMap::decode(&TensorMap::encode_tiled(p, 100).unwrap()).unwrap()
}

/// Global memory of `size` bytes at BASE; reads outside fail.
fn global(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 167 + i / 251) as u8 | 1).collect()
}

fn load(m: &TensorMap, coords: &[i32], at: u32, g: &[u8], smem: &mut [u8]) -> Result<u32, String> {
    m.load(
        coords,
        at,
        &mut |address, out| {
            let i = address.checked_sub(BASE).ok_or("below the tensor")? as usize;
            out.copy_from_slice(g.get(i..i + out.len()).ok_or("past the tensor")?);
            Ok(())
        },
        &mut |address, bytes| {
            smem[address as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        },
    )
}

/// The stored chunk of row r, chunk c by the documented tables.
fn swizzled(mode: u32, r: u32, c: u32) -> u32 {
    match mode {
        0 => c,
        1 => c ^ (r >> 2 & 1),
        2 => c ^ (r >> 1 & 3),
        _ => c ^ (r & 7),
    }
}

#[test]
fn two_dimensional_boxes_in_every_swizzle_with_fill() {
    // 100 columns of bf16 (pitch 208 bytes), 37 rows.
    let g = global(208 * 37);
    for (mode, inner) in [(0, 64), (1, 16), (2, 32), (3, 64), (0, 24)] {
        let m = map(&params(9, &[100, 37], &[208], &[inner, 16], mode));
        for coords in [[0, 0], [64, 32], [-5, -3], [96, 36], [8, 8], [200, 0], [0, -16]] {
            let mut smem = vec![0xEE; 8192];
            let at = 1024;
            assert_eq!(load(&m, &coords, at, &g, &mut smem).unwrap(), inner * 32);
            assert_eq!(m.box_bytes(), inner * 32);
            let pitch = inner * 2;
            for r in 0..16u32 {
                for x in 0..inner {
                    let byte = 2 * x;
                    let chunk = swizzled(mode, r, byte / 16);
                    let s = (at + r * pitch + chunk * 16 + byte % 16) as usize;
                    let (gx, gy) = (coords[0] as i64 + x as i64, coords[1] as i64 + r as i64);
                    let want = if (0..100).contains(&gx) && (0..37).contains(&gy) {
                        let i = (gy * 208 + gx * 2) as usize;
                        [g[i], g[i + 1]]
                    } else {
                        [0, 0]
                    };
                    assert_eq!(smem[s..s + 2], want, "mode {mode} {coords:?} row {r} x {x}");
                }
            }
            assert!(smem[..1024].iter().all(|&b| b == 0xEE));
            assert!(smem[1024 + (inner * 32) as usize..].iter().all(|&b| b == 0xEE));
        }
    }
}

#[test]
fn five_dimensions_of_every_element_size() {
    for (code, size) in [(0u32, 1u64), (1, 2), (7, 4), (4, 8)] {
        let dims = [24u64, 3, 4, 2, 3];
        let strides = [32 * size, 96 * size + 16, 500 * size.next_multiple_of(4), 1600 * size];
        let strides = strides.map(|s| s.next_multiple_of(16));
        let g = global(20_000 * size as usize);
        let boxes = [16u32, 2, 3, 2, 2];
        let m = map(&params(code, &dims, &strides, &boxes, 0));
        let coords = [8, 2, -1, 1, 1];
        let mut smem = vec![0xEE; 16 * 24 * size as usize];
        load(&m, &coords, 0, &g, &mut smem).unwrap();
        let mut at = 0;
        for i4 in 0..2 {
            for i3 in 0..2 {
                for i2 in 0..3 {
                    for i1 in 0..2 {
                        for i0 in 0..16 {
                            let c: Vec<i64> = [i0, i1, i2, i3, i4].iter().zip(coords).map(|(&a, b): (&i64, i32)| a + b as i64).collect();
                            let inside = (0..5).all(|d| c[d] >= 0 && (c[d] as u64) < dims[d]);
                            let offset: i64 = c[0] * size as i64 + (1..5).map(|d| c[d] * strides[d - 1] as i64).sum::<i64>();
                            for b in 0..size as usize {
                                let want = if inside { g[offset as usize + b] } else { 0 };
                                assert_eq!(smem[at], want, "size {size} {c:?}");
                                at += 1;
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn store_is_the_inverse_and_drops_what_is_outside() {
    for (mode, inner) in [(0, 48), (1, 32), (2, 64), (3, 128)] {
        let m = map(&params(0, &[200, 30], &[208], &[inner, 8], mode));
        let coords = [190, 26];
        let mut smem = vec![0; 2048];
        for (i, b) in smem.iter_mut().enumerate() {
            *b = (i * 89 + 3) as u8;
        }
        let mut g = vec![0xEEu8; 208 * 30];
        let bytes = m
            .store(
                &coords,
                0,
                &mut |at, out| {
                    out.copy_from_slice(&smem[at as usize..at as usize + out.len()]);
                    Ok(())
                },
                &mut |address, bytes| {
                    g[(address - BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
                    Ok(())
                },
            )
            .unwrap();
        assert_eq!(bytes, inner * 8);
        for y in 0..30u32 {
            for x in 0..208u32 {
                let got = g[(y * 208 + x) as usize];
                if (190..200).contains(&x) && y >= 26 {
                    let (r, b) = (y - 26, x - 190);
                    let chunk = swizzled(mode, r, b / 16);
                    assert_eq!(got, smem[(r * inner + chunk * 16 + b % 16) as usize]);
                } else {
                    assert_eq!(got, 0xEE, "{x} {y}");
                }
            }
        }
    }
}

#[test]
fn packed_nibbles_equal_the_same_bytes_as_u8() {
    let g = global(256 * 40);
    let bytes = map(&params(0, &[256, 40], &[256], &[128, 32], 3));
    let nibbles = map(&params(13, &[512, 40], &[256], &[256, 32], 3));
    let (mut x, mut y) = (vec![0; 8192], vec![0; 8192]);
    assert_eq!(load(&bytes, &[128, 16], 2048, &g, &mut x), Ok(4096));
    assert_eq!(load(&nibbles, &[256, 16], 2048, &g, &mut y), Ok(4096));
    assert_eq!(x, y);
    assert!(load(&nibbles, &[3, 0], 0, &g, &mut y).unwrap_err().contains("multiple of 2"));
    // With gaps: 8 bytes of data, 8 untouched.
    let gaps = map(&params(14, &[512, 40], &[256], &[128, 4], 0));
    let mut z = vec![0xEE; 512];
    assert_eq!(load(&gaps, &[128, 1], 0, &g, &mut z), Ok(512));
    for r in 0..4 {
        for b in 0..128 {
            let want = if b % 16 < 8 { g[256 * (r + 1) + 64 + b / 16 * 8 + b % 16] } else { 0xEE };
            assert_eq!(z[128 * r + b], want);
        }
    }
}

#[test]
fn nan_fill_is_for_floats() {
    let mut p = params(9, &[64, 8], &[128], &[64, 8], 3);
    p.oob_fill = 1;
    let m = map(&p);
    let mut smem = vec![0; 1024];
    load(&m, &[0, 7], 0, &global(1024), &mut smem).unwrap();
    assert_eq!(smem[128..130], [0xFF, 0x7F]);
    p.data_type = 0;
    assert!(matches!(TensorMap::encode_tiled(&p, 100), Err(EncodeError::Invalid(_))));
}

#[test]
fn reductions() {
    let m = map(&params(7, &[4, 3], &[16], &[4, 2], 0));
    let mut g: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let smem: Vec<u8> = (0..8).flat_map(|i| (0.5 + i as f32).to_le_bytes()).collect();
    m.reduce(
        ReduceOp::Add,
        &[0, 2],
        0,
        &mut |at, out| {
            out.copy_from_slice(&smem[at as usize..at as usize + out.len()]);
            Ok(())
        },
        &mut |address, size, f| {
            assert_eq!(size, 4);
            let i = ((address - BASE) / 4) as usize;
            let mut bytes = g[i].to_le_bytes();
            f(&mut bytes);
            g[i] = f32::from_le_bytes(bytes);
            Ok(())
        },
    )
    .unwrap();
    assert_eq!(g[..8], [0., 1., 2., 3., 4., 5., 6., 7.]);
    assert_eq!(g[8..], [8.5, 10.5, 12.5, 14.5]);
    let c = |op, t, a, b| combine(op, t, a, b);
    assert_eq!(c(ReduceOp::Add, DataType::Bf16, 0x3F80, 0x3B80), Ok(0x3F80)); // tie to even
    assert_eq!(c(ReduceOp::Add, DataType::F16, 0x3C00, 0x3C00), Ok(0x4000));
    assert_eq!(c(ReduceOp::Min, DataType::F16, 0x8000, 0x0000), Ok(0x8000));
    assert_eq!(c(ReduceOp::Max, DataType::Bf16, 0x7FC0, 0x3F80), Ok(0x3F80));
    assert_eq!(c(ReduceOp::Min, DataType::I32, 5, 0xFFFF_FFFF), Ok(0xFFFF_FFFF));
    assert_eq!(c(ReduceOp::Inc, DataType::U32, 7, 7), Ok(0));
    assert_eq!(c(ReduceOp::Dec, DataType::U32, 0, 9), Ok(9));
    assert_eq!(c(ReduceOp::Xor, DataType::U64, 6, 3), Ok(5));
    assert!(c(ReduceOp::Min, DataType::F32, 0, 0).unwrap_err().contains("does not exist"));
    assert!(c(ReduceOp::And, DataType::Bf16, 0, 0).is_err());
}

#[test]
fn the_rules_of_encoding() {
    let good = params(0, &[256, 40], &[256], &[128, 32], 3);
    TensorMap::encode_tiled(&good, 90).unwrap();
    let invalid = |p: TiledParams, sm: u32, part: &str| match TensorMap::encode_tiled(&p, sm) {
        Err(EncodeError::Invalid(e)) => assert!(e.contains(part), "{e}"),
        other => panic!("{part}: {other:?}"),
    };
    let unsupported = |p: TiledParams, part: &str| match TensorMap::encode_tiled(&p, 100) {
        Err(EncodeError::Unsupported(e)) => assert!(e.contains(part), "{e}"),
        other => panic!("{part}: {other:?}"),
    };
    invalid(TiledParams { data_type: 16, ..good }, 100, "tensorDataType 16");
    invalid(TiledParams { data_type: 13, ..good }, 90, "sm_90");
    invalid(TiledParams { rank: 6, ..good }, 90, "tensorRank 6");
    invalid(TiledParams { rank: 0, ..good }, 90, "tensorRank 0");
    invalid(TiledParams { address: BASE + 8, ..good }, 90, "multiple of 16");
    invalid(TiledParams { dims: &[0, 40], ..good }, 90, "globalDim[0] of 0");
    invalid(TiledParams { dims: &[256, (1 << 32) + 1], ..good }, 90, "globalDim[1]");
    invalid(TiledParams { strides: &[264], ..good }, 90, "globalStrides[0] of 264");
    invalid(TiledParams { strides: &[1 << 40], ..good }, 90, "globalStrides[0]");
    invalid(TiledParams { boxes: &[0, 32], ..good }, 90, "boxDim[0] of 0");
    invalid(TiledParams { boxes: &[128, 257], ..good }, 90, "boxDim[1] of 257");
    invalid(TiledParams { boxes: &[24, 32], ..good }, 90, "not a multiple of 16 bytes");
    invalid(TiledParams { boxes: &[144, 32], ..good }, 90, "more than the 128-byte swizzle");
    invalid(TiledParams { swizzle: 2, ..good }, 90, "more than the 64-byte swizzle");
    invalid(TiledParams { swizzle: 7, ..good }, 90, "swizzle 7");
    invalid(TiledParams { interleave: 1, ..good }, 90, "needs rank 3");
    invalid(TiledParams { interleave: 3, ..good }, 90, "interleave 3");
    invalid(TiledParams { l2_promotion: 4, ..good }, 90, "l2Promotion 4");
    invalid(TiledParams { oob_fill: 2, ..good }, 90, "oobFill 2");
    invalid(TiledParams { element_strides: &[1, 9], ..good }, 90, "elementStrides[1] of 9");
    invalid(TiledParams { data_type: 13, dims: &[255, 40], ..good }, 100, "multiple of 2");
    let padded = TiledParams { data_type: 14, swizzle: 0, ..good };
    TensorMap::encode_tiled(&padded, 100).unwrap();
    invalid(TiledParams { address: BASE + 16, ..padded }, 100, "multiple of 32");
    invalid(TiledParams { dims: &[192, 40], ..padded }, 100, "multiple of 128");
    invalid(TiledParams { boxes: &[64, 32], ..padded }, 100, "must be 128");
    invalid(TiledParams { swizzle: 1, ..padded }, 100, "takes no swizzle or 128");
    unsupported(TiledParams { swizzle: 4, ..good }, "larger atoms");
    unsupported(TiledParams { element_strides: &[1, 2], ..good }, "not modelled");
    let (dims, strides, boxes) = ([64, 4, 4], [64, 256], [16, 2, 2]);
    unsupported(TiledParams { interleave: 1, ..params(0, &dims, &strides, &boxes, 0) }, "interleaved");
}

#[test]
fn damaged_maps_and_bad_calls_are_noticed() {
    let good = TensorMap::encode_tiled(&params(0, &[256, 40], &[256], &[128, 32], 3), 90).unwrap();
    for i in 0..128 {
        let mut bad = good;
        bad[i] ^= 0x10;
        assert!(TensorMap::decode(&bad).is_err(), "byte {i}");
    }
    assert!(TensorMap::decode(&[0; 128]).unwrap_err().contains("not made by"));
    let m = TensorMap::decode(&good).unwrap();
    let mut smem = vec![0; 8192];
    let g = global(256 * 40);
    assert!(load(&m, &[0, 0], 64, &g, &mut smem).unwrap_err().contains("multiple of 128"));
    assert!(load(&m, &[0], 0, &g, &mut smem).unwrap_err().contains("rank 2"));
    let short = map(&params(0, &[256, 40], &[256], &[64, 32], 3));
    assert!(load(&short, &[0, 0], 0, &g, &mut smem).unwrap_err().contains("not modelled"));
}
