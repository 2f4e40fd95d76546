//! Arithmetic against results of the public model (vectors/README.md) and against the
//! vectors of the hardware contract.

use super::arith::*;

const VECTORS: &str = include_str!("../../vectors/mma_sim.txt");

fn elem(name: &str) -> Elem {
    match name {
        "f16" => Elem::F16,
        "bf16" => Elem::Bf16,
        "tf32" => Elem::Tf32,
        "e4m3" => Elem::E4m3,
        "e5m2" => Elem::E5m2,
        other => panic!("element type {other}"),
    }
}

/// Comma-separated rows of hex numbers of `digits` digits.
fn rows(field: &str, digits: usize) -> Vec<Vec<u32>> {
    field
        .split(',')
        .map(|row| (0..row.len() / digits).map(|i| u32::from_str_radix(&row[i * digits..][..digits], 16).unwrap()).collect())
        .collect()
}

fn bytes(row: &[u32]) -> Vec<u8> {
    row.iter().map(|&x| x as u8).collect()
}

/// Result of element (i, j) by this crate for one line of the file.
type Eval = Box<dyn Fn(usize, usize, u32) -> u32>;

fn evaluator(line: &[&str]) -> (Eval, usize) {
    let name: Vec<&str> = line[0].split('.').collect();
    match name[1] {
        "mxf4" | "mxf4nvf4" => {
            let (a, b) = (rows(line[1], 2), rows(line[2], 2));
            let (sa, sb) = (rows(line[3], 2), rows(line[4], 2));
            let kind = if name[3] == "ue4m3" { ScaleType::Ue4m3 } else { ScaleType::Ue8m0 };
            let per = if name[2] == "block16" { 4 } else { 2 };
            assert!(sa.iter().chain(&sb).all(|s| s.len() == per));
            let f = move |i: usize, j: usize, c: u32| {
                let (sa, sb) = (bytes(&sa[i]), bytes(&sb[j]));
                hardware_gemm_step(&bytes(&a[i]), &bytes(&b[j]), &sa, &sb, kind, c)
            };
            (Box::new(f), 8)
        }
        "mxf8f6f4" => {
            let (a, b) = (rows(line[1], 2), rows(line[2], 2));
            let (sa, sb) = (rows(line[3], 2), rows(line[4], 2));
            let (ta, tb) = (elem(name[2]), elem(name[3]));
            let f = move |i: usize, j: usize, c: u32| {
                let num = |t, r: &[u32]| r.iter().map(|&x| decode_elem(t, x)).collect::<Vec<_>>();
                let (x, y) = (num(ta, &a[i]), num(tb, &b[j]));
                scaled_dot_add(ta, &x, tb, &y, sa[i][0] as u8, sb[j][0] as u8, c)
            };
            (Box::new(f), 8)
        }
        _ => {
            let sm = name[1].strip_prefix("sm").map(|s| s.parse::<u32>().unwrap());
            let types = if sm.is_some() { &name[2..] } else { &name[1..] };
            let (ta, tb) = (elem(types[1]), elem(types[2]));
            let acc = if types[0] == "f16" { Acc::F16 } else { Acc::F32 };
            let digits = ta.container_bits() / 4;
            let (a, b) = (rows(line[1], digits), rows(line[2], digits));
            let rule = match (name[0], sm) {
                ("wgmma", None) => Rule::wgmma(ta),
                ("tcgen05", None) => Rule::TCGEN05,
                ("mma", Some(sm)) => Rule::mma_sync(sm, ta, a[0].len()),
                _ => panic!("{}", line[0]),
            };
            let f = move |i: usize, j: usize, c: u32| {
                let num = |t, r: &[u32]| r.iter().map(|&x| decode_elem(t, x)).collect::<Vec<_>>();
                dot_add(ta, &num(ta, &a[i]), tb, &num(tb, &b[j]), c, acc, &rule)
            };
            (Box::new(f), if acc == Acc::F16 { 4 } else { 8 })
        }
    }
}

