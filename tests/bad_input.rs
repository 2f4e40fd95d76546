//! Bad input through the C ABI: the stated status, a sentence with the values in it, and outputs as they were.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::*;
use std::mem::{offset_of, size_of};
use std::ptr::{null, null_mut};

struct Setup {
    ctx: Ctx,
    x: Dense,
    desc: nvfp4_quantize_desc,
}

impl Setup {
    fn new() -> Setup {
        Setup {
            ctx: Ctx::new(1),
            x: Dense::filled(Dtype::F32, 32, 48, || 1.5),
            desc: zero(),
        }
    }

    /// Quantizes rowwise after `spoil`, and says whether the copy's buffers were left alone.
    fn run(
        &self,
        spoil: impl FnOnce(&mut nvfp4_quantize_desc, &mut nvfp4_matrix, &mut nvfp4_quantized),
    ) -> nvfp4_status {
        let mut copy = Packed::room(&Options::default(), 32, 48, 0xA5, 0);
        copy.c();
        let (mut desc, mut x, mut q) = (self.desc, self.x.c(), copy.q);
        spoil(&mut desc, &mut x, &mut q);
        // SAFETY: what is spoilt is what the call must find.
        let status =
            unsafe { nvfp4_quantize(self.ctx.0, &desc, &x, &mut q, null_mut(), null_mut()) };
        if status != NVFP4_OK {
            let text = last_error();
            assert!(
                copy.codes.iter().chain(&copy.scales).all(|b| *b == 0xA5),
                "written in spite of: {text}"
            );
            assert!(
                copy.amax.iter().all(|a| a.to_bits() == 0xA5A5_A5A5),
                "amax written in spite of: {text}"
            );
            assert_eq!(
                (q.rows, q.cols),
                (0, 0),
                "the view was written in spite of: {text}"
            );
        }
        status
    }
}

#[test]
fn struct_size_is_read_first() {
    let s = Setup::new();
    ok(s.run(|_, _, _| {}));
    let full = size_of::<nvfp4_quantize_desc>().to_string();
    for bad in [0, 1, 8, 24, usize::MAX, 1 << 20] {
        fails(
            s.run(|d, _, _| d.struct_size = bad),
            NVFP4_ERR_STRUCT_SIZE,
            &[&bad.to_string(), &full],
        );
        fails(
            s.run(|_, x, _| x.struct_size = bad),
            NVFP4_ERR_STRUCT_SIZE,
            &[&bad.to_string(), "nvfp4_matrix"],
        );
        fails(
            s.run(|_, _, q| q.struct_size = bad),
            NVFP4_ERR_STRUCT_SIZE,
            &[&bad.to_string(), "nvfp4_quantized"],
        );
    }
    // A shorter one reads as zero from there on.
    let short = offset_of!(nvfp4_quantize_desc, seed);
    ok(s.run(|d, _, _| {
        d.struct_size = short;
        d.rowwise_amax = 8 as *const f32;
        d.stats = std::ptr::dangling_mut::<nvfp4_stats>();
    }));
}

#[test]
fn a_longer_struct_is_accepted_when_its_tail_is_zero() {
    #[repr(C)]
    struct Newer {
        desc: nvfp4_quantize_desc,
        more: [u64; 4],
    }
    let s = Setup::new();
    let mut newer = Newer {
        desc: zero(),
        more: [0; 4],
    };
    newer.desc.struct_size = size_of::<Newer>();
    let call = |newer: &Newer| {
        let mut copy = Packed::room(&Options::default(), 32, 48, 0xA5, 0);
        let x = s.x.c();
        // SAFETY: valid pointers; the descriptor is as long as it says.
        unsafe { nvfp4_quantize(s.ctx.0, &newer.desc, &x, copy.c(), null_mut(), null_mut()) }
    };
    ok(call(&newer));
    newer.more[2] = 1 << 40;
    let size = size_of::<Newer>().to_string();
    let ours = size_of::<nvfp4_quantize_desc>().to_string();
    fails(
        call(&newer),
        NVFP4_ERR_STRUCT_SIZE,
        &[&size, &ours, "not zero"],
    );
}

#[test]
fn nested_options_know_their_size() {
    let s = Setup::new();
    ok(s.run(|d, _, _| {
        d.rowwise = nvfp4_options {
            struct_size: size_of::<nvfp4_options>(),
            ..d.rowwise
        }
    }));
    // Forgotten struct_size with a field set is no silent default.
    let status = s.run(|d, _, _| {
        d.rowwise.struct_size = 0;
        d.rowwise.format = NVFP4_FORMAT_MXFP4;
    });
    fails(
        status,
        NVFP4_ERR_STRUCT_SIZE,
        &["desc.rowwise.struct_size is 0"],
    );
    fails(
        s.run(|d, _, _| d.rowwise.struct_size = 88),
        NVFP4_ERR_STRUCT_SIZE,
        &["88", "80"],
    );
}

