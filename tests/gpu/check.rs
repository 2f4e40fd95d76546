//! Every operation of one configuration on both backends.

use nvfp4::numerics::*;
use nvfp4::plan::{self, HadamardRequest, Source};

use super::config::{random_options, Config, Copy, Data, Random};
use super::side::{Arena, Both, Laid, Place, Region};

/// How many calls of each operation were compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub amax: usize,
    pub quantize: usize,
    pub dequantize: usize,
    pub requantize: usize,
    pub transpose: usize,
    pub hadamard: usize,
    pub scales: usize,
}

impl Counts {
    pub fn add(&mut self, o: &Counts) {
        self.amax += o.amax;
        self.quantize += o.quantize;
        self.dequantize += o.dequantize;
        self.requantize += o.requantize;
        self.transpose += o.transpose;
        self.hadamard += o.hadamard;
        self.scales += o.scales;
    }
    pub fn total(&self) -> usize {
        self.amax
            + self.quantize
            + self.dequantize
            + self.requantize
            + self.transpose
            + self.hadamard
            + self.scales
    }
}

/// A matrix that an operation writes.
struct Output {
    at: Region,
    dtype: Dtype,
    rows: usize,
    cols: usize,
    stride: usize,
}

impl Output {
    fn new(arena: &mut Arena, r: &mut Random, rows: usize, cols: usize, poison: u8) -> Output {
        let dtype = r.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16]);
        let plain = r.one_in(2);
        let stride = cols + if plain { 0 } else { r.below(7) };
        let shift = if plain { 0 } else { r.below(5) };
        let at = arena.take(rows * stride * dtype.size(), shift * dtype.size(), poison);
        Output {
            at,
            dtype,
            rows,
            cols,
            stride,
        }
    }
    fn matrix(&self, arena: &mut Arena, cuda: bool) -> plan::Matrix {
        let (rows, cols, stride) = (self.rows as i64, self.cols as i64, self.stride as i64);
        plan::Matrix::new(
            "out",
            arena.pointer(cuda, self.at),
            self.dtype,
            rows,
            cols,
            stride,
        )
        .expect("a legal matrix")
    }
}

