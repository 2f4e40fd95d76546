//! The C ABI as others see it: the committed header is what the sources say, the shared library exports what the header
//! declares and nothing else, the layouts of the structs stay, and modules import only downwards.

mod elf;

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Sources in the order of the header.
const HEADER_SOURCES: [&str; 16] = [
    "abi.rs",
    "ffi/boundary.rs",
    "ffi/version.rs",
    "ffi/log.rs",
    "ffi/context.rs",
    "ffi/quantize.rs",
    "ffi/dequantize.rs",
    "ffi/hadamard.rs",
    "ffi/scales.rs",
    "ffi/gemm.rs",
    "ffi/grouped.rs",
    "ffi/weight.rs",
    "ffi/recipe.rs",
    "ffi/linear.rs",
    "ffi/supports.rs",
    "ffi/selftest.rs",
];

fn generated_header() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in HEADER_SOURCES {
        builder = builder.with_src(root().join("src").join(source));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn header_is_what_the_sources_say() {
    let path = root().join("include/nvfp4.h");
    let want = generated_header();
    if std::env::var_os("NVFP4_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &want).unwrap();
    }
    let have = std::fs::read_to_string(&path).unwrap();
    if have != want {
        let line = have
            .lines()
            .zip(want.lines())
            .take_while(|(a, b)| a == b)
            .count();
        panic!(
            "include/nvfp4.h differs from the sources at line {}:\n  have {:?}\n  want {:?}\n\
             NVFP4_BLESS=1 cargo test --test abi header rewrites it",
            line + 1,
            have.lines().nth(line),
            want.lines().nth(line)
        );
    }
}

#[test]
fn header_version_is_the_crates() {
    let header = std::fs::read_to_string(root().join("include/nvfp4.h")).unwrap();
    for (name, value) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        let line = format!("#define NVFP4_VERSION_{name} {value}");
        assert!(header.lines().any(|l| l == line), "no line {line:?}");
    }
}

/// Names of the functions that the header declares.
fn declared_functions() -> Vec<String> {
    let header = std::fs::read_to_string(root().join("include/nvfp4.h")).unwrap();
    let mut names: Vec<String> = header
        .lines()
        .filter(|l| !l.starts_with([' ', '/', '#', '}']) && !l.starts_with("typedef"))
        .filter_map(|l| {
            let head = &l[..l.find('(')?];
            let name = head.rsplit([' ', '*']).next()?;
            name.starts_with("nvfp4_").then(|| name.to_owned())
        })
        .collect();
    names.sort();
    names
}

fn shared_library() -> PathBuf {
    // Beside target/<profile>/deps/abi-<hash>: the one that this test run made. `cargo test` leaves an older one that
    // may lie in target/<profile> as it was.
    let mut dir = std::env::current_exe().unwrap();
    dir.pop();
    let path = dir.join("libnvfp4.so");
    assert!(path.exists(), "{} was not built", path.display());
    path
}

#[test]
fn shared_library_exports_the_header_and_nothing_else() {
    let library = elf::Dynamic::read(&shared_library());
    let mut exports = library.exports.clone();
    exports.sort();
    let declared = declared_functions();
    assert!(declared.len() >= 30, "{declared:?}");
    assert_eq!(exports, declared);
}

#[test]
fn shared_library_has_its_soname_and_needs_little() {
    let library = elf::Dynamic::read(&shared_library());
    assert_eq!(library.soname.as_deref(), Some("libnvfp4.so.0.1"));
    for needed in &library.needed {
        let known = [
            "libc.so.6",
            "libgcc_s.so.1",
            "libm.so.6",
            "ld-linux-x86-64.so.2",
            "ld-linux-aarch64.so.1",
        ];
        assert!(known.contains(&needed.as_str()), "needs {needed}");
    }
}

