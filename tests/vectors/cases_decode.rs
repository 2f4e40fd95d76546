//! Vectors of decoding, from codes and scale bytes that are chosen, not computed.

use crate::describe::dequantize_case;
use crate::Vector;
use nvfp4::numerics::matrix::Quantized;
use nvfp4::numerics::*;

pub fn all() -> Vec<Vector> {
    let d = Options::default();
    let mx = Options {
        format: Format::Mxfp4,
        ..d
    };
    let centric = Options {
        scale_rule: ScaleRule::EncodeCentric,
        ..mx
    };
    let single = Options {
        chain: Chain::Single,
        ..d
    };
    let both_nibbles: Vec<u8> = (0..16).flat_map(|c| [c, 15 - c]).collect();
    let ends = [0u8, 1, 127, 253, 254, 255];
    let amaxes = [6.0, 0.0, 1e-44, 1e-36, 3.0e38, f32::MAX, 7.6e35];
    let types = [Dtype::F32, Dtype::Bf16, Dtype::F16];
    let mx_range = |o| types.map(|t| dequantize_case(&chosen(o, &ends, &[2, 3, 7, 15], &[]), t));
    vec![
        Vector {
            name: "decode_codes",
            section: 1,
            rule: "All sixteen codes in both nibbles at scale 1.",
            cases: vec![dequantize_case(
                &chosen(d, &[0x38], &both_nibbles, &[2688.0]),
                Dtype::F32,
            )],
        },
        Vector {
            name: "decode_e4m3",
            section: 1,
            rule: "Every scale byte without a sign, times 1, without outer scale.",
            cases: vec![dequantize_case(
                &chosen(single, &(0..128).collect::<Vec<u8>>(), &[2], &[]),
                Dtype::F32,
            )],
        },
        Vector {
            name: "decode_e8m0",
            section: 1,
            rule: "Scale byte 0 is 2^-127, 255 is NaN; values are clamped to the \
                   largest finite.",
            cases: mx_range(mx).into_iter().chain(mx_range(centric)).collect(),
        },
        Vector {
            name: "decode_range",
            section: 2,
            rule: "The decode formula over the whole range of amax, in each output type.",
            cases: amaxes
                .iter()
                .flat_map(|a| {
                    let q = chosen(d, &[0x01, 0x7E], &[0, 1, 2, 5, 7, 8, 15], &[*a]);
                    types.map(|t| dequantize_case(&q, t))
                })
                .collect(),
        },
    ]
}

/// Codes and scale bytes chosen, not computed: every row holds the same codes under its own scale bytes.
fn chosen(options: Options, scales: &[u8], codes: &[u8], amax: &[f32]) -> Quantized {
    let mut row = vec![0; codes.len().div_ceil(2)];
    codes
        .iter()
        .enumerate()
        .for_each(|(i, c)| e2m1::set(&mut row, i, *c));
    let blocks = codes.len().div_ceil(options.format.block());
    Quantized {
        rows: scales.len(),
        cols: codes.len(),
        source_cols: codes.len(),
        codes: row.repeat(scales.len()),
        scales: scales.iter().flat_map(|s| vec![*s; blocks]).collect(),
        amax: amax.to_vec(),
        options: scale::resolve(&options),
        signs: [0; 4],
        transposed: false,
    }
}
