//! Bad options, given amax and origins through the C ABI: the stated status, a sentence with the values in it, and
//! outputs as they were.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::*;
use std::mem::size_of;

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
