//! Every operation on the GPU against the CPU backend, byte for byte. One program that any machine with a CUDA GPU runs
//! (`make test-gpu`); nothing else is needed beside it.
//!
//! `gpu [--configs N] [--products N] [--groups N] [--grid N] [--rounds N] [--seed S] [--large] [--json PATH --hash H]
//! [--only NAME]`

mod certification;
mod check;
mod config;
mod device;
mod gemm;
mod graph;
mod grid;
mod grouped;
mod grouped_products;
mod large;
mod linear;
mod products;
mod side;
mod threads;
mod traffic;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use check::Counts;
use config::{random_config, Config, Random};
use nvfp4::cpu::Cpu;
use nvfp4::cuda::Cuda;
use side::{Arena, Both};

/// Largest call of the grid and the random draws, all outputs and images included.
const ARENA: usize = 64 << 20;

fn argument(name: &str) -> Option<String> {
    let mut args = std::env::args().skip_while(|a| a != name);
    args.next()?;
    args.next()
}

fn flag(name: &str) -> bool {
    std::env::args().any(|a| a == name)
}

fn main() {
    if let Err(why) = device::enter() {
        println!("gpu tests skipped: {why}");
        // Where a GPU is expected, its absence is a failure.
        std::process::exit(std::env::var_os("NVFP4_REQUIRE_GPU").is_some() as i32);
    }
    if flag("--graph-child") {
        return graph::child();
    }
    if flag("--certification-child") {
        return certification::child();
    }
    let started = Instant::now();
    let cuda = match Cuda::new(0) {
        Ok(cuda) => cuda,
        Err(e) => {
            println!("no CUDA context: {e}");
            std::process::exit(1);
        }
    };
    println!("{}", cuda.name());
    let only = argument("--only");
    let wanted = |name: &str| only.as_deref().is_none_or(|o| o == name);
    let mut total = Counts::default();
    let mut failed = Vec::new();
    let mut part = |name: &str, run: &mut dyn FnMut(&mut Counts) -> Result<String, String>| {
        if !wanted(name) {
            return;
        }
        let start = Instant::now();
        let result = run(&mut total);
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(text) => println!("{name}: ok, {text} ({seconds:.1} s)"),
            Err(text) => {
                println!("{name}: FAILED: {text} ({seconds:.1} s)");
                failed.push(name.to_string());
            }
        }
    };
    part("graph", &mut |_| graph::run());
    part("context", &mut |_| threads::context_is_kept(&cuda));
    part("certification", &mut |_| {
        certification::run(&cuda, argument("--differs").as_deref())
    });
    part("traffic", &mut |_| traffic::run(&cuda));
    part("grid", &mut |t| {
        let all = grid::configs();
        // Every so many, so that about as many as asked for are left.
        let wanted: usize = argument("--grid").map_or(all.len(), |n| n.parse().expect("--grid N"));
        let step = all.len().div_ceil(wanted.max(1));
        let some: Vec<Config> = all.into_iter().step_by(step).collect();
        many(&cuda, &some, t)
    });
    part("random", &mut |t| {
        let configs: usize =
            argument("--configs").map_or(10_000, |n| n.parse().expect("--configs N"));
        let seed = argument("--seed").map_or(1, |n| n.parse().expect("--seed N"));
        let mut r = Random::new(seed);
        let configs: Vec<Config> = (0..configs).map(|_| random_config(&mut r)).collect();
        many(&cuda, &configs, t)
    });
    let mut products = 0;
    part("products", &mut |_| {
        let (text, calls) = products::many(&cuda, &products::grid())?;
        products += calls;
        Ok(text)
    });
    part("random products", &mut |_| {
        let count: usize =
            argument("--products").map_or(1500, |n| n.parse().expect("--products N"));
        let mut r = Random::new(argument("--seed").map_or(1, |n| n.parse().expect("--seed N")));
        let all: Vec<_> = (0..count).map(|_| products::random(&mut r)).collect();
        let (text, calls) = products::many(&cuda, &all)?;
        products += calls;
        Ok(text)
    });
    part("fp4 products", &mut |_| {
        let count: usize = argument("--products").map_or(500, |n| n.parse().expect("--products N"));
        let mut r = Random::new(argument("--seed").map_or(1, |n| n.parse().expect("--seed N")));
        let all: Vec<_> = (0..count).map(|_| products::random_fp4(&mut r)).collect();
        let (text, calls) = products::many(&cuda, &all)?;
        products += calls;
        Ok(text)
    });
    part("cublaslt", &mut |_| {
        let mut r = Random::new(argument("--seed").map_or(1, |n| n.parse().expect("--seed N")));
        let all: Vec<_> = (0..150).map(|_| products::random_for_lt(&mut r)).collect();
        let (text, calls) = products::lt(&cuda, &all)?;
        products += calls;
        Ok(text)
    });
    part("grouped", &mut |_| {
        let count: usize = argument("--groups").map_or(300, |n| n.parse().expect("--groups N"));
        let seed = argument("--seed").map_or(1, |n| n.parse().expect("--seed N"));
        grouped::run(&cuda, count, seed)
    });
    part("linear", &mut |_| linear::run());
    part("threads", &mut |_| {
        let rounds: usize = argument("--rounds").map_or(500, |n| n.parse().expect("--rounds N"));
        threads::two_by_two(&cuda, rounds)
    });
    if flag("--large") {
        part("large", &mut |_| large::run(&cuda));
    } else {
        println!("large: not run (needs --large and 16 GB of device memory)");
    }
    println!(
        "{} calls compared: {total:?}, {products} products; {:.1} s",
        total.total() + products,
        started.elapsed().as_secs_f64()
    );
    if let Some(path) = argument("--json") {
        let hash = argument("--hash").unwrap_or_default();
        let text = format!(
            "{{\n  \"device\": \"{}\",\n  \"hash\": \"{hash}\",\n  \"passed\": {},\n  \"failed\": {failed:?}\n}}\n",
            cuda.name(),
            total.total() + products
        );
        std::fs::write(&path, text).expect("--json PATH can be written");
    }
    if !failed.is_empty() {
        println!("FAILED: {}", failed.join(", "));
        std::process::exit(1);
    }
}