#[test]
fn pointers_are_checked() {
    let s = Setup::new();
    fails(
        s.run(|_, x, _| x.data = null_mut()),
        NVFP4_ERR_NULL_POINTER,
        &["x is NULL"],
    );
    fails(
        s.run(|_, _, q| q.codes = null_mut()),
        NVFP4_ERR_NULL_POINTER,
        &["codes"],
    );
    fails(
        s.run(|_, _, q| q.scales = null_mut()),
        NVFP4_ERR_NULL_POINTER,
        &["scales"],
    );
    fails(
        s.run(|_, _, q| q.amax = null_mut()),
        NVFP4_ERR_NULL_POINTER,
        &["amax"],
    );
    let shifted = |p: *mut std::ffi::c_void, by: usize| p.cast::<u8>().wrapping_add(by).cast();
    for by in [1, 2, 3] {
        fails(
            s.run(|_, x, _| x.data = shifted(x.data, by)),
            NVFP4_ERR_ALIGNMENT,
            &["x", "4 bytes"],
        );
        fails(
            s.run(|_, _, q| q.amax = shifted(q.amax.cast(), by).cast()),
            NVFP4_ERR_ALIGNMENT,
            &["amax"],
        );
        fails(
            s.run(|d, _, _| d.rowwise_amax = (64 + by) as *const f32),
            NVFP4_ERR_ALIGNMENT,
            &["amax"],
        );
        fails(
            s.run(|d, _, _| d.seed_offset = (64 + by) as *const u64),
            NVFP4_ERR_ALIGNMENT,
            &["seed_offset"],
        );
        fails(
            s.run(|d, _, _| d.stats = (64 + by) as *mut nvfp4_stats),
            NVFP4_ERR_ALIGNMENT,
            &["stats"],
        );
    }
    let x = s.x.c();
    let mut q = zero::<nvfp4_quantized>();
    // SAFETY: NULL where a pointer is wanted is what is tested.
    unsafe {
        let n = null_mut();
        fails(
            nvfp4_quantize(null_mut(), &s.desc, &x, &mut q, n, null_mut()),
            NVFP4_ERR_NULL_POINTER,
            &["ctx"],
        );
        fails(
            nvfp4_quantize(s.ctx.0, &s.desc, null(), &mut q, n, null_mut()),
            NVFP4_ERR_NULL_POINTER,
            &["x"],
        );
        fails(
            nvfp4_quantize(s.ctx.0, &s.desc, &x, n, n, null_mut()),
            NVFP4_ERR_NULL_POINTER,
            &["rowwise"],
        );
        fails(
            nvfp4_quantize(s.ctx.0, &s.desc, &x, &mut q, n, null_mut()),
            NVFP4_ERR_BUFFER_SIZE,
            &["codes_bytes"],
        );
    }
    let mut copy = Packed::room(&Options::default(), 32, 48, 0, 0);
    // SAFETY: a stream on the CPU is what is tested.
    let status =
        unsafe { nvfp4_quantize(s.ctx.0, &s.desc, &x, copy.c(), null_mut(), 64 as *mut _) };
    fails(status, NVFP4_ERR_INVALID_ARGUMENT, &["stream", "0x40"]);
}

