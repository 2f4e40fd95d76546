//! Groups of tokens, their copies and products through the C ABI, and what the loop over the groups gives.
#![allow(dead_code)]

use super::common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::gemm::{gemm as product_reference, Epilogue};
use nvfp4::numerics::quantize::{quantize as quantize_reference, Call};
use nvfp4::numerics::rounding::{bf16_bits, f16_bits};
use nvfp4::numerics::*;
use std::ptr::{null, null_mut};

/// Offsets of groups, and a bound of the last one.
#[derive(Clone, Debug)]
pub struct Groups {
    pub offsets: Vec<i64>,
    pub bound: usize,
}

impl Groups {
    pub fn random(random: &mut Random) -> Groups {
        let count = 1 + random.below(9);
        let mut at = if random.below(4) == 0 {
            random.below(20)
        } else {
            0
        };
        let mut offsets = vec![at as i64];
        let none = random.below(12) == 0;
        for _ in 0..count {
            at += match random.below(6) {
                _ if none => 0,
                0 | 1 => 0,
                2 => 1,
                3 => random.pick(&[16, 32, 128]),
                _ => random.below(70),
            };
            offsets.push(at as i64);
        }
        let spare = if random.below(2) == 0 {
            0
        } else {
            random.below(40)
        };
        Groups {
            offsets,
            bound: at + spare,
        }
    }
    pub fn count(&self) -> usize {
        self.offsets.len() - 1
    }
    pub fn range(&self, g: usize) -> std::ops::Range<usize> {
        self.offsets[g] as usize..self.offsets[g + 1] as usize
    }
    pub fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count()).map(|g| self.range(g).len())
    }
    pub fn total(&self) -> usize {
        self.sizes().sum()
    }
    /// Where the columns of each group start, and the end of the last.
    pub fn starts(&self, align: usize) -> Vec<usize> {
        let mut starts = vec![0];
        for n in self.sizes() {
            starts.push(starts.last().unwrap() + n.div_ceil(align) * align);
        }
        starts
    }
}

/// The rule of docs/abi.md, "Groups".
pub fn align_of(o: &Options, asked: u32) -> usize {
    let block = if o.format == Format::Mxfp4 { 32 } else { 16 };
    let swizzled = o.scale_layout == ScaleLayout::Swizzled && o.format != Format::Bf16;
    match asked {
        0 => block
            .max(o.hadamard as usize)
            .max(if swizzled { 4 * block } else { 0 }),
        n => n as usize,
    }
}

pub fn columns_bound(g: &Groups, o: &Options, asked: u32) -> usize {
    let align = align_of(o, asked);
    (g.bound + g.count().min(g.bound) * (align - 1)) / align * align
}

/// The copies of one call, in poisoned buffers.
pub struct GroupedCopies {
    pub rowwise: Option<Packed>,
    pub columnwise: Option<Packed>,
    options: (Options, Options),
    align: u32,
}

impl GroupedCopies {
    pub fn new(
        g: &Groups,
        x: &Dense,
        which: usize,
        options: (Options, Options),
        align: u32,
        poison: u8,
        pad: usize,
    ) -> GroupedCopies {
        let room = |o: &Options, rows, cols| {
            let mut copy = Packed::room(o, rows, cols, poison, pad);
            let poison = f32::from_bits(u32::from_ne_bytes([poison; 4]));
            let has = matrix::has_amax(&scale::resolve(o));
            copy.amax = vec![poison; if has { g.count() } else { 0 }];
            copy.q.amax_count = copy.amax.len();
            copy
        };
        let columns = columns_bound(g, &options.1, align);
        GroupedCopies {
            rowwise: (which & 1 != 0).then(|| room(&options.0, g.bound, x.cols)),
            columnwise: (which & 2 != 0).then(|| room(&options.1, x.cols, columns)),
            options,
            align,
        }
    }

