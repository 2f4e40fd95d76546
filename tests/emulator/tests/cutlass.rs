//! Third-party kernels that run on Blackwell silicon: CUTLASS's NVFP4 GEMMs.
//!
//! Its example programs, unmodified and with their host code, must pass their own
//! verification on the emulated GPU. Those fill scales with 0 and 1 only, so the same
//! kernels are also driven by a host program of ours with all codes and all scale bytes:
//! the results must equal the hardware model bit for bit, and a flipped constant in a
//! descriptor must not pass.
//!
//! The sources are the `nvidia-cutlass` 4.2 wheel: `NVFP4_CUTLASS` names a folder with its
//! `include`, `tools` and `examples`, else the wheel is downloaded once to the user's cache.
//! Objects are kept there too, by a hash of what they are made of: each takes about a minute.
//! One process at a time: `cargo test --test cutlass -- --test-threads 1`.

mod support;
mod tensor;

use nvfp4_emulator::convert::{f32_to_bf16, Cvt};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use tensor::{tiled_scales, Fp4Problem};

const WHEEL: &str = "nvidia-cutlass==4.2.0.0";

/// One heavy thing at a time.
static ONE: Mutex<()> = Mutex::new(());

fn cache() -> PathBuf {
    let user = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let user = user.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let dir = user.expect("HOME or XDG_CACHE_HOME").join("nvfp4-cutlass");
    std::fs::create_dir_all(&dir).unwrap();
    dir.canonicalize().unwrap()
}

/// CUTLASS's sources, or None with one printed line.
fn sources() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("NVFP4_CUTLASS") {
        return Some(PathBuf::from(dir));
    }
    let root = cache();
    let found = root.join("wheel/cutlass_library/source");
    if found.join("include").is_dir() {
        return Some(found);
    }
    let steps = format!(
        "python3 -m pip download -q --no-deps -d download {WHEEL} && python3 -m zipfile -e download/*.whl unpacked && mv unpacked wheel"
    );
    let out = Command::new("sh").args(["-c", &steps]).current_dir(&root).output().unwrap();
    if !out.status.success() {
        println!("skipped: {WHEEL} could not be fetched (set NVFP4_CUTLASS): {}", String::from_utf8_lossy(&out.stderr).trim());
        return None;
    }
    Some(found)
}

/// The emulator under the runtime's and the driver's names.
fn libraries() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let library = [deps.parent().unwrap(), deps.as_path()]
        .map(|d| d.join("libnvfp4_emulator.so"))
        .into_iter()
        .find(|p| p.is_file())
        .expect("the library is built with its tests");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-libraries");
    std::fs::create_dir_all(&dir).unwrap();
    for name in ["libcudart.so", "libcudart.so.13", "libcuda.so.1"] {
        let link = dir.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&library, link).unwrap();
    }
    dir
}

/// Compiles (once) and links a program; None with one printed line where something lacks.
fn program(source: &Path, chip: &str, defines: &[&str]) -> Option<PathBuf> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let cutlass = sources()?;
    let Some(nvcc) = support::nvcc() else {
        println!("skipped: no nvcc (set NVCC, or make .venv-cuda)");
        return None;
    };
    let version = Command::new(&nvcc).arg("--version").output().unwrap();
    let mut h = DefaultHasher::new();
    (std::fs::read(source).unwrap(), chip, defines, version.stdout, WHEEL).hash(&mut h);
    let name = format!("{}-{:016x}", source.file_stem().unwrap().to_string_lossy(), h.finish());
    let object = cache().join(format!("{name}.o"));
    if !object.is_file() {
        let tmp = cache().join(format!("{name}.tmp.o"));
        let out = Command::new(nvcc)
            .args(["-std=c++17", "-lineinfo", "-no-compress", "-cudart", "shared", "--expt-relaxed-constexpr", "-Xcompiler", "-O0"])
            .arg("-gencode")
            .arg(format!("arch=compute_{chip},code=compute_{chip}"))
            .args(["include", "tools/util/include", "examples/common"].map(|d| format!("-I{}", cutlass.join(d).display())))
            .args(defines)
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg(&tmp)
            .output()
            .unwrap();
        assert!(out.status.success(), "nvcc: {}", String::from_utf8_lossy(&out.stderr));
        std::fs::rename(&tmp, &object).unwrap();
    }
    let exe = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
    let libraries = libraries();
    let out = Command::new("g++").arg("-o").arg(&exe).arg(&object).arg("-L").arg(&libraries).arg("-lcudart").output().unwrap();
    assert!(out.status.success(), "g++: {}", String::from_utf8_lossy(&out.stderr));
    Some(exe)
}

