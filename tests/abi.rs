//! The C ABI as others see it: the committed header is what the sources say, the shared library exports what the header
//! declares and nothing else, the layouts of the structs stay, and modules import only downwards.

mod elf;

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Sources in the order of the header.
const HEADER_SOURCES: [&str; 15] = [
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