    #[track_caller]
    pub fn quantize(&mut self, ctx: &Ctx, g: &Groups, x: &Dense, call: &Call, aligned: bool) {
        let mut quantize = desc_of(call);
        quantize.rowwise = c_options(&self.options.0);
        quantize.columnwise = c_options(&self.options.1);
        let mut desc: nvfp4_grouped_quantize_desc = zero();
        desc.quantize = &quantize;
        desc.groups = g.count() as i64;
        desc.offsets = g.offsets.as_ptr();
        desc.column_align = if aligned { self.align } else { 0 };
        let x = x.c();
        let row = self.rowwise.as_mut().map_or(null_mut(), |c| c.c());
        let col = self.columnwise.as_mut().map_or(null_mut(), |c| c.c());
        // SAFETY: valid buffers of the sizes they say.
        ok(unsafe { nvfp4_grouped_quantize(ctx.0, &desc, &x, row, col, null_mut()) });
    }

    /// Group g of the copy as the contract has it.
    pub fn reference(
        &self,
        g: &Groups,
        i: usize,
        x: &Dense,
        call: &Call,
        columnwise: bool,
    ) -> matrix::Quantized {
        let rows = g.range(i);
        let part = x.slice(rows.clone(), 0..x.cols);
        let options = if columnwise {
            self.options.1
        } else {
            self.options.0
        };
        let start = g.starts(align_of(&options, self.align))[i];
        let first = if columnwise { start } else { rows.start };
        // Tiles of a group start with it, which the contract's origins cannot say; without draws they say nothing.
        let origin = match (options.block, columnwise) {
            (Block::TwoD, false) => (0, 0),
            _ => (call.origin.0 + first as u64, call.origin.1),
        };
        let given = call.amax.map(|a| [a[i]]);
        let own = Call {
            options: Options {
                scale_layout: ScaleLayout::Linear,
                ..options
            },
            columnwise,
            origin,
            amax: given.as_ref().map(|a| &a[..]),
            ..*call
        };
        quantize_reference(&part.reference(), &own).unwrap()
    }

    #[track_caller]
    pub fn expect(&self, g: &Groups, x: &Dense, call: &Call, poison: u8, what: &str) {
        for (copy, columnwise) in [(&self.rowwise, false), (&self.columnwise, true)] {
            let Some(copy) = copy else { continue };
            let what = format!("{what}, columnwise {columnwise}");
            let o = if columnwise {
                self.options.1
            } else {
                self.options.0
            };
            let starts = g.starts(align_of(&o, self.align));
            let (rows, cols) = match columnwise {
                true => (x.cols, columns_bound(g, &o, self.align)),
                false => (
                    g.bound,
                    Packed::room(&o, g.bound, x.cols, 0, 0).q_cols(&o, x.cols),
                ),
            };
            assert_eq!(
                (copy.q.rows, copy.q.cols),
                (rows as i64, cols as i64),
                "{what}"
            );
            assert_eq!(copy.q.groups, g.count() as i64, "{what}");
            let mut codes = vec![poison; copy.codes.len()];
            let mut scales = vec![poison; copy.scales.len()];
            let blocks = layout::scale_cols(o.format, cols);
            let width = layout::code_row_bytes(o.format, cols);
            let pick = |given: i64, packed| if given == 0 { packed } else { given as usize };
            let stride = pick(copy.q.code_stride, width);
            let scale_stride = pick(copy.q.scale_stride, blocks);
            let place = |r, b| match o.scale_layout {
                ScaleLayout::Linear => r * scale_stride + b,
                ScaleLayout::Swizzled => layout::swizzled_offset(r, b, blocks),
            };
            if o.scale_layout == ScaleLayout::Swizzled && blocks > 0 {
                for r in 0..rows.next_multiple_of(128) {
                    for b in 0..blocks.next_multiple_of(4) {
                        if r >= rows || b >= blocks {
                            scales[place(r, b)] = 0;
                        }
                    }
                }
            }
            let bits: Vec<u32> = copy.amax.iter().map(|a| a.to_bits()).collect();
            for i in 0..g.count() {
                let want = self.reference(g, i, x, call, columnwise);
                if let Some(a) = want.amax.first() {
                    assert_eq!(bits[i], a.to_bits(), "{what}: amax of group {i}");
                } else {
                    assert!(bits.is_empty());
                }
                let (row0, col0) = if columnwise {
                    (0, starts[i])
                } else {
                    (g.range(i).start, 0)
                };
                let own = layout::code_row_bytes(o.format, want.cols);
                let own_blocks = layout::scale_cols(o.format, want.cols);
                for r in 0..want.rows {
                    let at = (row0 + r) * stride + layout::code_row_bytes(o.format, col0);
                    codes[at..][..own].copy_from_slice(&want.codes[r * own..][..own]);
                    let first = layout::scale_cols(o.format, col0);
                    for b in 0..own_blocks {
                        scales[place(row0 + r, first + b)] = want.scales[r * own_blocks + b];
                    }
                    if columnwise {
                        let end = layout::code_row_bytes(o.format, starts[i + 1] - starts[i]);
                        codes[at + own..at + end].fill(0);
                        let end = layout::scale_cols(o.format, starts[i + 1] - starts[i]);
                        for b in own_blocks..end {
                            scales[place(row0 + r, first + b)] = 0;
                        }
                    }
                }
            }
            same(&copy.codes, &codes, |i| {
                format!("{what}: code byte {i}, row {}", i / stride.max(1))
            });
            same(&copy.scales, &scales, |i| format!("{what}: scale byte {i}"));
        }
    }
}