#[test]
fn shapes_are_checked_without_overflow() {
    let s = Setup::new();
    fails(
        s.run(|_, x, _| x.rows = -3),
        NVFP4_ERR_SHAPE,
        &["x.rows is -3"],
    );
    fails(
        s.run(|_, x, _| x.cols = i64::MIN),
        NVFP4_ERR_SHAPE,
        &["x.cols"],
    );
    fails(
        s.run(|_, x, _| x.stride = 47),
        NVFP4_ERR_SHAPE,
        &["47", "48"],
    );
    fails(
        s.run(|_, x, _| x.stride = i64::MAX),
        NVFP4_ERR_SHAPE,
        &["x.stride"],
    );
    fails(
        s.run(|_, x, _| x.stride = 1 << 56),
        NVFP4_ERR_SHAPE,
        &["address space"],
    );
    fails(
        s.run(|_, x, _| x.rows = 1 << 56),
        NVFP4_ERR_SHAPE,
        &["address space"],
    );
    let both = s.run(|_, x, _| {
        x.rows = 1 << 40;
        x.cols = 1 << 40;
        x.stride = 0;
    });
    fails(both, NVFP4_ERR_SHAPE, &["address space"]);
    fails(
        s.run(|_, _, q| q.code_stride = 23),
        NVFP4_ERR_SHAPE,
        &["23", "24"],
    );
    fails(
        s.run(|_, _, q| q.scale_stride = 2),
        NVFP4_ERR_SHAPE,
        &["2", "3"],
    );
    fails(
        s.run(|_, _, q| q.code_stride = -1),
        NVFP4_ERR_SHAPE,
        &["-1"],
    );
    fails(
        s.run(|_, _, q| q.code_stride = 1 << 55),
        NVFP4_ERR_SHAPE,
        &["address space"],
    );
    fails(
        s.run(|_, _, q| q.codes_bytes -= 1),
        NVFP4_ERR_BUFFER_SIZE,
        &["767", "768"],
    );
    fails(
        s.run(|_, _, q| q.scales_bytes -= 1),
        NVFP4_ERR_BUFFER_SIZE,
        &["95", "96"],
    );
    fails(
        s.run(|_, _, q| q.amax_count = 0),
        NVFP4_ERR_BUFFER_SIZE,
        &["amax_count is 0"],
    );
    let mut sizes = nvfp4_sizes::default();
    // SAFETY: valid pointers.
    let status =
        unsafe { nvfp4_quantize_sizes(s.ctx.0, null(), 1 << 33, 1 << 33, 0, 3, &mut sizes) };
    fails(status, NVFP4_ERR_SHAPE, &["address space"]);
}

#[test]
fn options_are_checked() {
    let s = Setup::new();
    type Spoil = fn(&mut nvfp4_quantize_desc);
    let cases: [(&str, Spoil); 27] = [
        ("desc.rowwise.format is 3", |d| d.rowwise.format = 3),
        ("desc.rowwise.block is 2", |d| d.rowwise.block = 2),
        ("desc.rowwise.chain is 9", |d| d.rowwise.chain = 9),
        ("scale_rule is 4", |d| d.rowwise.scale_rule = 4),
        ("rounding is 2", |d| d.rowwise.rounding = 2),
        ("scale_layout is 4294967295", |d| {
            d.rowwise.scale_layout = u32::MAX
        }),
        ("select is 5", |d| d.rowwise.select = 5),
        ("hadamard is 8", |d| d.rowwise.hadamard = 8),
        ("signs is 4", |d| d.rowwise.signs = 4),
        ("flags is 0x8", |d| d.rowwise.flags = 8),
        ("reserved is 1", |d| d.rowwise.reserved = 1),
        ("c is 448", |d| d.rowwise.c = 448.0),
        ("c is NaN", |d| d.rowwise.c = f32::NAN),
        ("domain_rows is -7", |d| d.rowwise.domain_rows = -7),
        ("domain_rows is 24", |d| {
            d.rowwise.block = NVFP4_BLOCK_2D;
            d.rowwise.domain_rows = 24;
        }),
        ("desc.columnwise.format is 7", |d| d.columnwise.format = 7),
        ("desc.nonfinite is 2", |d| d.nonfinite = 2),
        ("desc.reserved is 5", |d| d.reserved = 5),
        ("offset is 4611686018427387904", |d| d.offset = 1 << 62),
        ("chain is NVFP4's", |d| {
            d.rowwise.format = NVFP4_FORMAT_MXFP4;
            d.rowwise.chain = NVFP4_CHAIN_DIV6;
        }),
        ("MXFP4's", |d| d.rowwise.scale_rule = NVFP4_RULE_CEIL),
        ("BF16 has no blocks", |d| {
            d.rowwise.format = NVFP4_FORMAT_BF16;
            d.rowwise.rounding = NVFP4_ROUND_STOCHASTIC;
        }),
        ("hadamard is 16", |d| {
            d.rowwise.select = NVFP4_SELECT_MS_EDEN;
            d.rowwise.hadamard = 16;
            d.rowwise.signs = NVFP4_SIGNS_SEEDED;
        }),
        ("signs Default", |d| {
            d.rowwise.select = NVFP4_SELECT_MS_EDEN;
            d.rowwise.hadamard = 128;
        }),
        ("half scales", |d| d.rowwise.flags = NVFP4_MX_HALF_SCALE),
        ("sign_mask", |d| d.rowwise.sign_mask[0] = 0x1234),
        ("does not read all of its bits", |d| {
            d.rowwise.signs = NVFP4_SIGNS_MASK16;
            d.rowwise.sign_mask[0] = 0x1_0000;
        }),
    ];
    for (words, spoil) in cases {
        let spoilt = |d: &mut nvfp4_quantize_desc| {
            d.rowwise.struct_size = size_of::<nvfp4_options>();
            d.columnwise.struct_size = size_of::<nvfp4_options>();
            spoil(d);
        };
        fails(
            s.run(|d, _, _| spoilt(d)),
            NVFP4_ERR_INVALID_ARGUMENT,
            &[words],
        );
        // The capability query and the sizes are the same planner.
        let mut d = s.desc;
        spoilt(&mut d);
        let mut sizes = nvfp4_sizes::default();
        // SAFETY: valid pointers.
        unsafe {
            fails(
                nvfp4_supports_quantize(s.ctx.0, &d, 32, 48, 0, 1),
                NVFP4_ERR_INVALID_ARGUMENT,
                &[words],
            );
            fails(
                nvfp4_quantize_sizes(s.ctx.0, &d, 32, 48, 0, 1, &mut sizes),
                NVFP4_ERR_INVALID_ARGUMENT,
                &[words],
            );
        }
        assert_eq!(sizes.rowwise_codes_bytes, 0, "sizes were written");
    }
    for dtype in [3, u32::MAX] {
        let words = format!("x.dtype is {dtype}");
        fails(
            s.run(|_, x, _| x.dtype = dtype),
            NVFP4_ERR_INVALID_ARGUMENT,
            &[&words],
        );
    }
    fails(
        s.run(|_, x, _| x.reserved = 1),
        NVFP4_ERR_INVALID_ARGUMENT,
        &["x.reserved"],
    );
}