struct Run {
    ok: bool,
    text: String,
}

/// Runs a program on the emulated chip. CUTLASS issues no tcgen05 fences: that one check is off.
fn run(exe: &Path, chip: &str, args: &[&str], seed: u32) -> Run {
    let out = Command::new(exe)
        .args(args)
        .env("LD_LIBRARY_PATH", libraries())
        .env("NVFP4_EMU_ARCH", format!("sm_{}", chip.trim_end_matches('a')))
        .env("NVFP4_EMU_FENCES", "0")
        .env("NVFP4_EMU_SEED", seed.to_string())
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Run { ok: out.status.success(), text }
}

fn example(folder: &str, file: &str, chip: &str, sizes: &[[usize; 3]]) {
    let Some(cutlass) = sources() else { return };
    let source = cutlass.join("examples").join(folder).join(file);
    let Some(exe) = program(&source, chip, &[]) else {
        return;
    };
    for (seed, [m, n, k]) in sizes.iter().enumerate() {
        let (m, n, k) = (format!("--m={m}"), format!("--n={n}"), format!("--k={k}"));
        let r = run(&exe, chip, &[&m, &n, &k, "--iterations=0"], seed as u32);
        assert!(r.ok && r.text.contains("Passed") && !r.text.contains("Failed"), "{file} {m} {n} {k}: {}", r.text);
    }
}

const SIZES: [[usize; 3]; 2] = [[256, 256, 512], [384, 640, 768]];

#[test]
fn example_72a_pairs_of_ctas_to_bf16() {
    example("72_blackwell_narrow_precision_gemm", "72a_blackwell_nvfp4_bf16_gemm.cu", "100a", &SIZES);
}

#[test]
fn example_72b_pairs_of_ctas_to_nvfp4() {
    example("72_blackwell_narrow_precision_gemm", "72b_blackwell_nvfp4_nvfp4_gemm.cu", "100a", &SIZES);
}

#[test]
fn example_79a_warp_mma_to_bf16() {
    example("79_blackwell_geforce_gemm", "79a_blackwell_geforce_nvfp4_bf16_gemm.cu", "120a", &SIZES);
}

#[test]
fn example_79b_warp_mma_to_nvfp4() {
    example("79_blackwell_geforce_gemm", "79b_blackwell_geforce_nvfp4_nvfp4_gemm.cu", "120a", &SIZES);
}

/// Our host program: what it printed, and D when it succeeded, bf16 widened to f32.
fn gemm(exe: &Path, chip: &str, p: &Fp4Problem, bf16: bool, seed: u32) -> (Run, Vec<u32>) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let stem = exe.file_name().unwrap().to_string_lossy();
    let (input, output) = (dir.join(format!("{stem}.in")), dir.join(format!("{stem}.out")));
    let mut bytes: Vec<u8> = [p.m, p.n, p.k].iter().flat_map(|&x| (x as u32).to_le_bytes()).collect();
    bytes.extend(&p.a);
    bytes.extend(&p.b);
    bytes.extend(tiled_scales(&p.sa, p.m, p.k));
    bytes.extend(tiled_scales(&p.sb, p.n, p.k));
    std::fs::write(&input, bytes).unwrap();
    let _ = std::fs::remove_file(&output);
    let r = run(exe, chip, &[input.to_str().unwrap(), output.to_str().unwrap()], seed);
    let d = std::fs::read(&output).unwrap_or_default();
    let wide = |c: &[u8]| {
        if bf16 {
            (c[0] as u32) << 16 | (c[1] as u32) << 24
        } else {
            u32::from_le_bytes([c[0], c[1], c[2], c[3]])
        }
    };
    (r, d.chunks_exact(if bf16 { 2 } else { 4 }).map(wide).collect())
}

