//! The examples worked by hand in docs/format.md.

use nvfp4::numerics::dequantize::dequantize;
use nvfp4::numerics::gemm::global_factor;
use nvfp4::numerics::matrix::{Matrix, Quantized};
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::rounding::{stochastic, Draw};
use nvfp4::numerics::*;

fn one_row(x: &[f32], amax: f32, options: Options) -> Quantized {
    let call = Call {
        options,
        amax: Some(&[amax]),
        ..Call::default()
    };
    quantize(&Matrix::f32(x, 1, x.len()), &call).unwrap()
}

#[test]
fn section_2_a_block() {
    let x = [
        4.5, -3.0, 2.0, 1.0, 0.5, 0.25, -0.125, 0.0, 1.5, -1.5, 3.75, -4.0, 0.75, 0.6, -0.0, 1.25,
    ];
    let te = Options::default();
    let t = scale::tensor_scale(&te, 12.0);
    assert_eq!(t.encode, 224.0);
    assert_eq!(scale::unrounded_block_scale(&te, 4.5, &t), 168.00002);
    let q = one_row(&x, 12.0, te);
    assert_eq!(q.scales, [0x73]);
    assert_eq!(e4m3::decode(0x73), 176.0);
    assert_eq!(scale::encode_multiplier(&te, 0x73, &t), 1.2727273);
    assert_eq!(q.codes, [0xe7, 0x35, 0x11, 0x08, 0xc4, 0xf6, 0x22, 0x38]);
    assert_eq!(dequantize(&q, Dtype::F32)[..2], [4.714286, -3.1428573]);
    let div6 = Options {
        chain: Chain::Div6,
        ..te
    };
    assert_eq!(scale::unrounded_block_scale(&div6, 4.5, &t), 168.0);
    assert_eq!(one_row(&x, 12.0, div6).scales, [0x72]);
}

#[test]
fn section_6_a_transform() {
    let words = hadamard::sign_words(Signs::Default, 16, 0, 0);
    let mut x = [0f32; 16];
    (x[0], x[1]) = (1.0, 1.0);
    hadamard::forward(&mut x, &words);
    assert!(x
        .iter()
        .enumerate()
        .all(|(i, y)| *y == if i % 2 == 0 { 0.5 } else { 0.0 }));
    let mut x = [0f32; 16];
    x[3] = 1.0;
    hadamard::forward(&mut x, &words);
    assert_eq!(x[..4], [-0.25, 0.25, 0.25, -0.25]);
}

#[test]
fn section_7_a_draw() {
    let draw = Draw {
        seed: 7,
        offset: 3,
        columnwise: false,
    };
    assert_eq!(
        draw.words(5, 2),
        [0xfa77_1ba3, 0x9d5e_0de5, 0x36c5_54b0, 0x430c_2c17]
    );
    assert_eq!(draw.byte(5, 38), 13);
    assert_eq!(e2m1::decode(stochastic(2.3, 13)), 2.0);
    assert_eq!(e2m1::decode(stochastic(2.97, 13)), 3.0);
}

#[test]
fn section_8_two_scales() {
    let mut x = [0f32; 16];
    x[..3].copy_from_slice(&[6.0, 4.5, 0.5]);
    let one = Options {
        c: 1536.0,
        chain: Chain::Div6,
        ..Options::default()
    };
    let q = one_row(&x, 1536.0, one);
    assert_eq!(dequantize(&q, Dtype::F32)[..3], [6.0, 4.0, 0.5]);
    let q = one_row(
        &x,
        1536.0,
        Options {
            select: Select::FourOverSixMae,
            ..one
        },
    );
    assert_eq!(
        (q.scales[0], &dequantize(&q, Dtype::F32)[..3]),
        (0x3C, &[6.0, 4.5, 0.75][..])
    );
}

#[test]
fn constants_of_sections_9_and_10() {
    assert_eq!((ms_eden::VAL_MAX, ms_eden::C), (6.072106, 1554.3984));
    assert_eq!(activation::silu(1.0).to_bits(), 0x3F3B_26A8);
    assert_eq!(activation::gelu(1.0).to_bits(), 0x3F57_585C);
    let d = |amax| scale::DecodeScale::new(&Options::default(), amax);
    assert_eq!(global_factor(&d(12.0), &d(6.0)), 72.0 / (2688.0 * 2688.0));
}

#[test]
fn maxima_of_section_4() {
    let maxima = [4.0, 5.0, 6.0, 6.5, 7.0, 7.9, 8.0];
    let bytes = |rule| maxima.map(|b| mx::block_scale(rule, false, b));
    assert_eq!(bytes(ScaleRule::Floor), [127, 127, 127, 127, 127, 127, 128]);
    assert_eq!(bytes(ScaleRule::Ceil), [127, 127, 127, 128, 128, 128, 128]);
    assert_eq!(bytes(ScaleRule::Even), [127, 127, 127, 127, 128, 128, 128]);
}
