//! Sharded equals whole: with the same given amax, seed and offset, and the slice's origin in the descriptor, quantizing
//! a slice through the C ABI gives the bytes of slicing the whole result, stochastic rounding included.

mod common;

use common::*;
use nvfp4::numerics::quantize::{quantize as reference, Call};
use nvfp4::numerics::*;

/// Where rows and columns of the source may be cut under these options: (rows, columns).
fn cuts(o: &Options, columnwise: bool) -> (usize, usize) {
    let block = o.format.block();
    let along = block.max(o.hadamard as usize);
    let across = if o.block == Block::TwoD { block } else { 1 };
    if columnwise {
        (along, across)
    } else {
        (across, along)
    }
}

#[test]
fn slices_equal_the_slice_of_the_whole() {
    let mut random = Random::new(41);
    let contexts = [1, 2].map(Ctx::new);
    let plain = Options::default();
    let stochastic = Options {
        rounding: Rounding::Stochastic,
        ..plain
    };
    let variants = [
        plain,
        stochastic,
        Options {
            hadamard: 16,
            ..stochastic
        },
        Options {
            hadamard: 64,
            signs: Signs::Seeded,
            ..stochastic
        },
        Options {
            block: Block::TwoD,
            ..plain
        },
        Options {
            block: Block::TwoD,
            ..stochastic
        },
        Options {
            select: Select::FourOverSixMse,
            ..stochastic
        },
        Options {
            block: Block::TwoD,
            select: Select::FourOverSixMae,
            ..stochastic
        },
        Options {
            select: Select::MsEden,
            hadamard: 128,
            signs: Signs::Seeded,
            ..plain
        },
        Options {
            format: Format::Mxfp4,
            ..stochastic
        },
        Options {
            format: Format::Mxfp4,
            block: Block::TwoD,
            scale_rule: ScaleRule::EncodeCentric,
            ..stochastic
        },
        Options {
            format: Format::Mxfp4,
            hadamard: 64,
            ..stochastic
        },
    ];
    let (rows, cols) = (272, 400);
    for options in variants {
        let x = Dense::filled(Dtype::Bf16, rows, cols, || random.normal());
        for columnwise in [false, true] {
            // The whole one is itself a slice of a larger matrix.
            let origin = (1280u64, (1u64 << 32) + 128);
            let given = [5.5f32];
            let call = Call {
                options,
                columnwise,
                seed: 0x1234_5678_9ABC_DEF0,
                offset: (1 << 61) + 7,
                origin,
                amax: matrix::has_amax(&options).then_some(&given),
                ..Call::default()
            };
            let whole = reference(&x.reference(), &call).unwrap();
            let (row_cut, col_cut) = cuts(&options, columnwise);
            for _ in 0..6 {
                let mut range = |len: usize, cut: usize| {
                    let first = random.below(len / cut) * cut;
                    first..(first + (1 + random.below(4)) * cut * random.pick(&[1, 3])).min(len)
                };
                let (r, c) = (range(rows, row_cut), range(cols, col_cut));
                let slice = x.slice(r.clone(), c.clone());
                let call = Call {
                    origin: (origin.0 + r.start as u64, origin.1 + c.start as u64),
                    ..call
                };
                for ctx in &contexts {
                    let part = quantize_call(ctx, &call, &slice).owned(&options);
                    // In the copy's orientation.
                    let (first_row, first_col) = if columnwise {
                        (c.start, r.start)
                    } else {
                        (r.start, c.start)
                    };
                    let what =
                        format!("{options:?} columnwise {columnwise}, rows {r:?} columns {c:?}");
                    for i in 0..part.rows {
                        for j in 0..part.source_cols {
                            let (have, want) =
                                (part.code(i, j), whole.code(first_row + i, first_col + j));
                            assert_eq!(have, want, "{what}: code [{i}][{j}]");
                        }
                        let block = options.format.block();
                        for b in 0..part.source_cols.div_ceil(block) {
                            let want = whole.scale_byte(first_row + i, first_col / block + b);
                            assert_eq!(part.scale_byte(i, b), want, "{what}: scale [{i}][{b}]");
                        }
                    }
                }
            }
        }
    }
}

/// Rank-local amax is not the whole's: the API gives other bytes then, and the same with the reduced one.
#[test]
fn two_shards_with_the_reduced_amax_are_the_whole() {
    let ctx = Ctx::new(1);
    let o = Options::default();
    let mut random = Random::new(42);
    let mut x = Dense::filled(Dtype::F32, 64, 64, || random.normal().clamp(-0.9, 0.9));
    x.set(3, 3, 1.0);
    x.set(40, 5, 8.0);
    let whole = quantize_one(&ctx, &o, &x, false, None);
    assert_eq!(whole.amax, [8.0]);
    let shard = |rows: std::ops::Range<usize>, given| {
        quantize_one(&ctx, &o, &x.slice(rows, 0..64), false, given)
    };
    let joined = [
        shard(0..32, Some(&[8.0][..])),
        shard(32..64, Some(&[8.0][..])),
    ];
    let bytes = |p: &Packed, q: &[u8], n: usize| q[..n.min(p.codes.len())].to_vec();
    let codes: Vec<u8> = joined
        .iter()
        .flat_map(|p| bytes(p, &p.codes, 32 * 32))
        .collect();
    let scales: Vec<u8> = joined
        .iter()
        .flat_map(|p| bytes(p, &p.scales, 32 * 4))
        .collect();
    assert_eq!(codes, whole.codes[..64 * 32]);
    assert_eq!(scales, whole.scales[..64 * 4]);
    let local = shard(0..32, None);
    assert_eq!(local.amax, [1.0]);
    assert_ne!(local.scales[..32 * 4], whole.scales[..32 * 4]);
}
