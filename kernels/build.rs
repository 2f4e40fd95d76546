//! Compiles kernels/*.cu into one fat binary a file, which src/cuda embeds. Part of the build script.
//!
//! Each (file, architecture) is one nvcc job, two at a time; its result is kept under the target folder by a hash of
//! everything it depends on, so an unchanged kernel is never compiled again.
//!
//! | variable | meaning |
//! |---|---|
//! | `NVCC` | the compiler; else PATH, CUDA_HOME, CUDA_PATH, .venv-cuda (made by `make`), /usr/local/cuda |
//! | `NVFP4_CUDA_ARCHS` | architectures, e.g. `90a` or `80,90a`, for quick builds; default: all that are shipped |
//! | `NVFP4_EMULATOR_PTX=1` | a test build: adds readable PTX of each architecture, with line information, for the emulator |

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::{env, fs};

/// Machine code that ships. 120f serves 120 and 121; 100a and 103a stay apart because stochastic conversion is theirs
/// alone. Everything else runs the PTX.
const ARCHS: &str = "80,90a,100a,103a,120f";
/// Files for some architectures only: what their names end in, and the architectures of ARCHS they are compiled for. They
/// ship no PTX (but `_sm80`, whose instructions every later architecture has).
const NARROW: [(&str, &[&str]); 5] = [
    ("_sm80", &["80"]),
    ("_sm90a", &["90a"]),
    ("_sm100", &["100a", "103a"]),
    ("_sm100a", &["100a", "103a"]),
    ("_sm120", &["120f", "120a"]),
];
/// PTX that ships, for architectures that no machine code fits.
const PTX_ARCH: &str = "80";
/// PTX that a test build adds.
const EMULATOR_ARCHS: [&str; 5] = ["80", "90a", "100a", "103a", "120a"];
const JOBS: usize = 2;
/// The numerics contract forbids contraction, flushing and approximate division.
const FLAGS: [&str; 7] = [
    "-std=c++17",
    "-O3",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "-Werror=all-warnings",
];

/// One run of nvcc.
struct Job {
    source: PathBuf,
    arch: String,
    /// `cubin`, `ptx`, or `lineinfo.ptx` for the emulator.
    kind: &'static str,
    out: PathBuf,
}