/// All configurations, spread over threads with a stream each.
fn many(cuda: &Cuda, configs: &[Config], total: &mut Counts) -> Result<String, String> {
    let next = AtomicUsize::new(0);
    let failures: Mutex<Vec<(usize, String)>> = Mutex::default();
    let enough = AtomicBool::new(false);
    let threads = std::thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(12);
    let sum = Mutex::new(Counts::default());
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                device::enter().expect("entered before");
                let both = Both {
                    cpu: Cpu::new(1),
                    cuda,
                    stream: device::Stream::new(),
                };
                let mut arena = Arena::new(ARENA);
                let mut counts = Counts::default();
                while !enough.load(Ordering::Relaxed) {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(c) = configs.get(i) else { break };
                    let run = std::panic::AssertUnwindSafe(|| {
                        check::run(&both, &mut arena, c, &mut counts)
                    });
                    let result =
                        std::panic::catch_unwind(run).unwrap_or_else(|_| Err("a panic".into()));
                    if let Err(text) = result {
                        let mut f = failures.lock().expect("not poisoned");
                        f.push((i, text));
                        enough.store(f.len() >= 40, Ordering::Relaxed);
                    }
                }
                sum.lock().expect("not poisoned").add(&counts);
            });
        }
    });
    let counts = sum.into_inner().expect("not poisoned");
    total.add(&counts);
    let mut failures = failures.into_inner().expect("not poisoned");
    failures.sort();
    if failures.is_empty() {
        return Ok(format!(
            "{} configurations, {} calls",
            configs.len(),
            counts.total()
        ));
    }
    for (i, text) in failures.iter().take(12) {
        println!("  #{i} {:?}\n    {text}", configs[*i]);
    }
    Err(format!("{} configurations", failures.len()))
}
