//! The HARDWARE accumulate mode against results of the public model of the matrix units
//! (tests/emulator/vectors/README.md says how they were made).

use nvfp4::numerics::gemm_hardware::step;
use nvfp4::Format;

const VECTORS: &str = include_str!("emulator/vectors/mma_sim.txt");

/// Comma-separated rows of hex numbers of `digits` digits.
fn rows(field: &str, digits: usize) -> Vec<Vec<u32>> {
    let number =
        |row: &str, i: usize| u32::from_str_radix(&row[i * digits..][..digits], 16).unwrap();
    field
        .split(',')
        .map(|row| (0..row.len() / digits).map(|i| number(row, i)).collect())
        .collect()
}

fn bytes(row: &[u32]) -> Vec<u8> {
    row.iter().map(|&x| x as u8).collect()
}

/// One code a byte from packed bytes, low nibble first.
fn codes(row: &[u32]) -> Vec<u8> {
    row.iter()
        .flat_map(|&x| [x as u8 & 15, x as u8 >> 4])
        .collect()
}

#[test]
fn every_fp4_step_of_the_public_model_is_met_bit_for_bit() {
    let (mut nvfp4, mut mxfp4, mut nans) = (0, 0, 0);
    for line in VECTORS.lines() {
        let field: Vec<&str> = line.split('|').collect();
        let (format, count) = match field[0].split_once('.').unwrap().1 {
            "mxf4nvf4.block16.ue4m3" => (Format::Nvfp4, &mut nvfp4),
            "mxf4.block32.ue8m0" => (Format::Mxfp4, &mut mxfp4),
            _ => continue,
        };
        let (a, b, sa, sb) = (
            rows(field[1], 2),
            rows(field[2], 2),
            rows(field[3], 2),
            rows(field[4], 2),
        );
        let (c, d) = (rows(field[5], 8), rows(field[6], 8));
        for (i, row) in d.iter().enumerate() {
            for (j, &want) in row.iter().enumerate() {
                let (x, y) = (codes(&a[i]), codes(&b[j]));
                let got = step(
                    format,
                    &x,
                    &y,
                    &bytes(&sa[i]),
                    &bytes(&sb[j]),
                    f32::from_bits(c[i][j]),
                );
                assert_eq!(got.to_bits(), want, "{}: c {:08x}", field[0], c[i][j]);
                *count += 1;
                nans += got.is_nan() as u32;
            }
        }
    }
    assert!(
        nvfp4 >= 1000 && mxfp4 >= 600 && nans > 20,
        "{nvfp4} NVFP4, {mxfp4} MXFP4, {nans} NaN"
    );
}