pub fn build() {
    for name in [
        "NVCC",
        "NVFP4_CUDA_ARCHS",
        "NVFP4_EMULATOR_PTX",
        "CUDA_HOME",
        "CUDA_PATH",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=kernels");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let nvcc = find_nvcc(&root);
    // target/<profile>/build/<package>/out: profiles share what is compiled.
    let cache = out.ancestors().nth(4).unwrap_or(&out).join("nvfp4-kernels");
    fs::create_dir_all(&cache).expect("the target folder can be written");
    let emulator = env::var("NVFP4_EMULATOR_PTX").is_ok_and(|v| v == "1");
    let archs = env::var("NVFP4_CUDA_ARCHS").unwrap_or_else(|_| ARCHS.into());
    let archs: Vec<&str> = archs
        .split(',')
        .map(str::trim)
        .filter(|a| !a.is_empty())
        .collect();

    let version = run(Command::new(&nvcc).arg("--version"));
    let mut jobs = Vec::new();
    let mut sources: Vec<PathBuf> = list(&root.join("kernels"), "cu");
    sources.sort();
    for source in &sources {
        let text = with_includes(source);
        let mut add = |arch: &str, kind: &'static str| {
            let mut h = DefaultHasher::new();
            (&text, &version, arch, kind, FLAGS).hash(&mut h);
            let name = format!("{}.{arch}.{:016x}.{kind}", stem(source), h.finish());
            jobs.push(Job {
                source: source.clone(),
                arch: arch.into(),
                kind,
                out: cache.join(name),
            });
        };
        let narrow = NARROW
            .iter()
            .find(|(suffix, _)| stem(source).ends_with(suffix))
            .map(|(_, only)| *only);
        let fits = |arch: &str| narrow.is_none_or(|only| only.contains(&arch));
        archs
            .iter()
            .filter(|a| fits(a))
            .for_each(|arch| add(arch, "cubin"));
        if fits(PTX_ARCH) {
            add(PTX_ARCH, "ptx");
        }
        if emulator {
            EMULATOR_ARCHS
                .iter()
                .filter(|a| fits(a))
                .for_each(|arch| add(arch, "lineinfo.ptx"));
        }
    }
    compile(&nvcc, &jobs);

    let mut images = String::new();
    for source in &sources {
        let fatbin = out.join(format!("{}.fatbin", stem(source)));
        let mine: Vec<&Job> = jobs.iter().filter(|j| &j.source == source).collect();
        if mine.is_empty() {
            continue; // NVFP4_CUDA_ARCHS leaves this file out
        }
        fatbinary(&nvcc, &mine, &fatbin, emulator);
        images += &format!("    ({:?}, image!({:?})),\n", stem(source), fatbin);
    }
    let table = format!(
        "pub const ARCHS: &str = {:?};\npub static IMAGES: &[(&str, &[u8])] = &[\n{images}];\n",
        archs
            .iter()
            .map(|a| format!("sm_{a}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    fs::write(out.join("cuda_images.rs"), table).expect("OUT_DIR can be written");
    if emulator {
        let folder = out.ancestors().nth(4).unwrap_or(&out).join("emulator-ptx");
        fs::create_dir_all(&folder).expect("the target folder can be written");
        for job in jobs.iter().filter(|j| j.kind == "lineinfo.ptx") {
            let to = folder.join(format!("{}.compute_{}.ptx", stem(&job.source), job.arch));
            fs::copy(&job.out, to).expect("the target folder can be written");
        }
    }
}

fn find_nvcc(root: &Path) -> PathBuf {
    let mut places: Vec<PathBuf> = Vec::new();
    if let Some(nvcc) = env::var_os("NVCC").filter(|v| !v.is_empty()) {
        places.push(nvcc.into());
    } else {
        places.extend(
            env::split_paths(&env::var_os("PATH").unwrap_or_default()).map(|p| p.join("nvcc")),
        );
        places.extend(
            ["CUDA_HOME", "CUDA_PATH"]
                .iter()
                .filter_map(env::var_os)
                .map(|p| PathBuf::from(p).join("bin/nvcc")),
        );
        let wheels = root.join(".venv-cuda/lib");
        places.extend(
            fs::read_dir(wheels)
                .into_iter()
                .flatten()
                .flatten()
                .map(|e| e.path().join("site-packages/nvidia/cu13/bin/nvcc")),
        );
        places.push("/usr/local/cuda/bin/nvcc".into());
    }
    places.into_iter().find(|p| p.is_file()).unwrap_or_else(|| {
        stop(
            "the feature `cuda` needs nvcc 13 and none was found in $NVCC, PATH, $CUDA_HOME, $CUDA_PATH, .venv-cuda or /usr/local/cuda: \
             run `make CUDA=1` (it installs one into .venv-cuda from PyPI), set NVCC, or build with --no-default-features for a CPU-only library",
        )
    })
}

/// The file and, in their order, the project's headers it includes.
fn with_includes(source: &Path) -> String {
    fn add(path: &Path, seen: &mut BTreeSet<PathBuf>, text: &mut String) {
        if !seen.insert(path.to_path_buf()) {
            return;
        }
        let own =
            fs::read_to_string(path).unwrap_or_else(|e| stop(&format!("{}: {e}", path.display())));
        for line in own.lines() {
            if let Some(name) = line
                .strip_prefix("#include \"")
                .and_then(|l| l.split('"').next())
            {
                add(&path.with_file_name(name), seen, text);
            }
        }
        text.push_str(&own);
    }
    let mut text = String::new();
    add(source, &mut BTreeSet::new(), &mut text);
    text
}

fn compile(nvcc: &Path, jobs: &[Job]) {
    let next = AtomicUsize::new(0);
    let failures: Mutex<BTreeMap<usize, String>> = Mutex::default();
    std::thread::scope(|s| {
        for _ in 0..JOBS {
            s.spawn(|| loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(i) else { break };
                if job.out.is_file() {
                    continue;
                }
                // Written elsewhere first: a build that is stopped half-way must not leave a torso in the cache.
                let partial = job
                    .out
                    .with_extension(format!("{}.{i}", std::process::id()));
                let mut c = Command::new(nvcc);
                c.args(FLAGS);
                match job.kind {
                    "cubin" => c
                        .arg("-cubin")
                        .arg(format!("-gencode=arch=compute_{0},code=sm_{0}", job.arch)),
                    _ => c.arg("-ptx").arg(format!("-arch=compute_{}", job.arch)),
                };
                if job.kind == "lineinfo.ptx" {
                    c.arg("-lineinfo");
                }
                let result = c.arg("-o").arg(&partial).arg(&job.source).output();
                match result {
                    Ok(o) if o.status.success() => {
                        fs::rename(&partial, &job.out).expect("the target folder can be written")
                    }
                    Ok(o) => drop(
                        failures
                            .lock()
                            .expect("no panic holds it")
                            .insert(i, String::from_utf8_lossy(&o.stderr).into_owned()),
                    ),
                    Err(e) => drop(
                        failures
                            .lock()
                            .expect("no panic holds it")
                            .insert(i, e.to_string()),
                    ),
                }
            });
        }
    });
    if let Some((i, text)) = failures
        .into_inner()
        .expect("no panic holds it")
        .into_iter()
        .next()
    {
        eprintln!("{text}");
        stop(&format!(
            "nvcc failed on {} for {}: {}",
            jobs[i].source.display(),
            jobs[i].arch,
            text.lines().next().unwrap_or("")
        ));
    }
}

/// Bundles a file's images; the driver picks the one that fits.
fn fatbinary(nvcc: &Path, jobs: &[&Job], to: &Path, emulator: bool) {
    let mut c = Command::new(nvcc.with_file_name("fatbinary"));
    c.arg("-64").arg(format!("--create={}", to.display()));
    // The emulator reads PTX as it is.
    c.arg(if emulator {
        "--compress=false"
    } else {
        "--compress-all"
    });
    for job in jobs {
        let kind = if job.kind == "cubin" { "elf" } else { "ptx" };
        if job.kind == "ptx" && emulator {
            continue; // the readable one of the same architecture is in
        }
        c.arg(format!(
            "--image3=kind={kind},sm={},file={}",
            job.arch,
            job.out.display()
        ));
    }
    run(&mut c);
}

fn list(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|e| stop(&format!("{}: {e}", folder.display())));
    entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == extension))
        .collect()
}

fn stem(path: &Path) -> &str {
    path.file_stem()
        .and_then(|s| s.to_str())
        .expect("kernel files have plain names")
}

fn run(c: &mut Command) -> String {
    match c.output() {
        Ok(o) if o.status.success() => String::from_utf8_lossy(&o.stdout).into_owned(),
        Ok(o) => stop(&format!(
            "{c:?} failed: {}",
            String::from_utf8_lossy(&o.stderr).trim()
        )),
        Err(e) => stop(&format!("{c:?}: {e}")),
    }
}

/// Ends the build with one sentence.
fn stop(sentence: &str) -> ! {
    println!("cargo::error={sentence}");
    std::process::exit(1)
}
