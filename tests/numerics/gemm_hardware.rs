//! The model of the matrix unit.

use nvfp4::numerics::{gemm_hardware, Format};

fn digits(hex: &str) -> Vec<u8> {
    hex.chars().map(|c| c.to_digit(16).unwrap() as u8).collect()
}

#[test]
fn golden_vectors_of_the_matrix_unit() {
    for (a, b, sa, sb, c, d) in [
        (
            "4ee5cbd332e816a796546bbd6ce8c5350c456507ec4179aabfc139d87df841a5",
            "1831796bae03f6361c3c4f1e51f167531462382c1dfeae68d46d28c83671c808",
            [0x3b, 0x2a, 0x29, 0x4b],
            [0x3a, 0x36, 0x41, 0x28],
            0u32,
            0xc2736c00u32,
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
        let got = gemm_hardware::step(
            Format::Nvfp4,
            &digits(a),
            &digits(b),
            &sa,
            &sb,
            f32::from_bits(c),
        );
        assert_eq!(got.to_bits(), d, "{:08x} instead of {d:08x}", got.to_bits());
    }
}

#[test]
fn the_matrix_unit_truncates() {
    let one = [2u8; 64];
    let step = |sa: [u8; 4], sb: [u8; 4], c: f32| {
        gemm_hardware::step(Format::Nvfp4, &one, &one, &sa, &sb, c)
    };
    assert_eq!(step([0x38; 4], [0x38; 4], 0.0), 64.0);
    // 2^24 + 63 * ... : the sum is cut, not rounded.
    assert_eq!(
        step([0x38, 0, 0, 0], [0x38; 4], 16777216.0 * 2.0 - 2.0),
        16777216.0 * 2.0 + 12.0
    );
    assert_eq!(step([0x08, 0, 0, 0], [0x31; 4], 16777216.0), 16777216.0);
    assert_eq!(step([0x08, 0, 0, 0], [0x31; 4], -16777216.0), -16777215.0);
    assert_eq!(step([0x7F, 0, 0, 0], [0x38; 4], 1.0).to_bits(), 0x7FFF_FFFF);
    assert_eq!(
        step([0xB8; 4], [0x38; 4], 0.0),
        64.0,
        "the sign bit of a scale is ignored"
    );
    assert_eq!(
        step([0; 4], [0; 4], f32::from_bits(5)).to_bits(),
        5,
        "subnormal accumulators are kept"
    );
    assert_eq!(
        step([0x38; 4], [0x38; 4], f32::NEG_INFINITY),
        f32::NEG_INFINITY
    );
    // Scale exponents far above the accumulator's drop its low bits even if the products vanish.
    let zeros = [0u8; 64];
    let c = f32::from_bits(0x3F80_0001);
    assert_eq!(
        gemm_hardware::step(Format::Nvfp4, &zeros, &zeros, &[0x70; 4], &[0x70; 4], c),
        1.0
    );
    assert_eq!(
        gemm_hardware::step(Format::Nvfp4, &zeros, &zeros, &[0x60; 4], &[0x60; 4], c),
        c
    );
}

#[test]
fn a_sum_cut_to_zero_is_positive() {
    let (a, b) = ([2u8; 64], [10u8; 64]);
    let d = gemm_hardware::step(Format::Mxfp4, &a, &b, &[20; 2], &[40; 2], 0.0);
    assert_eq!(d.to_bits(), 0);
}
