//! Four over six: the better of two block scales, one that maps the largest magnitude to 6 and one that maps it to 4
//! (docs/format.md, section 8).

use super::scale::{encode_multiplier, scaled, unrounded_block_scale, TensorScale};
use super::{e2m1, e4m3, Chain, Options, Select};

/// Does this choice try two scales a block?
pub fn is_selected(select: Select) -> bool {
    matches!(
        select,
        Select::FourOverSixMae | Select::FourOverSixMse | Select::FourOverSixAbsMax
    )
}

/// Scale byte of a block (one row) or tile (up to 16 rows) whose largest magnitude is `b`. Rows hold 16 elements,
/// tails padded with 0. The choice is made on nearest codes without `range_16_17`, whatever the options say.
pub fn block_scale(o: &Options, b: f32, t: &TensorScale, rows: &[[f32; 16]]) -> u8 {
    let base = unrounded_block_scale(o, b, t);
    let six = e4m3::encode(base);
    let four = e4m3::encode(base * 1.5);
    // Strictly: a tie, and an error that is not a number, keep six.
    if tile_error(o, four, t, rows) < tile_error(o, six, t, rows) {
        four
    } else {
        six
    }
}

/// Errors of the rows, folded as a tree with strides 8, 4, 2, 1; rows that do not exist have none.
fn tile_error(o: &Options, byte: u8, t: &TensorScale, rows: &[[f32; 16]]) -> f32 {
    let mut errors = [0f32; 16];
    for (error, row) in errors.iter_mut().zip(rows) {
        *error = row_error(o, byte, t, row);
    }
    for stride in [8, 4, 2, 1] {
        for i in 0..stride {
            errors[i] = match o.select {
                Select::FourOverSixAbsMax => larger(errors[i], errors[i + stride]),
                _ => errors[i] + errors[i + stride],
            };
        }
    }
    errors[0]
}

fn row_error(o: &Options, byte: u8, t: &TensorScale, row: &[f32; 16]) -> f32 {
    let o = Options {
        range_16_17: false,
        ..*o
    };
    let s = e4m3::decode(byte);
    let e = encode_multiplier(&o, byte, t);
    let mut error = 0f32;
    for &x in row {
        let q = e2m1::decode(e2m1::encode(scaled(&o, x, e)));
        let value = if o.chain == Chain::Single {
            q * s
        } else {
            q * s * t.amax / t.c
        };
        let d = value - x;
        error = match o.select {
            Select::FourOverSixMse => error + d * d,
            Select::FourOverSixAbsMax => larger(error, d.abs()),
            _ => error + d.abs(),
        };
    }
    error
}

/// The larger of two, NaN if either is.
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b {
        a
    } else {
        b
    }
}

#[cfg(test)]
mod tests {
    use super::super::scale::tensor_scale;
    use super::*;

    fn options(select: Select) -> Options {
        Options {
            select,
            ..Options::default()
        }
    }

    #[test]
    fn five_sixths_of_the_maximum_prefers_four() {
        // 3/4 of the largest value falls between the codes 4 and 6 at scale six, and on the code 3 at scale four.
        let mut row = [0f32; 16];
        row[0] = 6.0;
        row[1] = 4.5;
        let t = TensorScale {
            amax: 1536.0,
            c: 1536.0,
            encode: 1.0,
            decode: 1.0,
        };
        for select in [
            Select::FourOverSixMae,
            Select::FourOverSixMse,
            Select::FourOverSixAbsMax,
        ] {
            assert_eq!(
                block_scale(&options(select), 6.0, &t, &[row]),
                0x3C,
                "1.5 with {select:?}"
            );
            let mut on_the_grid = row;
            on_the_grid[1] = 0.5;
            assert_eq!(
                block_scale(&options(select), 6.0, &t, &[on_the_grid]),
                0x38,
                "1.0 with {select:?}"
            );
        }
    }

    #[test]
    fn a_tie_keeps_six_and_zero_blocks_are_zero() {
        let mut row = [0f32; 16];
        let t = tensor_scale(&options(Select::FourOverSixMae), 1536.0);
        assert_eq!(
            block_scale(&options(Select::FourOverSixMae), 0.0, &t, &[row]),
            0
        );
        row[3] = 6.0; // exact under both scales
        assert_eq!(
            block_scale(&options(Select::FourOverSixMae), 6.0, &t, &[row]),
            0x38
        );
    }

    #[test]
    fn tiles_sum_their_rows() {
        let t = tensor_scale(&options(Select::FourOverSixMae), 1536.0);
        let mut good = [0f32; 16];
        good[0] = 6.0;
        good[1] = 5.0; // exact under neither; 5 is a tie at six (error 1), at four: 5/1.5 = 3.33 -> 3 (error 0.5)
        let mut bad = [0f32; 16];
        bad[..3].copy_from_slice(&[2.0, 2.0, 2.0]); // exact at six, 2/1.5 = 1.33 -> 1.5 (error 0.25 each) at four
        let o = options(Select::FourOverSixMae);
        assert_eq!(block_scale(&o, 6.0, &t, &[good]), 0x3C);
        assert_eq!(block_scale(&o, 6.0, &t, &[good, bad]), 0x38);
        let o = options(Select::FourOverSixAbsMax);
        assert_eq!(block_scale(&o, 6.0, &t, &[good, bad]), 0x3C);
    }
}