/// What `sizeof` and `offsetof` give on a 64-bit machine in 0.1: a change here is a change of the ABI (docs/abi.md says
/// which are allowed).
#[test]
fn layouts_stay() {
    use nvfp4::abi::*;
    macro_rules! layout {
        ($type:ident, $size:literal, $($field:ident $offset:literal),* $(,)?) => {
            assert_eq!(std::mem::size_of::<$type>(), $size, stringify!($type));
            assert_eq!(std::mem::align_of::<$type>(), 8, stringify!($type));
            $(assert_eq!(
                std::mem::offset_of!($type, $field), $offset,
                concat!(stringify!($type), ".", stringify!($field))
            );)*
        };
    }
    layout!(nvfp4_context_desc, 24, struct_size 0, device 8, ordinal 12, threads 16, reserved 20);
    layout!(nvfp4_matrix, 48, struct_size 0, data 8, dtype 16, reserved 20, rows 24, cols 32, stride 40);
    layout!(
        nvfp4_options, 80,
        struct_size 0, format 8, block 12, chain 16, scale_rule 20, rounding 24, scale_layout 28, select 32,
        hadamard 36, signs 40, flags 44, sign_mask 48, domain_rows 64, c 72, reserved 76,
    );
    layout!(
        nvfp4_quantize_desc,
        256,
        struct_size 0, rowwise 8, columnwise 88, nonfinite 168, reserved 172, seed 176, offset 184, seed_offset 192,
        origin_row 200, origin_col 208, rowwise_amax 216, columnwise_amax 224, stats 232, workspace 240,
        workspace_bytes 248,
    );
    layout!(nvfp4_stats, 40, nonfinite 0, saturated 8, underflowed 16, sum_squares 24, sum_squared_error 32);
    layout!(
        nvfp4_quantized, 168,
        struct_size 0, codes 8, codes_bytes 16, scales 24, scales_bytes 32, amax 40, amax_count 48, rows 56, cols 64,
        code_stride 72, scale_stride 80, format 88, block 92, chain 96, scale_rule 100, scale_layout 104, flags 108,
        hadamard 112, transposed 116, sign_mask 120, domain_rows 136, c 144, source_cols 152, groups 160,
    );
    layout!(
        nvfp4_sizes, 56,
        rowwise_codes_bytes 0, rowwise_scales_bytes 8, rowwise_amax_count 16, columnwise_codes_bytes 24,
        columnwise_scales_bytes 32, columnwise_amax_count 40, workspace_bytes 48,
    );
    layout!(
        nvfp4_gemm_desc, 280,
        struct_size 0, accumulate 8, activation 12, alpha 16, beta 24, bias 32, bias_dtype 40, provider 44, batch 48,
        a_codes_batch_stride 56, a_scales_batch_stride 64, b_codes_batch_stride 72, b_scales_batch_stride 80,
        a_amax_batch_stride 88, b_amax_batch_stride 96, c_batch_stride 104, d_batch_stride 112, row_factors 120,
        col_factors 128, d_quantized 136, d_options 144, d_quantized_amax 224, seed 232, offset 240, b_packed 248,
        b_packed_bytes 256, workspace 264, workspace_bytes 272,
    );
    layout!(
        nvfp4_grouped_quantize_desc, 40,
        struct_size 0, quantize 8, groups 16, offsets 24, column_align 32, reserved 36,
    );
    layout!(
        nvfp4_grouped_gemm_desc, 152,
        struct_size 0, ragged 8, accumulate 12, groups 16, offsets 24, column_align 32, activation 36, alpha 40,
        alpha_stride 48, beta 56, bias 64, bias_stride 72, bias_dtype 80, provider 84, b_codes_stride 88,
        b_scales_stride 96, b_amax_stride 104, c_group_stride 112, d_group_stride 120, row_factors 128, workspace 136,
        workspace_bytes 144,
    );
    layout!(
        nvfp4_hadamard_desc, 56,
        struct_size 0, n 8, axis 12, inverse 16, signs 20, sign_mask 24, seed 40, offset 48,
    );
    layout!(
        nvfp4_recipe, 496,
        struct_size 0, activation_rowwise 8, activation_columnwise 88, weight_rowwise 168, weight_columnwise 248,
        gradient_rowwise 328, gradient_columnwise 408, accumulate 488, nonfinite 492,
    );
    layout!(
        nvfp4_linear_desc, 64,
        struct_size 0, recipe 8, seed 16, offset 24, seed_offset 32, accumulate_wgrad 40, reserved 44, workspace 48,
        workspace_bytes 56,
    );
}

/// Modules from the top down: each may import from those below it, and from itself.
const LAYERS: [&[&str]; 12] = [
    &["ffi", "xla"],
    &["selftest"],
    &["safe"],
    &["linear"],
    &["recipe"],
    &["context"],
    &["cuda"],
    &["cpu"],
    &["plan"],
    &["numerics"],
    &["log"],
    &["error", "abi"],
];

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The modules that a source file names as `crate::name`.
fn imports(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in text.split("crate::").skip(1) {
        let first = |s: &str| -> String {
            s.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        };
        match part.strip_prefix('{') {
            Some(list) => {
                // crate::{a::B, c::{D, E}, F}: names at depth one.
                let (mut depth, mut word) = (1, String::new());
                for c in list.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 || (depth == 1 && c == ',') {
                        names.push(first(word.trim()));
                        word.clear();
                    } else {
                        word.push(c);
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            None => names.push(first(part)),
        }
    }
    names
}

#[test]
fn imports_point_downwards() {
    let src = root().join("src");
    let rank = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > 40);
    let mut checked = 0;
    for file in files {
        let relative = file.strip_prefix(&src).unwrap();
        let own = relative
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap();
        let own = own.strip_suffix(".rs").unwrap_or(own);
        if own == "lib" {
            continue;
        }
        let own_rank = rank(own).unwrap_or_else(|| panic!("{own} has no layer: name it in LAYERS"));
        let text = std::fs::read_to_string(&file).unwrap();
        let code: String = text
            .lines()
            .filter(|l| !l.trim_start().starts_with("//"))
            .map(|l| format!("{l}\n"))
            .collect();
        for name in imports(&code) {
            // Names that lib.rs re-exports from error are everybody's.
            let Some(other) = rank(&name) else {
                let known = ["Error", "Result", ""].contains(&name.as_str());
                assert!(
                    known,
                    "{} imports crate::{name}, which has no layer",
                    relative.display()
                );
                continue;
            };
            checked += 1;
            let sideways = other == own_rank && name != own && own_rank != LAYERS.len() - 1;
            assert!(
                other >= own_rank && !sideways,
                "{} ({own}) imports crate::{name}, which is not below it",
                relative.display()
            );
        }
    }
    assert!(checked > 100, "{checked} imports seen");
}

#[test]
fn the_import_reader_reads() {
    let text = "use crate::plan::{A, B};\nuse crate::{log, Error, abi::{x, y}};\nfn f() { crate::cpu::run() }";
    assert_eq!(imports(text), ["plan", "log", "Error", "abi", "cpu"]);
}