/// Runs the configuration; what differs, in words.
pub fn run(both: &Both, arena: &mut Arena, c: &Config, counts: &mut Counts) -> Result<(), String> {
    let mut r = Random::new(c.key ^ 0x55);
    let mut laid = Laid::new(arena, c);
    let fail = |e: nvfp4::Error| format!("an error: {e}");
    let mut names = vec![("x".to_string(), laid.x), ("stats".to_string(), laid.stats)];
    let name_place = |names: &mut Vec<(String, Region)>, what: &str, p: &Place| {
        names.push((format!("{what} codes"), p.codes));
        names.push((format!("{what} scales"), p.scales));
        names.push((format!("{what} amax"), p.amax));
    };
    for (what, p) in [("rowwise", &laid.rowwise), ("columnwise", &laid.columnwise)] {
        if let Some(p) = p {
            name_place(&mut names, what, p);
        }
    }

    // Lay out the outputs of all later operations, so that one upload and one comparison serve them all.
    let host = laid.matrix(arena, false);
    let probe = laid
        .plan(arena, false, Source::Matrix(host))
        .map_err(fail)?;
    let copies: Vec<plan::CopyPlan> = probe.copies().copied().collect();
    let mut dequantized = Vec::new();
    let mut transposed = Vec::new();
    for copy in &copies {
        let (q, flip) = (copy.out, r.one_in(2));
        let cols = if r.one_in(3) { q.source_cols } else { q.cols };
        let (rows, cols) = if flip { (cols, q.rows) } else { (q.rows, cols) };
        let out = Output::new(arena, &mut r, rows, cols, c.poison);
        names.push((
            format!("dequantized ({:?}, transposed {flip})", out.dtype),
            out.at,
        ));
        dequantized.push((copy.columnwise, flip, out));
        if copy.options.block == Block::TwoD && q.hadamard == 0 && q.domain_rows == 0
            || q.format == Format::Bf16 && q.hadamard == 0
        {
            let turned = plan::Quantized {
                rows: q.cols,
                cols: q.rows,
                source_cols: q.rows,
                ..q
            };
            let p = Place::new(arena, &Copy::new(copy.options), &turned, c.poison);
            name_place(&mut names, "transposed", &p);
            transposed.push((copy.columnwise, p));
        }
    }
    let again = requantize_config(&mut r, c, &copies);
    let mut again_places = (None, None);
    if let Some((_, again)) = &again {
        let place = |arena: &mut Arena, copy: &Option<Copy>, columnwise| {
            copy.map(|k| {
                Place::new(
                    arena,
                    &k,
                    &k.shape(again.rows, again.cols, columnwise).expect("legal"),
                    c.poison,
                )
            })
        };
        again_places = (
            place(arena, &again.rowwise, false),
            place(arena, &again.columnwise, true),
        );
        for p in [&again_places.0, &again_places.1].into_iter().flatten() {
            name_place(&mut names, "requantized", p);
        }
    }
    let hadamard = hadamard_call(&mut r, c);
    let mut turned = None;
    if let Some((request, rows, cols)) = &hadamard {
        let out = Output::new(arena, &mut r, *rows, *cols, c.poison);
        names.push((format!("hadamard {request:?} to {:?}", out.dtype), out.at));
        turned = Some(out);
    }
    let scale_source = copies
        .iter()
        .find(|k| k.out.scale_layout == ScaleLayout::Linear && k.out.scale_cols() > 0)
        .copied();
    let mut swizzled = Region::default();
    let mut linear = Region::default();
    if let Some(k) = &scale_source {
        let bytes = layout::scale_bytes(ScaleLayout::Swizzled, k.out.rows, k.out.scale_cols());
        swizzled = arena.take(bytes, 0, c.poison);
        linear = arena.take(k.out.rows * k.out.scale_cols(), 3, c.poison);
        names.push(("swizzled".into(), swizzled));
        names.push(("unswizzled".into(), linear));
    }
    // Only the GPU wants scratch memory.
    let first_rows = copies.first().map_or(0, |k| k.out.rows);
    laid.workspace = arena.take(if c.stats { 32 * first_rows } else { 0 }, 0, c.poison);
    arena.upload();

    for cuda in [false, true] {
        let stream = both.stream.raw();
        let x = laid.matrix(arena, cuda);
        let p = laid.plan(arena, cuda, Source::Matrix(x)).map_err(fail)?;
        let on = |r: nvfp4::Result<()>| {
            r.map_err(|e| format!("{} says {e}", if cuda { "the GPU" } else { "the CPU" }))
        };
        on(if cuda {
            both.cuda.amax(&p, stream)
        } else {
            both.cpu.amax(&p)
        })?;
        on(if cuda {
            both.cuda.quantize(&p, stream)
        } else {
            both.cpu.quantize(&p)
        })?;
        let find = |columnwise| {
            p.copies()
                .find(|k| k.columnwise == columnwise)
                .expect("both plans have it")
                .out
        };
        for (columnwise, flip, out) in &dequantized {
            let out = out.matrix(arena, cuda);
            let d = plan::dequantize::plan(find(*columnwise), *flip, out).map_err(fail)?;
            on(if cuda {
                both.cuda.dequantize(&d, stream)
            } else {
                both.cpu.dequantize(&d)
            })?;
        }
        for (columnwise, place) in &transposed {
            let buffers = place.buffers(arena, cuda);
            let x = find(*columnwise);
            let t = plan::transpose::plan(x, x.scale_layout, &buffers).map_err(fail)?;
            on(if cuda {
                both.cuda.transpose(&t, stream)
            } else {
                both.cpu.transpose(&t)
            })?;
        }
        if let Some((columnwise, again)) = &again {
            let second = Laid {
                config: *again,
                x: laid.x,
                stride: laid.stride,
                rowwise: again_places.0,
                columnwise: again_places.1,
                seed: laid.seed,
                stats: laid.stats,
                workspace: Region::default(),
            };
            let q = second
                .plan(arena, cuda, Source::Quantized(find(*columnwise)))
                .map_err(fail)?;
            on(if cuda {
                both.cuda.quantize(&q, stream)
            } else {
                both.cpu.quantize(&q)
            })?;
        }
        if let (Some((request, ..)), Some(out)) = (&hadamard, &turned) {
            let y = out.matrix(arena, cuda);
            let h = plan::hadamard::plan(request, x, y).map_err(fail)?;
            on(if cuda {
                both.cuda.hadamard(&h, stream)
            } else {
                both.cpu.hadamard(&h)
            })?;
        }
        if let Some(k) = &scale_source {
            let q = find(k.columnwise);
            let (rows, cols) = (q.rows as i64, q.scale_cols() as i64);
            let to = arena.pointer(cuda, swizzled);
            let s = plan::scales::plan(
                rows,
                cols,
                q.scales,
                q.scale_stride as i64,
                to,
                swizzled.bytes,
            )
            .map_err(fail)?;
            on(if cuda {
                both.cuda.swizzle(&s, stream)
            } else {
                both.cpu.swizzle(&s)
            })?;
            let back = arena.pointer(cuda, linear);
            let u = plan::scales::plan(rows, cols, back, 0, to, swizzled.bytes).map_err(fail)?;
            on(if cuda {
                both.cuda.unswizzle(&u, stream)
            } else {
                both.cpu.unswizzle(&u)
            })?;
        }
    }
    both.compare(arena, laid.workspace, &names)?;
    counts.amax += 1;
    counts.quantize += 1;
    counts.dequantize += dequantized.len();
    counts.transpose += transposed.len();
    counts.requantize += again.is_some() as usize;
    counts.hadamard += hadamard.is_some() as usize;
    counts.scales += 2 * scale_source.is_some() as usize;
    Ok(())
}