#[test]
fn a_given_amax_must_be_a_magnitude() {
    let s = Setup::new();
    for bad in [
        f32::NAN,
        f32::INFINITY,
        -1.0,
        f32::NEG_INFINITY,
        -f32::from_bits(1),
    ] {
        let status = s.run(|d, _, _| d.rowwise_amax = &bad);
        fails(
            status,
            NVFP4_ERR_INVALID_ARGUMENT,
            &["rowwise", &bad.to_string()],
        );
    }
    for good in [0.0, f32::from_bits(1), f32::MAX] {
        ok(s.run(|d, _, _| d.rowwise_amax = &good));
    }
    let many = [1.0, 2.0, -4.0];
    let status = s.run(|d, _, q| {
        d.rowwise.struct_size = size_of::<nvfp4_options>();
        d.rowwise.domain_rows = 11;
        d.rowwise_amax = many.as_ptr();
        q.amax_count = 3;
    });
    fails(status, NVFP4_ERR_INVALID_ARGUMENT, &["[2]", "-4"]);
}

#[test]
fn origins_must_not_cut_blocks() {
    let s = Setup::new();
    let at = |row, col, change: fn(&mut nvfp4_options)| {
        s.run(|d, _, _| {
            d.rowwise.struct_size = size_of::<nvfp4_options>();
            change(&mut d.rowwise);
            (d.origin_row, d.origin_col) = (row, col);
        })
    };
    ok(at(5, 16, |_| {}));
    fails(at(0, 8, |_| {}), NVFP4_ERR_SHAPE, &["8", "multiple of 16"]);
    fails(
        at(8, 0, |o| o.block = NVFP4_BLOCK_2D),
        NVFP4_ERR_SHAPE,
        &["8", "multiple of 16"],
    );
    fails(
        at(30, 0, |o| o.domain_rows = 20),
        NVFP4_ERR_SHAPE,
        &["30", "multiple of 20"],
    );
    fails(at(-16, 0, |_| {}), NVFP4_ERR_SHAPE, &["origin_row is -16"]);
    let far = |o: &mut nvfp4_options| o.rounding = NVFP4_ROUND_STOCHASTIC;
    fails(at(0, 1 << 36, far), NVFP4_ERR_SHAPE, &["2^36"]);
    ok(at(0, (1 << 36) - 48, far));
}

