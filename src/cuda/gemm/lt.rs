//! Large products by cuBLASLt: NVFP4 operands expanded to bf16 in the workspace, exactly; BF16 ones as they are.

use super::hopper::is_aligned;
use super::lt_library::{alignment_of, Elements, Shape, WORKSPACE};
use super::params::{rows_are_aligned, Epilogue, ExpandRows, Operand, Scalars};
use super::{numerics_of, Candidate, Mode, ALIGN};
use crate::cuda::driver::Stream;
use crate::cuda::Cuda;
use crate::numerics::{Activation, Dtype, Format};
use crate::plan::{GemmOutput, GemmPlan, Matrix, Quantized};
use crate::Result;

pub const CANDIDATE: Candidate = Candidate {
    provider: 2,
    name: "cublaslt",
    accepts,
    run,
};

/// Products with fewer multiplications do not pay for the expansion.
const LARGE: usize = 1 << 33;

fn accepts(cuda: &Cuda, plan: &GemmPlan, forced: bool) -> std::result::Result<usize, String> {
    let library = cuda.gemm.lt.as_ref().map_err(Clone::clone)?;
    let (a, b) = (&plan.a, &plan.b);
    if numerics_of(plan) != Mode::Fast {
        return Err("not FAST".into());
    }
    let work = plan.m.saturating_mul(plan.n).saturating_mul(plan.k);
    if work < LARGE && !forced {
        return Err("too small to pay for the expansion".into());
    }
    let fits = |q: &Quantized| match q.format {
        Format::Nvfp4 => is_aligned(q, [0, 0], 1),
        Format::Bf16 => rows_are_aligned(q),
        Format::Mxfp4 => false,
    };
    if plan.k == 0 || !fits(a) || !fits(b) {
        return Err("operands are not aligned NVFP4 or BF16 with K a multiple of 128".into());
    }
    takes_the_rest(plan)?;
    if let GemmOutput::Matrix(d) = &plan.d {
        library.has(&shape(plan, d), [std::ptr::null(); 2])?;
    }
    Ok(ALIGN + WORKSPACE + expanded(a) + expanded(b))
}

/// What cuBLASLt does besides the product, whatever the operands.
pub fn takes_the_rest(plan: &GemmPlan) -> std::result::Result<(), String> {
    let plain = plan.activation == Activation::None
        && plan.bias.is_null()
        && plan.row_factors.is_null()
        && plan.col_factors.is_null()
        && plan.a.domain_rows == 0
        && plan.b.domain_rows == 0
        && plan.batch == 1;
    if !plain {
        return Err("its epilogue is alpha and beta alone".into());
    }
    if let GemmOutput::Matrix(d) = &plan.d {
        let aligned = |m: &Matrix| {
            (m.data as usize).is_multiple_of(16) && (m.stride * m.dtype.size()).is_multiple_of(16)
        };
        if !aligned(d) || plan.c.is_some_and(|c| c.dtype != d.dtype || !aligned(&c)) {
            return Err("C and D are not of one type and 16-byte aligned".into());
        }
    }
    Ok(())
}

/// Bytes of an operand in bf16.
fn expanded(q: &Quantized) -> usize {
    match q.format {
        Format::Bf16 => 0,
        _ => (2 * q.rows * q.cols).next_multiple_of(ALIGN),
    }
}

fn shape(plan: &GemmPlan, d: &Matrix) -> Shape {
    let ld = |q: &Quantized| match q.format {
        Format::Bf16 => q.code_stride / 2,
        _ => q.cols,
    } as i64;
    Shape {
        elements: Elements::Bf16,
        m: plan.m as u64,
        n: plan.n as u64,
        k: plan.k as u64,
        lda: ld(&plan.a),
        ldb: ld(&plan.b),
        ldc: plan.c.map_or(d.stride, |c| c.stride) as i64,
        ldd: d.stride as i64,
        dtype: data_type(d.dtype),
        alignment: alignment_of(&[
            d.data,
            plan.c.map_or(d.data, |c| c.data),
            as_is(&plan.a),
            as_is(&plan.b),
        ]),
    }
}

/// Where a BF16 operand lies; others are expanded to aligned memory.
fn as_is(q: &Quantized) -> *const u8 {
    match q.format {
        Format::Bf16 => q.codes,
        _ => std::ptr::null(),
    }
}

/// cudaDataType.
pub fn data_type(dtype: Dtype) -> i32 {
    match dtype {
        Dtype::F32 => 0,
        Dtype::F16 => 2,
        Dtype::Bf16 => 14,
    }
}

fn run(cuda: &Cuda, plan: &GemmPlan, d: &Matrix, workspace: *mut u8, stream: Stream) -> Result<()> {
    let Ok(library) = &cuda.gemm.lt else {
        return Ok(()); // `accepts` has said no
    };
    let k = &cuda.gemm.expand;
    let scalars: *mut f32 = workspace.cast();
    let own = workspace.wrapping_add(ALIGN);
    let a_at = own.wrapping_add(WORKSPACE);
    let b_at = a_at.wrapping_add(expanded(&plan.a));
    let mut factor = 1.0;
    let mut operands = [std::ptr::null::<u8>(); 2];
    for (i, (q, out)) in [(&plan.a, a_at), (&plan.b, b_at)].into_iter().enumerate() {
        operands[i] = match q.format {
            Format::Bf16 => q.codes,
            _ => {
                factor *= 128.0;
                let p = ExpandRows {
                    x: Operand::new(q),
                    out,
                    rows: q.rows as i32,
                    k_groups: (q.cols / 128) as i32,
                };
                let blocks = q.rows * (q.cols / 16);
                k.rows.launch(stream, blocks.div_ceil(256), 4, &p)?;
                out
            }
        };
    }
    let p = Scalars {
        out: scalars,
        epilogue: Epilogue::new(plan, &plan.a, &plan.b, plan.c.as_ref(), d, factor),
    };
    k.scalars.launch(stream, 1, 1, &p)?;
    let c = plan.c.map_or(d.data, |c| c.data).cast_const();
    library.run(
        &shape(plan, d),
        scalars,
        [operands[0], operands[1], c],
        [std::ptr::null(); 2],
        d.data,
        own,
        stream,
    )
}