/// Another quantization of one of the copies, if one can be requantized.
fn requantize_config(
    r: &mut Random,
    c: &Config,
    copies: &[plan::CopyPlan],
) -> Option<(bool, Config)> {
    let source = copies.iter().find(|k| k.out.hadamard == 0)?;
    let mut again = Config {
        rows: source.out.rows,
        cols: source.out.cols,
        stats: false,
        device_seed: false,
        ..*c
    };
    again.origin = (0, 0);
    for _ in 0..100 {
        let which = 1 + r.below(3);
        again.rowwise = (which & 1 != 0).then(|| Copy::new(random_options(r)));
        again.columnwise = (which & 2 != 0).then(|| Copy::new(random_options(r)));
        let legal = |k: &Option<Copy>, columnwise| {
            k.is_none_or(|k| k.shape(again.rows, again.cols, columnwise).is_some())
        };
        // As in `random_config`: the bits of a NaN that a transform makes.
        let bad = matches!(c.data, Data::Bad | Data::Huge);
        let shows = |k: &Option<Copy>| {
            k.is_some_and(|k| k.options.format == Format::Bf16 && k.options.hadamard != 0)
        };
        if bad && (shows(&again.rowwise) || shows(&again.columnwise)) {
            continue;
        }
        if legal(&again.rowwise, false) && legal(&again.columnwise, true) {
            return Some((source.columnwise, again));
        }
    }
    None
}

/// A transform of x, and y's shape. Data whose transform may not be finite is left out: the bits of a NaN that
/// arithmetic makes are not part of the contract.
fn hadamard_call(r: &mut Random, c: &Config) -> Option<(HadamardRequest, usize, usize)> {
    if matches!(c.data, Data::Bad | Data::Huge) {
        return None;
    }
    let n = r.pick(&[16, 32, 64, 128]);
    let columns = r.one_in(2);
    let along = if columns { c.rows } else { c.cols };
    let inverse = along % n == 0 && r.one_in(2);
    let out = if inverse {
        along - r.below(n.min(along + 1))
    } else {
        along.next_multiple_of(n)
    };
    let out = if inverse && out.next_multiple_of(n) != along {
        along
    } else {
        out
    };
    let request = HadamardRequest {
        n: n as u32,
        columns,
        inverse,
        signs: r.pick(&[
            Signs::Default,
            Signs::Mask16(0),
            Signs::Seeded,
            Signs::Mask([1, 2, 3, u32::MAX]),
        ]),
        seed: c.seed,
        offset: c.offset,
    };
    let (rows, cols) = if columns {
        (out, c.cols)
    } else {
        (c.rows, out)
    };
    Some((request, rows, cols))
}