#[test]
fn every_constant_is_its_enums_number() {
    // options_to_c relies on it: a recipe's options come back as they went in.
    let ctx = Ctx::new(1);
    for (name, _) in [("nvfp4", 0), ("mxfp4", 0), ("bf16", 0), ("nvfp4_no_rht", 0)] {
        let mut r: nvfp4_recipe = zero();
        let c = std::ffi::CString::new(name).unwrap();
        // SAFETY: valid pointers.
        unsafe { ok(nvfp4_recipe_init(c.as_ptr(), &mut r)) };
        let want = nvfp4::recipe::Recipe::named(name).unwrap();
        for (c, rust) in [
            (&r.activation_rowwise, &want.activation_rowwise),
            (&r.activation_columnwise, &want.activation_columnwise),
            (&r.weight_rowwise, &want.weight_rowwise),
            (&r.gradient_rowwise, &want.gradient_rowwise),
            (&r.gradient_columnwise, &want.gradient_columnwise),
        ] {
            assert_eq!((c.format, c.block), (rust.format as u32, rust.block as u32));
            assert_eq!(
                (c.rounding, c.hadamard),
                (rust.rounding as u32, rust.hadamard)
            );
            assert_eq!(c.scale_rule, rust.scale_rule as u32);
        }
        let mut desc: nvfp4_quantize_desc = zero();
        // SAFETY: valid pointers.
        unsafe {
            ok(nvfp4_recipe_quantize_desc(
                &r,
                NVFP4_OPERAND_GRADIENT,
                &mut desc,
            ));
            ok(nvfp4_supports_quantize(
                ctx.0, &desc, 100, 100, NVFP4_BF16, 3,
            ));
            fails(
                nvfp4_recipe_quantize_desc(&r, 3, &mut desc),
                NVFP4_ERR_INVALID_ARGUMENT,
                &["operand is 3"],
            );
        }
        assert_eq!(desc.columnwise.hadamard, want.gradient_columnwise.hadamard);
    }
    assert_eq!(
        [Chain::Te as u32, Chain::Div6 as u32, Chain::Single as u32],
        [NVFP4_CHAIN_TE, NVFP4_CHAIN_DIV6, NVFP4_CHAIN_SINGLE]
    );
    assert_eq!(
        [
            Format::Nvfp4 as u32,
            Format::Mxfp4 as u32,
            Format::Bf16 as u32
        ],
        [0, 1, 2]
    );
    assert_eq!(
        [ScaleRule::Floor as u32, ScaleRule::EncodeCentric as u32],
        [0, NVFP4_RULE_ENCODE_CENTRIC]
    );
    assert_eq!(
        [Select::Single as u32, Select::MsEden as u32],
        [0, NVFP4_SELECT_MS_EDEN]
    );
    assert_eq!(
        [Accumulate::Default as u32, Accumulate::HardwareK96 as u32],
        [0, NVFP4_ACCUMULATE_HARDWARE_K96]
    );
    assert_eq!(
        [Nonfinite::Saturate as u32, ScaleLayout::Swizzled as u32],
        [1, 1]
    );
}

/// Nothing to do is done at once, however many empty rows there are.
#[test]
fn endless_empty_matrices() {
    let ctx = Ctx::new(2);
    let many = 1i64 << 56;
    let tiles = nvfp4_options {
        block: NVFP4_BLOCK_2D,
        scale_layout: NVFP4_SCALES_SWIZZLED,
        ..zero()
    };
    for (rows, cols) in [(many, 0), (0, many)] {
        let mut stats = nvfp4_stats {
            nonfinite: 7,
            ..Default::default()
        };
        let mut desc: nvfp4_quantize_desc = zero();
        (desc.rowwise, desc.columnwise, desc.stats) = (tiles, tiles, &mut stats);
        let mut x: nvfp4_matrix = zero();
        (x.rows, x.cols) = (rows, cols);
        let mut amax = [7f32; 2];
        let mut r: nvfp4_quantized = zero();
        (r.amax, r.amax_count) = (&mut amax[0], 1);
        let mut c = nvfp4_quantized {
            amax: &mut amax[1],
            ..r
        };
        let mut out: nvfp4_matrix = zero();
        (out.rows, out.cols) = (rows, cols);
        let n = null_mut();
        // SAFETY: empty matrices need no memory but the amax.
        unsafe {
            ok(nvfp4_quantize(ctx.0, &desc, &x, &mut r, &mut c, n));
            ok(nvfp4_dequantize(ctx.0, &r, 0, &out, n));
            ok(nvfp4_hadamard(ctx.0, null(), &x, &out, n));
            let mut turned = c;
            ok(nvfp4_transpose(ctx.0, &r, &mut turned, n));
            assert_eq!((turned.rows, turned.cols), (cols, rows));
            ok(nvfp4_swizzle_scales(
                ctx.0,
                rows,
                0,
                null(),
                0,
                n.cast(),
                0,
                n,
            ));
            ok(nvfp4_unswizzle_scales(
                ctx.0,
                rows,
                0,
                null(),
                0,
                n.cast(),
                0,
                n,
            ));
        }
        assert_eq!(amax, [0.0; 2]);
        assert_eq!((stats.nonfinite, stats.sum_squares), (0, 0.0));
    }
}