/// Rows and columns at which D is not the hardware model's result (cast to bf16 if that is D's type).
fn wrong(p: &Fp4Problem, d: &[u32], bf16: bool) -> Option<(usize, usize)> {
    let places = (0..p.m).flat_map(|row| (0..p.n).map(move |column| (row, column)));
    places.into_iter().find(|&(row, column)| {
        let exact = p.expected(row, column);
        let want = if bf16 { (f32_to_bf16(exact, &Cvt::RN) as u32) << 16 } else { exact };
        d[row * p.n + column] != want
    })
}

/// One kernel of CUTLASS's.
struct Kernel {
    chip: &'static str,
    number: u32,
    tile: [u32; 3],
    cluster: [u32; 2],
    bf16: bool,
}

/// All codes and scale bytes through one kernel; then with each of `flips` (a decimal constant
/// of the PTX and its replacement of the same length) in the program.
fn driven(kernel: &Kernel, flips: &[(&str, &str)]) {
    let Kernel { chip, number, tile, cluster, bf16 } = *kernel;
    let mut defines = vec![format!("-DCHIP={number}")];
    for (name, value) in ["M", "N", "K"].iter().zip(tile) {
        defines.push(format!("-DTILE_{name}={value}"));
    }
    for (name, value) in ["M", "N"].iter().zip(cluster) {
        defines.push(format!("-DCLUSTER_{name}={value}"));
    }
    if bf16 {
        defines.push("-DOUT_BF16".into());
    }
    let defines: Vec<&str> = defines.iter().map(|s| s.as_str()).collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("cutlass/nvfp4_host.cu");
    let Some(exe) = program(&source, chip, &defines) else {
        return;
    };
    for (seed, (m, n, k)) in [(256, 128, 256), (392, 520, 1024)].into_iter().enumerate() {
        let p = Fp4Problem::random(m, n, k, 7 + seed as u64);
        let (r, d) = gemm(&exe, chip, &p, bf16, seed as u32);
        assert!(r.ok, "{m} x {n} x {k}: {}", r.text);
        assert_eq!(wrong(&p, &d, bf16), None, "{defines:?} {m} x {n} x {k}: row and column");
        let nonzero = d.iter().filter(|&&x| x << 1 != 0).count();
        assert!(nonzero * 10 > d.len() * 9, "{nonzero} of {} are not zero", d.len());
    }
    let original = std::fs::read(&exe).unwrap();
    for (i, (from, to)) in flips.iter().enumerate() {
        assert_eq!(from.len(), to.len());
        let mut changed = original.clone();
        let places: Vec<usize> = (0..changed.len() - from.len()).filter(|&i| changed[i..].starts_with(from.as_bytes())).collect();
        assert!(!places.is_empty(), "{from} is not in the PTX");
        for at in places {
            changed[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
        let bad = exe.with_file_name(format!("{}-flip{i}", exe.file_name().unwrap().to_string_lossy()));
        std::fs::write(&bad, changed).unwrap();
        std::fs::set_permissions(&bad, std::fs::metadata(&exe).unwrap().permissions()).unwrap();
        let p = Fp4Problem::random(256, 256, 512, 3);
        let (r, d) = gemm(&bad, chip, &p, bf16, 0);
        assert!(!r.ok || wrong(&p, &d, bf16).is_some(), "{from} -> {to} goes unnoticed");
        println!("{from} -> {to}: {}", r.text.lines().next().unwrap_or("wrong result"));
    }
}

/// The high word of the operands' descriptors: a reserved bit, half the stride, no version bit.
const FLIPS: [(&str, &str); 3] = [
    ("4611756662049538048", "4620763861304279040"),
    ("4611756662049538048", "4611756524610584576"),
    ("4611756662049538048", "4611686293305360384"),
];

#[test]
fn single_cta_kernel_with_all_codes_and_scales() {
    let k = Kernel { chip: "100a", number: 100, tile: [128, 128, 256], cluster: [1, 1], bf16: false };
    driven(&k, &FLIPS);
}

#[test]
fn paired_kernel_of_72a_with_all_codes_and_scales() {
    let k = Kernel { chip: "100a", number: 100, tile: [256, 256, 256], cluster: [2, 4], bf16: true };
    driven(&k, &FLIPS);
}

#[test]
fn warp_kernel_of_79a_with_all_codes_and_scales() {
    let k = Kernel { chip: "120a", number: 120, tile: [128, 128, 128], cluster: [1, 1], bf16: false };
    driven(&k, &[]);
}