#[test]
fn every_vector_of_the_public_model_is_met_bit_for_bit() {
    let (mut block_scaled, mut dense, mut nans, mut infs, mut wrong) = (0, 0, 0, 0, Vec::new());
    for line in VECTORS.lines().filter(|l| !l.starts_with('#')) {
        let fields: Vec<&str> = line.split('|').collect();
        assert_eq!(fields.len(), 7, "{line}");
        let (f, digits) = evaluator(&fields);
        let (c, d) = (rows(fields[5], digits), rows(fields[6], digits));
        for (i, row) in d.iter().enumerate() {
            for (j, &want) in row.iter().enumerate() {
                let got = f(i, j, c[i][j]);
                if got != want {
                    wrong.push(format!("{} [{i}][{j}]: c {:x} want {want:x} got {got:x}", fields[0], c[i][j]));
                }
                *(if fields[3].is_empty() { &mut dense } else { &mut block_scaled }) += 1;
                nans += (want == 0x7FFF_FFFF) as u32;
                infs += (want & 0x7FFF_FFFF == 0x7F80_0000) as u32;
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong, first: {:#?}", wrong.len(), &wrong[..wrong.len().min(8)]);
    assert!(block_scaled >= 2000 && dense >= 2000, "{block_scaled} block-scaled, {dense} dense");
    assert!(nans > 20 && infs > 20, "{nans} NaN and {infs} infinite results");
}

#[test]
fn contract_vectors() {
    let codes = |s: &str| -> Vec<i8> { s.chars().map(|c| E2M1_HALVES[c.to_digit(16).unwrap() as usize]).collect() };
    for (a, b, sa, sb, c, d) in [
        (
            "4ee5cbd332e816a796546bbd6ce8c5350c456507ec4179aabfc139d87df841a5",
            "1831796bae03f6361c3c4f1e51f167531462382c1dfeae68d46d28c83671c808",
            [0x3b, 0x2a, 0x29, 0x4b],
            [0x3a, 0x36, 0x41, 0x28],
            0,
            0xc2736c00,
        ),
        (
            "6be1679f6ae28652eb6fa7cd62de963a8cc7d2cd0e63b0bb0841d5824cbf5f95",
            "0221be3e456e4249ac21be168a2848e6d3a738500ce1a78f6aa049bbcc172643",
            [0x31, 0x3d, 0x2f, 0x3f],
            [0x29, 0x44, 0x34, 0x3f],
            0x3f800001,
            0xc3d64c1f,
        ),
        (
            "4b55c9d15ce74215e74fdf272ac6ddc45b6279d4e8afe6c765b1c3f592c8d56a",
            "e657d44f7027c843340d8a8ed7d6960e6e67825cf4088d75d7523f358551644e",
            [0x4e, 0x41, 0x46, 0x2c],
            [0x3d, 0x4a, 0x30, 0x45],
            0xcb000001,
            0xcafffa0b,
        ),
    ] {
        let s = |x: [u8; 4]| x.map(|v| Scale::decode(ScaleType::Ue4m3, v));
        assert_eq!(block_scaled_dot_add(&codes(a), &codes(b), &s(sa), &s(sb), c), d);
    }
}

/// Measured on an H200 with bf16 mma.sync: 25 fractional bits, truncation on output.
#[test]
fn hopper_keeps_25_bits_and_truncates() {
    let num = |x: f32| decode_elem(Elem::Bf16, x.to_bits() >> 16);
    let rule = Rule::mma_sync(90, Elem::Bf16, 16);
    for s in 0..40 {
        let mut a = vec![num(0.0); 16];
        let mut b = vec![num(1.0); 16];
        a[0] = num(1.0);
        a[5] = num(2f32.powi(-s));
        b[9] = num(-1.0);
        a[9] = num(1.0);
        let d = dot_add(Elem::Bf16, &a, Elem::Bf16, &b, 0, Acc::F32, &rule);
        let want = if s <= 25 { 2f32.powi(-s) } else { 0.0 };
        assert_eq!(f32::from_bits(d), want, "2^-{s}");
    }
    let (a, b) = (vec![num(1.5 * 2f32.powi(-24))], vec![num(1.0)]);
    let one = 1f32.to_bits();
    assert_eq!(dot_add(Elem::Bf16, &a, Elem::Bf16, &b, one, Acc::F32, &rule), one);
}

#[test]
fn infinite_accumulators_stay_and_overflow_becomes_infinite() {
    let scale = [Scale::decode(ScaleType::Ue8m0, 254); 2];
    let (a, b) = ([12i8; 64], [12i8; 64]);
    let minus = [-12i8; 64];
    assert_eq!(block_scaled_dot_add(&a, &b, &scale, &scale, 0), 0x7F80_0000);
    assert_eq!(block_scaled_dot_add(&minus, &b, &scale, &scale, 0), 0xFF80_0000);
    let unit = [Scale::decode(ScaleType::Ue8m0, 127); 2];
    assert_eq!(block_scaled_dot_add(&minus, &b, &unit, &unit, 0x7F80_0000), 0x7F80_0000);
    assert_eq!(block_scaled_dot_add(&a, &b, &unit, &unit, 0xFF80_0000), 0xFF80_0000);
    // Sums that cancel are +0, also from -0 alone.
    let zero = [0i8; 64];
    assert_eq!(block_scaled_dot_add(&zero, &b, &unit, &unit, 0x8000_0000), 0);
}
