//! The trial of one candidate: small products in every mode that it takes. In FAST all partial sums are exact, so that
//! any order of adding gives the same bits; in BLOCK and HARDWARE codes and scale bytes are any.

use super::{supports, workspace, Room, NATIVE};
use crate::cuda::driver::{Memory, Stream};
use crate::cuda::trial::{elements, matrix, shape, Numbers, Place, Side, Twin};
use crate::cuda::Cuda;
use crate::numerics::{Accumulate, Dtype, Format, Options, ScaleLayout};
use crate::plan::gemm::plan;
use crate::plan::{GemmPlan, GemmRequest};
use crate::Result;

/// M, N and K: tiles and tails; few rows; K that every candidate takes, and any.
const SHAPES: [(usize, usize, usize); 3] = [(136, 72, 288), (9, 130, 256), (33, 40, 77)];

/// Candidates are told apart by pairs of formats.
const PAIRS: [(Format, Format); 3] = [
    (Format::Nvfp4, Format::Nvfp4),
    (Format::Mxfp4, Format::Mxfp4),
    (Format::Bf16, Format::Nvfp4),
];

/// None: it takes none of the products, on this device.
pub fn run(cuda: &Cuda, t: &mut Twin, provider: u32) -> Result<Option<Option<String>>> {
    debug_assert!(NATIVE.iter().any(|n| n.provider == provider));
    let mut taken = false;
    for (formats, size) in PAIRS
        .iter()
        .flat_map(|f| SHAPES.iter().map(move |s| (f, s)))
    {
        for accumulate in [Accumulate::Fast, Accumulate::Block, Accumulate::Hardware] {
            if accumulate == Accumulate::Hardware && formats.0 == Format::Bf16 {
                continue; // no such thing
            }
            match product(cuda, t, provider, *formats, *size, accumulate)? {
                None => continue,
                Some(None) => taken = true,
                Some(Some(how)) => {
                    let (m, n, k) = size;
                    return Ok(Some(Some(format!(
                        "{:?} x {:?}, {accumulate:?}, [{m}, {k}] x [{n}, {k}]^T: {how}",
                        formats.0, formats.1
                    ))));
                }
            }
        }
    }
    Ok(taken.then_some(None))
}

/// What differs in one product; None: not taken.
pub fn product(
    cuda: &Cuda,
    t: &mut Twin,
    provider: u32,
    formats: (Format, Format),
    (m, n, k): (usize, usize, usize),
    accumulate: Accumulate,
) -> Result<Option<Option<String>>> {
    t.reset();
    let mut r = Numbers::new((m * k) as u64);
    let exact = accumulate == Accumulate::Fast;
    let a = operand(
        t,
        &mut r,
        formats.0,
        m,
        k,
        exact,
        ["A", "A's scales", "A's amax"],
    )?;
    let b = operand(
        t,
        &mut r,
        formats.1,
        n,
        k,
        exact,
        ["B", "B's scales", "B's amax"],
    )?;
    let d = t.take("D", 4 * m * n);
    let make = |t: &mut Twin, side: Side, workspace: Option<&Memory>, bytes| -> Result<GemmPlan> {
        let request = GemmRequest {
            accumulate: match (side, accumulate) {
                (Side::Host, Accumulate::Fast) => Accumulate::Block,
                _ => accumulate,
            },
            provider: if side == Side::Host { 0 } else { provider },
            workspace: workspace.map_or(std::ptr::null_mut(), Memory::pointer),
            workspace_bytes: bytes,
            ..GemmRequest::default()
        };
        let d = matrix(t, side, d, Dtype::F32, m, n)?;
        let (a, b) = (a.bound(t, side)?, b.bound(t, side)?);
        plan(&request, side.device(), a, b, None, Some(d))
    };
    let query = make(t, Side::Device, None, 0)?;
    if supports(cuda, &query).is_err() {
        return Ok(None);
    }
    let need = workspace(cuda, &query, Room::Ample);
    let own = match need {
        0 => None,
        need => Some(Memory::new(need)?),
    };
    t.run(
        Some(d),
        |t| {
            let plan = make(t, Side::Host, None, 0)?;
            t.cpu.gemm(&plan)
        },
        |t, stream: Stream| super::run(cuda, &make(t, Side::Device, own.as_ref(), need)?, stream),
    )
    .map(Some)
}

fn operand(
    t: &mut Twin,
    r: &mut Numbers,
    format: Format,
    rows: usize,
    k: usize,
    exact: bool,
    names: [&'static str; 3],
) -> Result<Place> {
    let options = Options {
        format,
        scale_layout: match format {
            Format::Mxfp4 => ScaleLayout::Swizzled,
            _ => ScaleLayout::Linear,
        },
        ..Options::default()
    };
    let place = Place::take(t, shape(&options, rows, k, false)?, names);
    let codes = match format {
        Format::Bf16 => elements(
            Dtype::Bf16,
            (0..rows * k).map(|_| match exact {
                true => (r.below(9) as f32 - 4.0) / 2.0,
                false => r.normal(),
            }),
        ),
        _ => {
            let width = k.div_ceil(2);
            let last = if k % 2 == 1 { 15 } else { 255 };
            (0..rows * width)
                .map(|i| r.next() as u8 & if i % width == width - 1 { last } else { 255 })
                .collect()
        }
    };
    let scales: Vec<u8> = (0..place.scales.bytes)
        .map(|_| match (format, exact) {
            (Format::Mxfp4, true) => 127 + r.below(2) as u8,
            (Format::Mxfp4, false) => 110 + r.below(36) as u8,
            (_, true) => 0x38 + 8 * r.below(2) as u8,
            // Now and then the NaN.
            (_, false) if r.below(400) == 0 => 127,
            (_, false) => r.below(127) as u8,
        })
        .collect();
    t.fill(place.codes, &codes);
    t.fill(place.scales, &scales);
    t.fill(
        place.amax,
        &vec![3.5f32.to_le_bytes(); place.amax.bytes / 4].concat(),
    );
    Ok(place)
}