impl Packed {
    fn q_cols(&self, o: &Options, cols: usize) -> usize {
        match o.hadamard as usize {
            0 => cols,
            n => cols.next_multiple_of(n),
        }
    }
}

/// A grouped product with all that can follow it.
#[derive(Debug)]
pub struct GroupedProduct {
    pub ragged_k: bool,
    pub g: Groups,
    /// Rows of A (ragged K), of each B, and columns of both (ragged M).
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Options,
    pub b: Options,
    pub accumulate: Accumulate,
    pub activation: Activation,
    /// None, one for all, one a group.
    pub alpha: Option<usize>,
    pub bias: Option<Dtype>,
    pub bias_shared: bool,
    pub beta: bool,
    pub row_factors: bool,
    pub dtype: Dtype,
    pub d_pad: usize,
    pub group_pad: usize,
    pub grouped_a: bool,
    pub key: u64,
}

impl GroupedProduct {
    pub fn random(
        random: &mut Random,
        pair: impl Fn(&mut Random) -> (Options, Options),
    ) -> GroupedProduct {
        let (a, mut b) = pair(random);
        let ragged_k = random.below(2) == 0;
        if ragged_k {
            b.scale_layout = a.scale_layout;
        }
        let models = a.format != Format::Bf16 && random.below(3) == 0;
        GroupedProduct {
            ragged_k,
            g: Groups::random(random),
            m: random.pick(&[1, 5, 16, 65, 130]),
            n: random.pick(&[1, 3, 16, 64, 129]),
            k: random.pick(&[0, 1, 16, 40, 128, 530]),
            a,
            b,
            accumulate: match models {
                true => random.pick(&[Accumulate::Hardware, Accumulate::HardwareK96]),
                false => random.pick(&[Accumulate::Block, Accumulate::Default]),
            },
            activation: random.pick(&[Activation::None, Activation::None, Activation::Silu]),
            alpha: random.pick(&[None, Some(0), Some(1)]),
            bias: random.pick(&[None, Some(Dtype::F32), Some(Dtype::Bf16)]),
            bias_shared: random.below(3) == 0,
            beta: random.below(3) == 0,
            row_factors: !ragged_k && random.below(3) == 0,
            dtype: random.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16]),
            d_pad: random.below(2) * random.below(5),
            group_pad: random.below(2) * random.below(7),
            grouped_a: random.below(4) != 0,
            key: random.bits(),
        }
    }

    /// The bits of D's memory after the call, and what they should be. NaN are all alike.
    #[track_caller]
    pub fn run(&self, ctx: &Ctx) -> (Vec<u32>, Vec<u32>) {
        let mut random = Random::new(self.key);
        let (g, count) = (&self.g, self.g.count());
        let call = Call {
            seed: self.key,
            ..Call::default()
        };
        let dense = |rows, cols, random: &mut Random| {
            Dense::filled(Dtype::Bf16, rows, cols, || random.normal())
        };
        // A and B as the library made them, and the contract's for each group.
        let (mut a, mut b, mut a_parts, mut b_parts) = (None, None, Vec::new(), Vec::new());
        let (mut a_copy, mut b_copy);
        let mut stack = Vec::new();
        if self.ragged_k {
            for (o, rows, copy, parts) in [
                (self.a, self.m, &mut a, &mut a_parts),
                (self.b, self.n, &mut b, &mut b_parts),
            ] {
                let x = dense(g.bound, rows, &mut random);
                let mut made = GroupedCopies::new(g, &x, 2, (o, o), 0, 0xFF, 0);
                made.quantize(ctx, g, &x, &call, true);
                parts.extend((0..count).map(|i| made.reference(g, i, &x, &call, true)));
                *copy = made.columnwise;
            }
            a_copy = a.take().unwrap();
            b_copy = b.take().unwrap();
        } else {
            let x = dense(g.bound, self.k, &mut random);
            if self.grouped_a {
                let mut made = GroupedCopies::new(g, &x, 1, (self.a, self.a), 0, 0xFF, 0);
                made.quantize(ctx, g, &x, &call, false);
                a_parts.extend((0..count).map(|i| made.reference(g, i, &x, &call, false)));
                a_copy = made.rowwise.unwrap();
            } else {
                // One matrix, with one amax for all groups.
                a_copy = quantize_one(ctx, &self.a, &x, false, None);
                let whole = a_copy.owned(&self.a);
                for i in 0..count {
                    let one = Call {
                        options: Options {
                            scale_layout: ScaleLayout::Linear,
                            ..self.a
                        },
                        amax: (!whole.amax.is_empty()).then_some(&whole.amax),
                        ..Call::default()
                    };
                    let part = x.slice(g.range(i), 0..self.k);
                    a_parts.push(quantize_reference(&part.reference(), &one).unwrap());
                }
            }
            for _ in 0..count {
                let w = dense(self.n, self.k, &mut random);
                let made = quantize_one(ctx, &self.b, &w, false, None);
                b_parts.push(made.owned(&self.b));
                stack.push(made);
            }
            b_copy = stack[0].clone();
            let (codes, scales) = (b_copy.q.codes_bytes, b_copy.q.scales_bytes);
            let all = |of: fn(&Packed) -> &Vec<u8>, n: usize| -> Vec<u8> {
                stack.iter().flat_map(|p| of(p)[..n].to_vec()).collect()
            };
            b_copy.codes = all(|p| &p.codes, codes);
            b_copy.scales = all(|p| &p.scales, scales);
            b_copy.amax = stack.iter().flat_map(|p| p.amax.clone()).collect();
            b_copy.q.codes_bytes = b_copy.codes.len();
            b_copy.q.scales_bytes = b_copy.scales.len();
            b_copy.q.amax_count = b_copy.amax.len();
        }

        let (rows, n) = (if self.ragged_k { self.m } else { g.bound }, self.n);
        let stride = n + self.d_pad;
        let group = rows * stride + if self.ragged_k { self.group_pad } else { 0 };
        let matrices = if self.ragged_k { count } else { 1 };
        let elements = group * matrices;
        let poison = Dense::filled(self.dtype, 1, elements, || random.normal());
        let c = Dense::filled(Dtype::F32, 1, elements, || random.normal());
        let mut d = poison.clone();
        let view = |x: &Dense| nvfp4_matrix {
            rows: rows as i64,
            cols: n as i64,
            stride: stride as i64,
            ..x.c()
        };
        let alpha: Vec<f32> = (0..count).map(|_| random.normal()).collect();
        let beta = 0.5f32;
        let bias_dtype = self.bias.unwrap_or_default();
        let bias = Dense::filled(bias_dtype, count, n, || random.normal());
        let factors: Vec<f32> = (0..g.bound).map(|_| random.normal()).collect();

        let mut desc: nvfp4_grouped_gemm_desc = zero();
        desc.ragged = self.ragged_k as u32;
        desc.accumulate = self.accumulate as u32;
        desc.activation = self.activation as u32;
        desc.groups = count as i64;
        desc.offsets = g.offsets.as_ptr();
        if let Some(step) = self.alpha {
            desc.alpha = alpha.as_ptr();
            desc.alpha_stride = step as i64;
        }
        if self.beta {
            desc.beta = &beta;
        }
        if self.bias.is_some() {
            desc.bias = bias.c().data.cast_const();
            desc.bias_dtype = bias_dtype as u32;
            desc.bias_stride = if self.bias_shared { 0 } else { n as i64 };
        }
        if self.row_factors {
            desc.row_factors = factors.as_ptr();
        }
        if self.ragged_k {
            desc.d_group_stride = group as i64;
            desc.c_group_stride = if self.beta { group as i64 } else { 0 };
        } else {
            desc.b_codes_stride = (b_copy.codes.len() / count) as i64;
            desc.b_scales_stride = (b_copy.scales.len() / count) as i64;
            desc.b_amax_stride = (b_copy.amax.len() / count) as i64;
        }
        let c_view = view(&c);
        let d_view = view(&d);
        let c_pointer = if self.beta {
            &c_view as *const _
        } else {
            null()
        };
        // SAFETY: valid operands and room.
        ok(unsafe {
            nvfp4_grouped_gemm(
                ctx.0,
                &desc,
                a_copy.c(),
                b_copy.c(),
                c_pointer,
                &d_view,
                null_mut(),
            )
        });

        let mut want = poison.clone();
        for i in 0..count {
            let range = g.range(i);
            let first = if self.ragged_k {
                i * group
            } else {
                range.start * stride
            };
            let height = if self.ragged_k { rows } else { range.len() };
            let at = |x: &Dense| -> Vec<f32> {
                (0..height * n)
                    .map(|e| x.get(0, first + e / n * stride + e % n))
                    .collect()
            };
            let own_c = at(&c);
            let own_bias = bias.slice(if self.bias_shared { 0..1 } else { i..i + 1 }, 0..n);
            let epilogue = Epilogue {
                alpha: self.alpha.map_or(1.0, |step| alpha[i * step]),
                beta: if self.beta { beta } else { 0.0 },
                c: self.beta.then_some(matrix::Matrix::f32(&own_c, height, n)),
                bias: self.bias.map(|_| own_bias.reference()),
                activation: self.activation,
                row_factors: self.row_factors.then(|| &factors[range.clone()]),
                col_factors: None,
            };
            let product =
                product_reference(self.accumulate, &a_parts[i], &b_parts[i], &epilogue).unwrap();
            for (e, v) in product.iter().enumerate() {
                want.set(0, first + e / n * stride + e % n, *v);
            }
        }
        d.shift = 0;
        let bits = |x: &Dense| -> Vec<u32> {
            (0..elements)
                .map(|i| {
                    let v = x.get(0, i);
                    match (v.is_nan(), x.dtype) {
                        (true, _) => 0x7FC0,
                        (_, Dtype::F32) => v.to_bits(),
                        (_, Dtype::Bf16) => bf16_bits(v) as u32,
                        (_, Dtype::F16) => f16_bits(v) as u32,
                    }
                })
                .collect()
        };
        (bits(&d), bits(&want))
    }
}
